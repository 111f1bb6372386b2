//! A workspace: where files and processes are, and the words for what is done to it.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::clock::Timestamp;

use crate::engine::event::{ContainerStarted, ContainerStopped, FileMode, Node};
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;

use super::capture::ChangeDetector;
use super::command_options::CommandOptions;
use super::disk::populate_marker::PopulateMarker;
use super::error::BackendError;
use super::shell::{Shell, ShellError};

/// The place of a session's files, besides the journal, and of its commands.
///
/// The journal is the truth and the workspace a projection of it: a change is decided, applied here, then recorded.
pub trait Workspace: Send + Sync + 'static {
    /// The backend's name: `memory`, `host`, ...
    fn backend_name(&self) -> &'static str;

    /// Makes the changes, in order, all or none.
    ///
    /// # Errors
    /// [`BackendError`]; the files are then as before.
    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// Makes the changes, in order, where no one else uses the files: in a workspace that is being filled, or a
    /// temporary one. It may be cheaper than [`apply`](Workspace::apply).
    ///
    /// # Errors
    /// [`BackendError`]; some of the changes may be made then.
    fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.apply(changes)
    }

    /// Joins the names of each file with several, as `names` lists them, before a command runs: in an overlay a write
    /// through one of them may turn that name into a separate file.
    ///
    /// # Errors
    /// [`BackendError`]; the names may come apart then.
    #[doc(hidden)]
    fn join_names(&self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        let _ = names;
        Ok(())
    }

    /// Gives the shell that runs commands; none where nothing can run. No policy decides about these, and nothing is
    /// recorded: for that a session has [`ToolRunner::shell`](crate::ToolRunner::shell).
    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        None
    }

    /// Gives the detector of changes by others; none where only [`apply`](Workspace::apply) changes anything.
    fn capture(&self) -> Option<&dyn ChangeDetector> {
        None
    }

    /// Returns the umask for files that tools create.
    fn umask(&self) -> u32 {
        0o022
    }

    /// Gives the note of how far the disk is populated, by which the next five work.
    #[doc(hidden)]
    fn marker(&self) -> Option<&PopulateMarker> {
        None
    }

    /// Tells whether the disk has to be populated: it has no files of the session, or is between two states of them.
    fn is_blank(&self) -> bool {
        self.marker().is_some_and(PopulateMarker::is_blank)
    }

    /// Returns true if its path still leads to the directory that was opened.
    #[doc(hidden)]
    fn is_in_place(&self) -> bool {
        true
    }

    /// Notes that filling begins. Until [`filled`](Workspace::filled) the disk stays blank, also for a later process.
    /// A note of [`unsettled`](Workspace::unsettled) stays.
    fn filling(&self) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), PopulateMarker::filling)
    }

    /// Notes durably that the disk is on its way to another state, and what is about to be done. When this process dies
    /// before [`filled`](Workspace::filled), a later one finds the disk blank, with this [`intent`](Workspace::intent).
    fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), |marker| marker.unsettled(intent))
    }

    /// Reads what was noted as [`unsettled`](Workspace::unsettled); without it a blank disk has to be filled whole.
    fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        self.marker().map_or(Ok(None), PopulateMarker::intent)
    }

    /// Notes that the disk has all of the session's files: what differs from now on was changed by others.
    fn filled(&self) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), PopulateMarker::filled)
    }

    /// Shares this workspace's files with the workspace of `child`, copy-on-write, in a time that does not depend on
    /// their number. Nothing but files goes over.
    ///
    /// The workspace of `child` was never opened. Once open it is not blank, and its first scan names only what one here
    /// would. It keeps the files when this workspace is removed. The caller has the session's turn, so that no command
    /// runs, and has recorded what others changed.
    ///
    /// Gives false where that can't be done: the child is then filled from its history.
    ///
    /// # Errors
    /// [`BackendError`] when it could be done and failed. This workspace keeps its files, and the child's
    /// has none.
    fn fork_to(&self, child: SessionId) -> Result<bool, BackendError> {
        let _ = child;
        Ok(false)
    }

    /// Takes the machine's changes since the last call, to be recorded.
    fn news(&self) -> Vec<MachineNews> {
        Vec::new()
    }

    /// Calls `watch`, in place of an earlier one, when the machine has changed by itself: there is news to take. It is
    /// called from any thread.
    fn watch_machine(&self, watch: Arc<dyn Fn() + Send + Sync>) {
        drop(watch);
    }

    /// Shows `watch`, in place of an earlier one, what has to be waited for before commands can run.
    fn watch_progress(&self, watch: ProgressWatch) {
        drop(watch);
    }

    /// The container in which commands run; none where they run in none.
    fn container(&self) -> Option<Arc<dyn Container>> {
        None
    }

    /// Returns the options of all commands.
    fn command_options(&self) -> CommandOptions {
        CommandOptions::default()
    }

    /// The workspace's root as commands see it; none where nothing can run.
    fn root(&self) -> Option<String> {
        None
    }

    /// Describes the machine to a model; empty where there is none.
    fn description(&self) -> String {
        String::new()
    }

    /// Releases what is held for the session: containers, processes. Files stay.
    fn close(&self) {}
}

/// Sees a line at a time of what takes long before commands can run, such as the pull of an image. The lines are the
/// engine's words. It is called from any thread, and holds up what it watches.
pub type ProgressWatch = Arc<dyn Fn(&str) + Send + Sync>;

/// A container in which a workspace's commands run. It starts by itself when a command needs it.
pub trait Container: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> String;

    /// Gets the image when it is not there and may be pulled. A command would do so, too, but its time would count.
    fn fetch(&self) -> Result<(), ShellError> {
        Ok(())
    }

    /// Makes it, or starts it, when it does not run, and waits until it can run commands.
    fn start(&self) -> Result<(), ShellError>;

    /// Tells what its last start took: the pull of its image, its making.
    fn log(&self) -> Vec<String> {
        Vec::new()
    }

    /// Stops and removes it; one that is not there is no error. The files stay.
    fn stop(&self) -> Result<(), ShellError>;
}

/// A change of the machine of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineNews {
    /// A container runs.
    Started(ContainerStarted),
    /// It was stopped, or is gone.
    Stopped(ContainerStopped),
}

/// One change of a workspace's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// An entry is put at a path.
    Write {
        /// Its path.
        path: EntryPath,
        /// Its kind.
        node: Node,
        /// A file's contents; empty for anything else.
        bytes: Bytes,
        /// The modification time that it gets on a disk; now by default. Programs such as make go by it. Directories
        /// have none.
        modified: Option<Timestamp>,
    },
    /// A file or directory gets other permission bits, and keeps its contents and times.
    Mode {
        /// Its path.
        path: EntryPath,
        /// Its new permission bits.
        mode: FileMode,
    },
    /// A path becomes one more name of the file at another one, which has the same contents and mode. Where the file
    /// system can't do that, it stays a separate file.
    Link {
        /// Path of the name.
        path: EntryPath,
        /// Path of the file.
        to: EntryPath,
    },
    /// An entry and everything below it is removed.
    Delete {
        /// Which.
        path: EntryPath,
    },
}

impl FileChange {
    /// The entry that is changed.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Write { path, .. } | Self::Mode { path, .. } | Self::Link { path, .. } | Self::Delete { path } => {
                path
            }
        }
    }

    /// The entries that it names: the changed one, and the one whose file gets one more name.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &EntryPath> {
        std::iter::once(self.path()).chain(self.linked())
    }

    /// The entry whose file gets one more name.
    pub(crate) fn linked(&self) -> Option<&EntryPath> {
        if let Self::Link { to, .. } = self { Some(to) } else { None }
    }
}
