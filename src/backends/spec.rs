//! What a session's workspace is to be, as it is recorded with the session.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::host::{HostOptions, HostWorkspace};
use super::memory::MemoryWorkspace;
use super::mock::{MockAnswer, MockWorkspace};
use super::podman::{PodmanOptions, PodmanSandbox};
use super::{BackendError, Workspace};
use crate::engine::event::SessionStarted;
use crate::engine::id::SessionId;

/// What a session's workspace is to be. It is recorded when the session begins, so that whoever goes on
/// with the session opens the same workspace.
///
/// ```
/// use foldspace::{HostOptions, SessionStarted, WorkspaceSpec};
/// let spec = WorkspaceSpec::Host(HostOptions::default());
/// assert_eq!(spec.backend_name(), "host");
/// assert_eq!(WorkspaceSpec::parse("memory", &serde_json::Value::Null)?, WorkspaceSpec::Memory);
/// # Ok::<(), foldspace::BackendError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub enum WorkspaceSpec {
    /// The files are in the journal only, and there is no shell.
    #[default]
    Memory,
    /// A directory of this machine; not sandboxed.
    Host(HostOptions),
    /// A container.
    Podman(PodmanOptions),
    /// Commands are answered from a list.
    Mock(MockOptions),
}

/// Removes a directory and what is in it; one that is not there is no error.
#[expect(clippy::disallowed_methods, reason = "a backend removes its own directories")]
pub(super) fn remove(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            unlock(directory)?;
            std::fs::remove_dir_all(directory)
        }
        other => other,
    }
}

/// Opens the directories that commands have shut: without root not even their owner can empty them.
fn unlock(directory: &Path) -> std::io::Result<()> {
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(&path, flags, Mode::empty())?;
        // By the handle, because a link that came meanwhile would lead elsewhere.
        let place = format!("/proc/self/fd/{}", handle.as_raw_fd());
        std::fs::set_permissions(&place, Permissions::from_mode(0o700))?;
        #[expect(clippy::disallowed_methods, reason = "a backend removes its own directories")]
        let entries = std::fs::read_dir(&place)?;
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(path.join(entry.file_name()));
            }
        }
    }
    Ok(())
}

/// What a mock answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockOptions {
    /// The answers; the first that fits is given.
    #[serde(default)]
    pub answers: Vec<MockRule>,
}

/// An answer for commands that fit a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockRule {
    /// A glob over the command's text, in which `*` fits anything.
    pub command: String,
    /// What the mock says.
    #[serde(flatten)]
    pub answer: MockAnswer,
}

impl WorkspaceSpec {
    /// The backend's name.
    pub fn backend_name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Host(_) => "host",
            Self::Podman(_) => "podman",
            Self::Mock(_) => "mock",
        }
    }

    /// What is recorded of it beside the name.
    pub fn options(&self) -> Value {
        let options = match self {
            Self::Memory => return Value::Null,
            Self::Host(options) => serde_json::to_value(options),
            Self::Podman(options) => serde_json::to_value(options),
            Self::Mock(options) => serde_json::to_value(options),
        };
        // Plain structs of texts and numbers have a JSON form.
        options.unwrap_or_default()
    }

    /// Reads what was recorded.
    ///
    /// # Errors
    /// [`BackendError`] for a backend that this program does not know, and options that make no sense.
    pub fn parse(backend: &str, options: &Value) -> Result<Self, BackendError> {
        let options = if options.is_null() { Value::Object(Default::default()) } else { options.clone() };
        let wrong =
            |backend| move |error: serde_json::Error| BackendError { backend, reason: format!("its options: {error}") };
        match backend {
            "memory" => Ok(Self::Memory),
            "host" => serde_json::from_value(options).map(Self::Host).map_err(wrong("host")),
            "podman" => serde_json::from_value(options).map(Self::Podman).map_err(wrong("podman")),
            "mock" => serde_json::from_value(options).map(Self::Mock).map_err(wrong("mock")),
            other => {
                let reason = format!("there is no backend {other:?}; there are memory, host, podman and mock");
                Err(BackendError { backend: "requested", reason })
            }
        }
    }

    /// The workspace of a session, as its first event tells.
    ///
    /// # Errors
    /// As [`parse`](WorkspaceSpec::parse).
    pub fn of_session(started: &SessionStarted) -> Result<Self, BackendError> {
        Self::parse(&started.backend, &started.options)
    }

    /// Opens the workspace of a session. Directories that it needs, and that it was not given, are made
    /// below `home`; nothing runs before it is needed.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn open(&self, session: SessionId, home: &Path) -> Result<Arc<dyn Workspace>, BackendError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryWorkspace),
            Self::Host(options) => {
                let directory = options.directory.clone().unwrap_or_else(|| Self::directory(session, home));
                Arc::new(HostWorkspace::open(&directory, options)?)
            }
            Self::Podman(options) => Arc::new(PodmanSandbox::open(session, options)?),
            Self::Mock(options) => Arc::new(
                options
                    .answers
                    .iter()
                    .try_fold(MockWorkspace::new(), |mock, rule| mock.answering(&rule.command, rule.answer.clone()))?,
            ),
        })
    }

    /// Removes what the workspace of a session that is gone has left on this machine. A directory that it
    /// was given stays as it is.
    ///
    /// # Errors
    /// [`BackendError`] when it can't be removed.
    pub fn remove(&self, session: SessionId, home: &Path) -> Result<(), BackendError> {
        let removed = match self {
            Self::Host(HostOptions { directory: None }) => match Self::directory(session, home).parent() {
                Some(directory) => remove(directory),
                None => Ok(()),
            },
            Self::Podman(_) => super::podman::session_directory(session).and_then(|directory| remove(&directory)),
            Self::Host(_) | Self::Memory | Self::Mock(_) => Ok(()),
        };
        removed.map_err(|error| BackendError { backend: self.backend_name(), reason: error.to_string() })
    }

    /// Where the files of a session lie on this machine, when nothing else was said.
    pub fn directory(session: SessionId, home: &Path) -> PathBuf {
        home.join("workspaces").join(session.to_string()).join("files")
    }
}
