//! A session's sandbox: its files are available immediately, its container on the first command.

use std::path::Path;
use std::sync::Arc;

use super::container::SessionContainer;
use super::container_plan::{WORKSPACE, workspace_of};
use super::engine::Engine;
use super::files;
use super::launch;
use super::own_directory;
use super::owners;
use super::paths::Paths;
use super::warm;
use crate::backends::command_options::CommandOptions;
use crate::backends::commands::RunnerShell;
use crate::backends::containers::PodmanOptions;
use crate::backends::disk::populate_marker::PopulateMarker;
use crate::backends::disk::{KeptIndex, StagingDir};
use crate::backends::shell::{DEFAULT_TIMEOUT, Shell, ShellProperties};
use crate::backends::{BackendError, ChangeDetector, Container, FileChange, MachineNews, ProgressWatch, Workspace};
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;

/// A separate container for a session, with the session's files at `/workspace`.
///
/// The first command creates it. It runs as `nobody` without capabilities, with a read-only root and no network by
/// default, and within limits. It is stopped when idle, and removed when the workspace closes or drops. The files stay.
pub struct PodmanSandbox {
    container: Arc<SessionContainer>,
    shell: Arc<RunnerShell<SessionContainer>>,
    marker: PopulateMarker,
    /// Next to a user's directory, and removed with the workspace.
    _aside: Option<StagingDir>,
}

/// Checks that the engine responds and has the image, unless it may pull the image.
pub(crate) fn check_engine(options: &PodmanOptions) -> Result<(), BackendError> {
    if warm::is_kept(options) {
        return Ok(());
    }
    let checked = Engine::of_this_user(options).and_then(|engine| match options.pull {
        true => Ok(()),
        false => launch::check_image(&engine, &options.image),
    });
    checked.map_err(|error| BackendError { backend: options.engine.name(), reason: error.to_string() })
}

/// Opens the workspace of a session of the store in that directory. `kept` stores the scan results of a user's
/// directory.
pub(crate) fn open(
    session: SessionId,
    options: &PodmanOptions,
    store: &Path,
    kept: KeptIndex,
) -> Result<Arc<dyn Workspace>, BackendError> {
    Ok(Arc::new(PodmanSandbox::open_in(session, options, Some((store, kept)))?))
}

impl PodmanSandbox {
    /// Opens the files of a session, without making a container or querying an engine.
    pub fn open(session: SessionId, options: &PodmanOptions) -> Result<Self, BackendError> {
        Self::open_in(session, options, None)
    }

    /// Opens the files for the store in that directory. Its `gc` removes them when the session is gone.
    fn open_in(
        session: SessionId,
        options: &PodmanOptions,
        store: Option<(&Path, KeptIndex)>,
    ) -> Result<Self, BackendError> {
        let failed = |error: std::io::Error| BackendError { backend: options.engine.name(), reason: error.to_string() };
        let mut paths = Paths::prepare(session).map_err(failed)?;
        let (store, kept) = store.unzip();
        if let Some(store) = store {
            owners::note(&paths.overlay, store);
        }
        let (files, marker, aside) = match options.own_directory() {
            None => {
                let (files, marker) = files::open(&paths, options)?;
                (files, marker, None)
            }
            Some(directory) => {
                let opened = own_directory::open(directory, options, kept)?;
                paths.files = opened.directory;
                (opened.files, opened.marker, Some(opened.aside))
            }
        };
        let container = SessionContainer::new(session, options.clone(), paths, files);
        let properties = ShellProperties {
            backend_name: options.engine.name(),
            sandboxed: true,
            network_enabled: options.network.is_on(),
            default_timeout: DEFAULT_TIMEOUT,
            in_container: true,
        };
        let shell = Arc::new(RunnerShell::new(Arc::clone(&container), properties));
        Ok(Self { container, shell, marker, _aside: aside })
    }

    /// Removes the files, except layers that other sessions share. The container must have been stopped.
    pub fn remove_files(self) -> Result<(), BackendError> {
        let (overlay, backend) = (self.container.paths.overlay.clone(), self.backend_name());
        drop(self);
        overlay.remove().map_err(|error| BackendError { backend, reason: error.to_string() })
    }
}

impl Workspace for PodmanSandbox {
    fn backend_name(&self) -> &'static str {
        self.container.options.engine.name()
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.container.files.apply(changes)
    }

    fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.container.files.populate(changes)
    }

    fn join_names(&self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        self.container.join_names(names)
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        Some(Arc::clone(&self.shell) as Arc<dyn Shell>)
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        Some(&self.container.files)
    }

    fn marker(&self) -> Option<&PopulateMarker> {
        Some(&self.marker)
    }

    fn fork_to(&self, child: SessionId) -> Result<bool, BackendError> {
        if self.marker.is_blank() {
            return Ok(false);
        }
        let failed = |error: std::io::Error| BackendError { backend: self.backend_name(), reason: error.to_string() };
        self.container.share_files(child).map_err(failed)
    }

    fn news(&self) -> Vec<MachineNews> {
        self.container.news()
    }

    fn watch_machine(&self, watch: Arc<dyn Fn() + Send + Sync>) {
        self.container.watch_machine(watch);
    }

    fn watch_progress(&self, watch: ProgressWatch) {
        self.container.watch_progress(watch);
    }

    fn container(&self) -> Option<Arc<dyn Container>> {
        Some(Arc::clone(&self.container) as Arc<dyn Container>)
    }

    fn command_options(&self) -> CommandOptions {
        self.container.options.commands.clone()
    }

    fn root(&self) -> Option<String> {
        Some(workspace_of(&self.container.options).to_owned())
    }

    fn description(&self) -> String {
        let network = &self.container.options.network;
        let rights = match self.container.options.writable_root {
            true => "Commands run as root, and may install packages; changes outside of /workspace are temporary",
            false => "Commands have no privileges",
        };
        let also = self.container.options.also_at.as_ref();
        let also = also.map(|_| format!(" The workspace is also at {WORKSPACE}.")).unwrap_or_default();
        format!("Commands run in an isolated Linux container. They {network}. {rights}.{also}")
    }

    fn close(&self) {
        self.container.tear_down("closed");
    }
}

impl Drop for PodmanSandbox {
    fn drop(&mut self) {
        let container = Arc::clone(&self.container);
        // An engine can't be called from within an async task.
        let torn_down = std::thread::Builder::new().spawn(move || container.tear_down("closed"));
        if let Ok(thread) = torn_down {
            drop(thread.join());
        }
    }
}

crate::engine::debug_by!(PodmanSandbox, |sandbox| name: sandbox.container.name());
