//! Files in a mount that forks share.

use std::path::Path;
use std::sync::Arc;

use super::{WORKSPACES, WorkspaceSpec};
use crate::backends::layered::LayeredWorkspace;
use crate::backends::{BackendError, HostOptions, Workspace};
use crate::engine::id::SessionId;

impl WorkspaceSpec {
    /// The name that stands for the host with files in a mount.
    #[doc(hidden)]
    pub const MOUNT: &str = "mount";

    /// Returns true if its files are in a mount that forks share.
    #[doc(hidden)]
    pub fn is_in_mount(&self) -> bool {
        matches!(self, Self::Host(HostOptions { mount: true, .. }))
    }

    /// Returns true if a fork of an open workspace can share its files instead of writing them from the journal.
    #[doc(hidden)]
    pub fn shares_files(&self) -> bool {
        !matches!(self, Self::Host(HostOptions { mount: false, .. }) | Self::Memory | Self::Mock(_))
    }

    /// Puts its files in a mount. Fails for another backend than the host.
    #[doc(hidden)]
    pub fn in_mount(mut self) -> Result<Self, BackendError> {
        let backend = self.backend_name();
        match &mut self {
            Self::Host(options) => options.mount = true,
            _ => {
                let reason = "only a session on the host can be forked into a mount".to_owned();
                return Err(BackendError { backend, reason });
            }
        }
        Ok(self)
    }

    pub(super) fn check_mount(&self) -> Result<(), String> {
        match self {
            Self::Host(HostOptions { mount: true, directory, gitignore, .. }) if directory.is_some() || *gitignore => {
                Err("mount needs a new directory; leave out directory and gitignore".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Unmounts the files of workspaces that no process has open, and removes layers that nothing needs.
    pub fn sweep_mounts(home: &Path) -> Result<(), BackendError> {
        let swept = LayeredWorkspace::sweep(&home.join(WORKSPACES));
        swept.map_err(|error| BackendError { backend: "host", reason: error.to_string() })
    }

    /// Opens the empty copy of a session's files that its forks in mounts share.
    #[doc(hidden)]
    pub fn open_base(session: SessionId, home: &Path) -> Result<Arc<dyn Workspace>, BackendError> {
        Ok(Arc::new(LayeredWorkspace::open_base(&home.join(WORKSPACES), session)?))
    }
}
