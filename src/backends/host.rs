//! The host backend: a plain directory of this machine, and commands that run unsandboxed on it.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::command_options::CommandOptions;
use super::commands::{CommandHost, RunnerShell};
use super::disk::locked::OnDisk;
use super::disk::populate_marker::PopulateMarker;
use super::disk::{Anchor, IgnoreRules, KeptIndex, OpenedDirectory, PlainOptions, RecordedBeyond, StagingDir, umask};
use super::runner::Runner;
use super::running_commands::RunningCommands;
use super::shell::{DEFAULT_TIMEOUT, ShellProperties};
use super::{BackendError, ChangeDetector, FileChange, Shell, ShellError, Workspace};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

pub(super) const NAME: &str = "host";

/// The options of a host workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostOptions {
    /// Its directory; by default one of the session's own.
    #[serde(default, with = "recorded_path")]
    pub directory: Option<PathBuf>,
    /// True to only read and write files; no command runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_only: bool,
    /// True to leave out git's own files and files that git ignores; without a repository, the contents of
    /// directories such as `node_modules`. Files in git are then recorded by the ids of their blobs, and files that
    /// look like secrets by their digests only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gitignore: bool,
    /// Paths below the directory that are always recorded, with everything below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<EntryPath>,
    /// True to record small files that git ignores, too, except in build and dependency directories.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_ignored: bool,
    /// True to store the contents of files that look like secrets, on this machine only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_secrets: bool,
    /// True for files in an overlay mount: forks share them, and a scan visits only changed files. Needs root, Linux
    /// 6.15 or later, and no `directory`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount: bool,
    /// True for a directory that a session has already recorded. If it is empty, all its files were removed.
    #[serde(skip)]
    pub is_taken_up: bool,
    /// Options of all its commands.
    #[serde(skip)]
    pub commands: CommandOptions,
}

/// A path as recorded and sent: its text, or its bytes if it is not valid UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedPath", into = "RecordedPath")]
pub struct HostPath(pub PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<RecordedPath> for HostPath {
    fn from(recorded: RecordedPath) -> Self {
        Self(match recorded {
            RecordedPath::Text(text) => PathBuf::from(text),
            RecordedPath::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}

impl From<HostPath> for RecordedPath {
    fn from(HostPath(path): HostPath) -> Self {
        match path.into_os_string().into_string() {
            Ok(text) => Self::Text(text),
            Err(path) => Self::Bytes(path.into_vec()),
        }
    }
}

pub(super) mod recorded_path {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::HostPath;

    pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.clone().map(HostPath).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<HostPath>::deserialize(deserializer)?.map(|HostPath(path)| path))
    }
}

/// A directory of this machine. Its commands run as this program's user, with all that user's access; only their
/// working directory is checked. For trusted agents, tests, and machines that are themselves sandboxes.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{HostWorkspace, Workspace, backends::{HostOptions, ShellCommand, unwatched}};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let directory = tempfile::tempdir()?;
/// let workspace = HostWorkspace::open(directory.path(), &HostOptions::default())?;
/// let shell = workspace.unrecorded_shell().unwrap();
/// let echo = ShellCommand::shell("echo hello > a.txt; cat a.txt");
/// let result = runtime.block_on(shell.execute(echo, unwatched(), Default::default()))?;
/// assert_eq!((result.exit_code, &result.stdout.kept[..]), (0, &b"hello\n"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostWorkspace {
    disk: OnDisk,
    place: Arc<HostPlace>,
    shell: Option<Arc<RunnerShell<HostPlace>>>,
    marker: PopulateMarker,
    directory: PathBuf,
    /// The directory where entries are staged and temporarily stored; removed with the workspace.
    _aside: StagingDir,
}

pub(super) struct HostPlace {
    directory: PathBuf,
    options: CommandOptions,
    anchor: Option<Anchor>,
    running: Mutex<HostCommand>,
    in_flight: Arc<RunningCommands>,
    /// The reason why no command can run any more.
    ended: OnceLock<String>,
    /// Decides before each command if the directory has the workspace's files.
    has_files: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl HostPlace {
    pub(super) fn new(directory: PathBuf, options: CommandOptions, anchor: Option<Anchor>) -> Self {
        let (running, in_flight, ended) = (Mutex::default(), Arc::default(), OnceLock::new());
        Self { directory, options, anchor, running, in_flight, ended, has_files: OnceLock::new() }
    }

    /// Refuses commands while `has_files` returns false.
    pub(super) fn check_files(&self, has_files: impl Fn() -> bool + Send + Sync + 'static) {
        // It is set once, when the workspace opens.
        let _ = self.has_files.set(Box::new(has_files));
    }

    /// Returns true if no command runs.
    pub(super) fn is_unused(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn close(&self) {
        *lock(&self.running) = HostCommand::default();
    }

    /// Refuses further commands.
    pub(super) fn end(&self, reason: String) {
        // Only the first reason matters.
        let _ = self.ended.set(reason);
        self.close();
    }
}

pub(super) fn host_shell(place: Arc<HostPlace>) -> RunnerShell<HostPlace> {
    let properties = ShellProperties {
        backend_name: NAME,
        sandboxed: false,
        network_enabled: true,
        default_timeout: DEFAULT_TIMEOUT,
        in_container: false,
    };
    RunnerShell::new(place, properties)
}

#[derive(Default)]
struct HostCommand {
    runner: Option<Runner>,
    /// Created for the first script.
    scripts: Option<TempDir>,
}

impl HostWorkspace {
    /// Opens a directory, created if missing. While it is open, foldspace uses `.foldspace-NAME` next to it, or
    /// `.foldspace` within it if that is not possible.
    ///
    /// If the directory is replaced, all operations fail until it is opened again.
    pub fn open(directory: &Path, options: &HostOptions) -> Result<Self, BackendError> {
        Self::open_kept(directory, options, None)
    }

    /// Opens it with a file that stores scan results for later processes.
    pub(crate) fn open_kept(
        directory: &Path,
        asked: &HostOptions,
        kept: Option<KeptIndex>,
    ) -> Result<Self, BackendError> {
        if asked.is_taken_up {
            check_unlinked(directory)?;
        }
        let has_shell = !asked.files_only;
        let beyond = || RecordedBeyond {
            included: asked.include.clone(),
            ignored: asked.keep_ignored,
            secrets: asked.keep_secrets,
        };
        let rules = asked.gitignore.then(|| IgnoreRules::of(directory, beyond()));
        let options = PlainOptions { kept, rules: rules.map(Arc::new), ..PlainOptions::default() };
        let OpenedDirectory { directory, files, marker, anchor, aside } =
            OpenedDirectory::open(NAME, directory, options)?;
        if asked.is_taken_up && marker.is_new() {
            marker.filled()?;
        }
        let place = Arc::new(HostPlace::new(directory.clone(), asked.commands.clone(), anchor));
        let shell = has_shell.then(|| Arc::new(host_shell(Arc::clone(&place))));
        Ok(Self { disk: files, place, shell, marker, directory, _aside: aside })
    }
}

/// Checks that a recorded path without links still has no links: a link would lead to another directory.
fn check_unlinked(directory: &Path) -> Result<(), BackendError> {
    let Some(link) = directory.ancestors().find(|above| above.is_symlink()) else { return Ok(()) };
    let to = link.read_link().unwrap_or_default();
    let reason = format!(
        "{} is a link to {} now, not the directory that was attached; remove the link and put the directory back, or \
         attach where it is now",
        link.display(),
        to.display()
    );
    Err(BackendError { backend: NAME, reason })
}

impl CommandHost for HostPlace {
    fn runner(&self) -> Result<Runner, ShellError> {
        if let Some(reason) = self.ended.get() {
            return Err(unavailable(reason));
        }
        if self.has_files.get().is_some_and(|has_files| !has_files()) {
            let shown = self.directory.display();
            let what = format!("its files are not mounted at {shown} any more, or something else is mounted over them");
            return Err(unavailable(&format!("{what}; unmount that, or close the session and open it again")));
        }
        self.anchor.as_ref().map_or(Ok(()), Anchor::check).map_err(|error| unavailable(&error))?;
        let mut running = lock(&self.running);
        if let Some(alive) = running.runner.as_ref().filter(|runner| runner.is_alive()) {
            return Ok(alive.clone());
        }
        let started = Runner::spawn_on_host(&self.directory).map_err(|error| unavailable(&error))?;
        running.runner = Some(started.clone());
        Ok(started)
    }

    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError> {
        let mut running = lock(&self.running);
        let directory = match running.scripts.take() {
            Some(directory) => directory,
            // Private, because a command may have secrets.
            None => tempfile::Builder::new()
                .prefix("foldspace-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .map_err(|error| unavailable(&error))?,
        };
        let path = running.scripts.insert(directory).path().to_owned();
        Ok((path.clone(), path))
    }

    fn options(&self) -> &CommandOptions {
        &self.options
    }

    fn root(&self) -> String {
        self.directory.to_string_lossy().into_owned()
    }

    fn in_flight(&self) -> &Arc<RunningCommands> {
        &self.in_flight
    }

    fn lost(&self, _: &Runner) {
        let mut running = lock(&self.running);
        // Another command may already have started a new runner.
        running.runner = running.runner.take().filter(Runner::is_alive);
    }
}

fn unavailable(error: &dyn std::fmt::Display) -> ShellError {
    ShellError::Unavailable { backend: NAME, reason: error.to_string() }
}

impl Workspace for HostWorkspace {
    fn backend_name(&self) -> &'static str {
        NAME
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.disk.apply(changes)
    }

    fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.disk.populate(changes)
    }

    fn umask(&self) -> u32 {
        umask()
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        self.shell.clone().map(|shell| shell as Arc<dyn Shell>)
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        Some(&self.disk)
    }

    fn marker(&self) -> Option<&PopulateMarker> {
        Some(&self.marker)
    }

    fn command_options(&self) -> CommandOptions {
        self.place.options.clone()
    }

    fn is_in_place(&self) -> bool {
        // With a shell, commands may have moved the directory, which the session records.
        self.shell.is_some() || self.place.anchor.as_ref().is_none_or(|anchor| anchor.check().is_ok())
    }

    fn root(&self) -> Option<String> {
        Some(self.directory.to_string_lossy().into_owned())
    }

    fn description(&self) -> String {
        let shown = self.directory.display();
        match self.shell {
            Some(_) => format!("Commands run in {shown} on the host itself. They are not sandboxed."),
            None => format!("The files are those of {shown} on the host. No command runs there."),
        }
    }

    fn close(&self) {
        self.place.close();
    }
}

crate::engine::debug_by!(HostWorkspace, |workspace| directory: workspace.directory);
