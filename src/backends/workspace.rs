//! A workspace: the place of a session's files and processes, and the operations on it.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::network::{HttpAnswers, HttpReport, NetworkRules};
use bytes::Bytes;

use crate::engine::clock::Timestamp;

use crate::engine::event::{ContainerStarted, ContainerStopped, FileMode, NetworkConnection, Node};
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
    /// [`BackendError`]; the files are then unchanged.
    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// Makes the changes, in order, in files that nothing else uses: in a workspace that is being populated, or a
    /// temporary one. It may be cheaper than [`apply`](Workspace::apply).
    ///
    /// # Errors
    /// [`BackendError`]; some of the changes may have been made.
    fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.apply(changes)
    }

    /// Joins the names of each file that has several, as `names` lists them, before a command runs: in an overlay, a
    /// write through one name may turn that name into a separate file.
    ///
    /// # Errors
    /// [`BackendError`]; a write may then separate some names.
    #[doc(hidden)]
    fn join_names(&self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        let _ = names;
        Ok(())
    }

    /// Returns the shell that runs commands; `None` if nothing can run. It applies no policy and records nothing: for
    /// that a session has `ToolRunner::shell`.
    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        None
    }

    /// Returns the detector of external changes; `None` if only [`apply`](Workspace::apply) changes files.
    fn capture(&self) -> Option<&dyn ChangeDetector> {
        None
    }

    /// Returns the umask for files that tools create.
    fn umask(&self) -> u32 {
        0o022
    }

    /// Returns the populate marker behind the defaults of `is_blank`, `filling`, `unsettled`, `intent` and `filled`.
    #[doc(hidden)]
    fn marker(&self) -> Option<&PopulateMarker> {
        None
    }

    /// Returns true if the disk has to be populated: it has no files of the session, or is between two states.
    fn is_blank(&self) -> bool {
        self.marker().is_some_and(PopulateMarker::is_blank)
    }

    /// Returns true if its path still leads to the directory that was opened.
    #[doc(hidden)]
    fn is_in_place(&self) -> bool {
        true
    }

    /// Records that populating starts. Until [`filled`](Workspace::filled) the disk stays blank, also for later
    /// processes. An intent of [`unsettled`](Workspace::unsettled) is retained.
    fn filling(&self) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), PopulateMarker::filling)
    }

    /// Durably records that the disk is changing to another state, with the intended changes. If this process dies
    /// before [`filled`](Workspace::filled), a later one finds the disk blank, with this [`intent`](Workspace::intent).
    fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), |marker| marker.unsettled(intent))
    }

    /// Reads the intent of [`unsettled`](Workspace::unsettled); without one, a blank disk has to be populated in full.
    fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        self.marker().map_or(Ok(None), PopulateMarker::intent)
    }

    /// Records that the disk has all of the session's files: any later difference is an external change.
    fn filled(&self) -> Result<(), BackendError> {
        self.marker().map_or(Ok(()), PopulateMarker::filled)
    }

    /// Shares this workspace's files with the workspace of `child`, copy-on-write, in constant time. Only files are
    /// shared.
    ///
    /// The workspace of `child` must never have been opened. Once open it is not blank, and its first scan reports only
    /// what a scan here would. It keeps the files if this workspace is removed. The caller has the session's turn, so
    /// that no command runs, and has recorded external changes.
    ///
    /// Returns false if sharing is not supported: the child is then populated from its history.
    ///
    /// # Errors
    /// [`BackendError`] if sharing is supported and failed. This workspace keeps its files, the child's stays empty.
    fn fork_to(&self, child: SessionId) -> Result<bool, BackendError> {
        let _ = child;
        Ok(false)
    }

    /// Takes the machine's changes since the last call, to be recorded.
    fn news(&self) -> Vec<MachineNews> {
        Vec::new()
    }

    /// Calls `watch`, which replaces an earlier one, when the machine has changed without a call and has news. It is
    /// called from any thread.
    fn watch_machine(&self, watch: Arc<dyn Fn() + Send + Sync>) {
        drop(watch);
    }

    /// Reports progress to `watch`, which replaces an earlier one, while commands have to wait for the machine.
    fn watch_progress(&self, watch: ProgressWatch) {
        drop(watch);
    }

    /// Returns the container of its commands; `None` if they run in none.
    fn container(&self) -> Option<Arc<dyn Container>> {
        None
    }

    /// Returns the options of all commands.
    fn command_options(&self) -> CommandOptions {
        CommandOptions::default()
    }

    /// Returns the workspace's root as commands see it; `None` if nothing can run.
    fn root(&self) -> Option<String> {
        None
    }

    /// Describes the machine to a model; empty for a workspace without a machine.
    fn description(&self) -> String {
        String::new()
    }

    /// Releases the session's containers and processes. Files stay.
    fn close(&self) {}
}

/// Receives the progress of long operations before commands can run, such as the pull of an image, line by line as the
/// engine prints it. It is called from any thread, and blocks the operation.
pub type ProgressWatch = Arc<dyn Fn(&str) + Send + Sync>;

/// A container for a workspace's commands. It starts automatically when a command needs it.
pub trait Container: Send + Sync + 'static {
    /// Returns its name.
    fn name(&self) -> String;

    /// Pulls a missing image, if allowed. A command would do so, too, but within its time limit.
    fn fetch(&self) -> Result<(), ShellError> {
        Ok(())
    }

    /// Creates or starts the container if it does not run, and waits until it can run commands.
    fn start(&self) -> Result<(), ShellError>;

    /// Returns the last start of this process.
    fn last_start(&self) -> Option<ContainerStarted> {
        None
    }

    /// Connects to a TCP port of the container's own loopback address. It does not start the container: nothing listens
    /// in one that does not run.
    ///
    /// # Errors
    /// `ConnectionRefused` if nothing listens; any other error if the container can't be reached.
    fn connect(&self, port: u16) -> io::Result<TcpStream> {
        Err(io::Error::other(format!("port {port} of {} can't be reached", self.name())))
    }

    /// Replaces the rules of its recorded network, for connections that begin from now on, until the workspace closes; not
    /// `record_http` and `mask`. Returns false if it has no such network.
    fn set_network_rules(&self, rules: NetworkRules) -> bool {
        drop(rules);
        false
    }

    /// Replays recorded HTTP responses to its commands, and refuses all other connections, until the workspace closes.
    /// Returns false if it does not record HTTP.
    fn answer_from(&self, answers: HttpAnswers) -> bool {
        drop(answers);
        false
    }

    /// Freezes the running commands until [`Container::resume`], or until another command or a connection needs the
    /// container. Their memory stays in use. Returns false if no command runs.
    ///
    /// # Errors
    /// [`ShellError::Unavailable`] if the engine can't freeze it, as Podman without root on cgroups v1.
    fn pause(&self) -> Result<bool, ShellError> {
        Ok(false)
    }

    /// Resumes frozen commands.
    ///
    /// # Errors
    /// [`ShellError::Unavailable`] if the engine fails to.
    fn resume(&self) -> Result<(), ShellError> {
        Ok(())
    }

    /// Returns the resources that it uses now; `None` if it does not run, or the kernel does not report them.
    fn usage(&self) -> Option<MachineUsage> {
        None
    }

    /// Describes its last start: the pull of its image, its creation.
    fn log(&self) -> Vec<String> {
        Vec::new()
    }

    /// Stops and removes it; a missing container is not an error. The files stay.
    fn stop(&self) -> Result<(), ShellError>;
}

/// The resources that a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineUsage {
    /// Processor time since its start.
    pub cpu: Duration,
    /// Bytes of memory, with the page cache.
    pub memory_bytes: u64,
    /// Bytes of the page cache.
    pub cache_bytes: u64,
    /// Used bytes of the file system that holds the workspace.
    pub disk_bytes: u64,
    /// Bytes of that file system.
    pub disk_total_bytes: u64,
}

/// A change of a workspace's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineNews {
    /// A container runs.
    Started(ContainerStarted),
    /// The container was stopped, or is gone.
    Stopped(ContainerStopped),
    /// A connection of its commands has ended.
    Connected(NetworkConnection),
    /// An HTTP exchange of its commands has ended; the masks apply before it is recorded.
    Exchanged(Box<HttpReport>, Arc<[String]>),
}

/// One change of a workspace's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// An entry is written at a path.
    Write {
        /// Its path.
        path: EntryPath,
        /// Its kind.
        node: Node,
        /// A file's contents; empty for anything else.
        bytes: Bytes,
        /// Its modification time on a disk, which build tools use; now by default. Ignored for directories.
        modified: Option<Timestamp>,
    },
    /// A file or directory gets other permission bits; its contents and times stay.
    Mode {
        /// Its path.
        path: EntryPath,
        /// Its new permission bits.
        mode: FileMode,
    },
    /// A path becomes another name of a file with the same contents and mode. Without support by the file system, it
    /// stays a separate file.
    Link {
        /// The new name.
        path: EntryPath,
        /// The path of the file.
        to: EntryPath,
    },
    /// An entry and everything below it is removed.
    Delete {
        /// Its path.
        path: EntryPath,
    },
}

impl FileChange {
    /// Returns the path of the changed entry.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Write { path, .. } | Self::Mode { path, .. } | Self::Link { path, .. } | Self::Delete { path } => {
                path
            }
        }
    }

    /// Returns all its paths: the changed entry, and the file that gets another name.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &EntryPath> {
        std::iter::once(self.path()).chain(self.linked())
    }

    /// Returns the file that gets another name.
    pub(crate) fn linked(&self) -> Option<&EntryPath> {
        if let Self::Link { to, .. } = self { Some(to) } else { None }
    }
}
