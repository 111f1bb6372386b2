//! A workspace: where files and processes are, and the words for what is done to it.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::clock::Timestamp;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::{ContainerStarted, ContainerStopped, Node};
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;

use super::capture::ChangeDetector;
use super::shell::{Shell, ShellError};

/// The place where a session's files are, besides the journal, and where its commands run.
///
/// The journal is the truth and the workspace a projection of it: a change is first decided, then
/// projected here, then recorded.
pub trait Workspace: Send + Sync + 'static {
    /// The backend's name: `memory`, `host`, ...
    fn backend_name(&self) -> &'static str;

    /// Makes the changes, in order, all or none.
    ///
    /// # Errors
    /// [`BackendError`]; the files are then as before.
    fn project(&self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// Makes the changes, in order, where nobody else uses the files meanwhile: a workspace that is being filled, or one
    /// that is thrown away. That may be cheaper than [`project`](Workspace::project).
    ///
    /// # Errors
    /// [`BackendError`]; some of the changes may be made then.
    fn lay_out(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.project(changes)
    }

    /// Where commands run; none where there is no such place.
    fn shell(&self) -> Option<Arc<dyn Shell>> {
        None
    }

    /// Finds out what commands, and others, have changed; none where nothing but
    /// [`project`](Workspace::project) can change anything.
    fn capture(&self) -> Option<&dyn ChangeDetector> {
        None
    }

    /// Whether the disk has nothing of this session's files, which then have to be projected, or is between two
    /// states of them.
    fn is_blank(&self) -> bool {
        false
    }

    /// Notes that filling begins. Until [`filled`](Workspace::filled) the disk stays blank, also for a later
    /// process when this one dies meanwhile. What was noted as [`unsettled`](Workspace::unsettled) stays noted.
    ///
    /// # Errors
    /// [`BackendError`] when it can't be noted.
    fn filling(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Notes durably that the disk is on its way from one state to another, and what is about to be done. When this
    /// process dies before [`filled`](Workspace::filled), a later one takes the disk for blank, and is given the
    /// [`intent`](Workspace::intent).
    ///
    /// # Errors
    /// [`BackendError`] when it can't be noted.
    fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        let _ = intent;
        Ok(())
    }

    /// What was noted as [`unsettled`](Workspace::unsettled) and not [`filled`](Workspace::filled) since; none when
    /// nothing was, and then a blank disk has to be filled whole.
    ///
    /// # Errors
    /// [`BackendError`] when the note can't be read.
    fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        Ok(None)
    }

    /// The disk has all of the session's files: from now on what differs was changed by somebody.
    ///
    /// # Errors
    /// [`BackendError`] when it can't be noted.
    fn filled(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Shares this workspace's files as they are now with the workspace of `child`, copy-on-write: neither sees what
    /// the other changes from then on. That costs the same however many files there are. Nothing but files goes
    /// over: no process, no variable, nothing of `/tmp`.
    ///
    /// The workspace of `child` was never opened. When it is, it is not blank, and a look right after names only what
    /// a look here would. It keeps the files when this workspace is closed or removed. Whoever calls has the session's
    /// turn, so that no command runs, and has just recorded what others changed.
    ///
    /// Gives false where that can't be done; then the child is filled from its history as any other.
    ///
    /// # Errors
    /// [`BackendError`] when it could be done and failed. This workspace has its files all the same, and the
    /// child's is as if nobody had tried.
    fn fork_to(&self, child: SessionId) -> Result<bool, BackendError> {
        let _ = child;
        Ok(false)
    }

    /// What has happened to the machine since this was last asked, to be recorded.
    fn news(&self) -> Vec<MachineNews> {
        Vec::new()
    }

    /// Lets `watch` see from now on what has to be waited for before commands can run, in place of who saw it
    /// before. Where nothing takes long it never sees anything.
    fn watch_progress(&self, watch: ProgressWatch) {
        drop(watch);
    }

    /// The container in which commands run; none where they run in none.
    fn container(&self) -> Option<Arc<dyn Container>> {
        None
    }

    /// The workspace's root as commands see it; none where nothing can run.
    fn root(&self) -> Option<String> {
        None
    }

    /// What a model should know of the machine; empty where there is none.
    fn description(&self) -> String {
        String::new()
    }

    /// Lets go of what is held for the session: containers, processes. Files stay.
    fn close(&self) {}
}

/// Sees a line at a time of what takes long before commands can run, such as the pull of an image. The lines
/// are the engine's words and may hold anything. It is called from any thread, and holds up what it watches.
pub type ProgressWatch = Arc<dyn Fn(&str) + Send + Sync>;

/// A container in which a workspace's commands run. It starts by itself when a command needs it.
pub trait Container: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> String;

    /// Gets the image that it is made of, when that is not there and may be pulled. A command would do so, too,
    /// but its time would count.
    ///
    /// # Errors
    /// [`ShellError::Unavailable`] with what to do about it.
    fn fetch(&self) -> Result<(), ShellError> {
        Ok(())
    }

    /// Makes it, or starts it, when it does not run, and waits until it can run commands.
    ///
    /// # Errors
    /// [`ShellError::Unavailable`] with what to do about it.
    fn start(&self) -> Result<(), ShellError>;

    /// Stops and removes it; one that is not there is no error. The files stay.
    ///
    /// # Errors
    /// [`ShellError::Unavailable`] when it may still run.
    fn stop(&self) -> Result<(), ShellError>;
}

/// What happened to the machine of a workspace.
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
        /// Where.
        path: EntryPath,
        /// What.
        node: Node,
        /// A file's contents; empty for anything else.
        bytes: Bytes,
        /// The modification time that it gets on a disk, now when nothing is said. Who makes again what was has to say
        /// it: programs such as make go by which of two files is the newer one. Directories have none.
        modified: Option<Timestamp>,
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
            Self::Write { path, .. } | Self::Delete { path } => path,
        }
    }
}

/// What a backend could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {backend} workspace failed: {reason}")]
pub struct BackendError {
    /// The backend's name.
    pub backend: &'static str,
    /// What went wrong, for a person.
    pub reason: String,
}

impl Diagnostic for BackendError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Io
    }
}
