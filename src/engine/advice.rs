//! Advice for the user after an error, without the commands, options, routes or tools of any interface.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Advice after an error. Each interface has its own texts, which name its commands, routes or tools; `Display` is for
/// programs that use the library.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::event::{Advice, Diagnostic};
/// use foldspace::{Registry, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let error = sessions.find("demo").unwrap_err();
/// assert_eq!(error.advice(), Some(Advice::ListSessions { nearest: None }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Advice {
    /// The same text in every interface.
    Text {
        /// The text.
        text: String,
    },
    /// List the sessions.
    ListSessions {
        /// The most similar existing name.
        nearest: Option<String>,
    },
    /// List the positions of the session.
    ListPositions,
    /// List the calls of the session.
    ListCalls,
    /// List the runs of agents.
    ListRuns,
    /// Show the session's parents and children.
    ShowLineage,
    /// Read the log before a retry.
    ReadLog,
    /// Show the history of the path, or select another position.
    ShowHistory,
    /// Show which changes wrote the path.
    ShowAuthors,
    /// Show which changes wrote the path; a larger budget stores the contents.
    RaiseFileBudget,
    /// Select the changes to undo.
    SelectUndo {
        /// Position of the latest change from outside of any call.
        outside: Option<u64>,
    },
    /// Force the rewind: external changes are recorded first, and files without stored contents stay.
    ForceRewind,
    /// Force the rewind: it removes entries that predate the session.
    RemoveEarlier,
    /// Name the directory to apply changes to.
    NameDirectory,
    /// Write all files to the empty directory instead of merging into it.
    WriteAllFiles,
    /// Allow the directory to be used.
    AllowDirectory,
    /// Remove the incomplete child.
    RemoveChild {
        /// Name of the child.
        name: String,
    },
    /// Import the session under another name.
    ImportUnderOtherName,
    /// Remove the existing session before the import, or import into another store.
    ReplaceSession,
    /// Check the backends on the machine.
    CheckMachine,
    /// Use a store in a writable directory.
    UseWritableStore,
    /// Wait for the owner of the store to end, or use another store.
    WaitForOwner,
    /// Stop the process that serves the store's socket, or use another store.
    StopOwner,
    /// Find the process that owns the store: it may be stopped.
    FindOwner,
    /// Use the session on the host that has claimed it, or move it.
    UseHost {
        /// Name of the host.
        host: String,
        /// URL of the host's API, if other hosts can reach it.
        at: Option<String>,
    },
    /// Check the store for damage.
    CheckStore,
    /// Repair the store: everything intact stays.
    RepairStore,
    /// Restore the journal, or accept the loss of events.
    AcceptLoss,
    /// Take over the copy of a store, after its process has stopped.
    TakeOverCopy,
    /// Check the store for lost events, or create a store from its copy.
    RestoreFromCopy,
    /// Make a new copy of the store.
    ReplaceCopy,
    /// Choose another directory for the store.
    UseOtherDirectory,
}

impl Advice {
    /// Creates advice with the same text in every interface: it names no command, option, route or tool.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text { text } => text,
            Self::ListSessions { nearest: Some(nearest) } => return write!(f, "did you mean {nearest}?"),
            Self::ListSessions { nearest: None } => "list the sessions",
            Self::ListPositions => "positions begin with 1; 0 is before them",
            Self::ListCalls => "list the calls of the session",
            Self::ListRuns => "list the runs of agents",
            Self::ShowLineage => "show the parents and children of the session",
            Self::ReadLog => "check the session's log before you retry",
            Self::ShowHistory => "the history of the path shows its changes; use another position",
            Self::ShowAuthors => "the history of the path shows who changed it",
            Self::RaiseFileBudget => {
                "the history of the path shows who changed it; a larger budget stores its contents"
            }
            Self::SelectUndo { outside: None } => "an undo of one call undoes what that call left",
            Self::SelectUndo { outside: Some(seq) } => {
                return write!(
                    f,
                    "an undo of one call undoes what that call left; an undo of external changes reverts the last, \
                     at {seq}"
                );
            }
            Self::ForceRewind => {
                "a forced rewind first records external changes, and leaves files without stored contents"
            }
            Self::RemoveEarlier => "a forced rewind removes them, too",
            Self::NameDirectory => "name the directory to apply its changes to",
            Self::WriteAllFiles => "write all files there instead",
            Self::AllowDirectory => "allow the directory first",
            Self::RemoveChild { name } => return write!(f, "remove the session {name}"),
            Self::ImportUnderOtherName => "import it under another name",
            Self::ReplaceSession => "nothing was changed; remove the existing session, or import into another store",
            Self::CheckMachine => "check which backends work on the machine",
            Self::UseWritableStore => "use a store in a writable directory",
            Self::WaitForOwner => "wait for it to end, or use another store",
            Self::StopOwner => "stop that process, or use another store",
            Self::FindOwner => "its process may be stopped",
            Self::UseHost { host, at: None } => {
                return write!(f, "use it on {host}, or stop foldspace there: this host can then claim the session");
            }
            Self::UseHost { host, at: Some(at) } => return write!(f, "use it on {host} at {at}, or move it"),
            Self::CheckStore => "check the store: that lists all damage",
            Self::RepairStore => "repair the store: that keeps everything that is intact",
            Self::AcceptLoss => "restore the journal, or accept the loss",
            Self::TakeOverCopy => "stop that process, then take over its copy",
            Self::RestoreFromCopy => "check the store for lost events, or create a store from the copy",
            Self::ReplaceCopy => "if the store still exists, delete the copy, then replicate the store again",
            Self::UseOtherDirectory => "choose another directory",
        })
    }
}
