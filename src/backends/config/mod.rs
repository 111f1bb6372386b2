//! The definition of a session's workspace, as recorded with the session.

mod given_directory;
mod in_mount;
mod network;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::command_options::CommandOptions;
use super::containers::{EngineKind, PodmanOptions};
use super::disk::{KeptIndex, entries_in, make_private, overlap, remove_path};
use super::host::{HostOptions, HostWorkspace};
use super::layered::LayeredWorkspace;
use super::memory::MemoryWorkspace;
use super::mock::{MockAnswer, MockWorkspace};
use super::podman;
use super::{BackendError, ProgressWatch, UnusableDirectory, Workspace};
use crate::engine::event::SessionStarted;
use crate::engine::id::SessionId;

/// The parent directory of all workspaces without a given directory.
const WORKSPACES: &str = "workspaces";
/// The stat index of a session's directory, next to its files if they are here.
const INDEX: &str = "index";
/// The minimum of a container's processors: the kernel's resolution.
const CPUS_MIN: f64 = 0.01;

/// The definition of a session's workspace, recorded at its start, so that a resuming process opens the same one.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{WorkspaceSpec, backends::HostOptions, event::SessionStarted};
/// let spec = WorkspaceSpec::Host(HostOptions::default());
/// assert_eq!(spec.backend_name(), "host");
/// assert_eq!(WorkspaceSpec::parse("memory", &serde_json::Value::Null)?, WorkspaceSpec::Memory);
/// # Ok::<(), foldspace::backends::BackendError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one for each open workspace")]
pub enum WorkspaceSpec {
    /// The files are only in the journal, and commands can't run.
    #[default]
    Memory,
    /// A directory of this machine; not sandboxed.
    Host(HostOptions),
    /// A container of the engine in its options.
    Podman(PodmanOptions),
    /// Commands are answered from a list.
    Mock(MockOptions),
}

/// The answers of a mock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockOptions {
    /// The answers; the first match is used.
    #[serde(default)]
    pub answers: Vec<MockRule>,
    /// Options of all its commands; variables have no effect.
    #[serde(skip)]
    pub commands: CommandOptions,
}

/// An answer for commands that match a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct MockRule {
    /// A glob over the command's text; `*` matches anything.
    pub command: String,
    /// The mock's answer.
    #[serde(flatten)]
    pub answer: MockAnswer,
}

impl TryFrom<Map<String, Value>> for MockRule {
    type Error = serde_json::Error;

    /// Rejects unknown fields, which serde can't do with a flattened field.
    fn try_from(mut fields: Map<String, Value>) -> Result<Self, Self::Error> {
        let command = fields.remove("command").ok_or_else(|| Self::Error::missing_field("command"))?;
        Ok(Self { command: serde_json::from_value(command)?, answer: serde_json::from_value(fields.into())? })
    }
}

impl WorkspaceSpec {
    /// Returns the backend's name.
    pub fn backend_name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Host(_) => "host",
            Self::Podman(options) => options.engine.name(),
            Self::Mock(_) => "mock",
        }
    }

    /// Returns the options of all its commands; `None` if nothing can run.
    pub fn commands(&self) -> Option<&CommandOptions> {
        match self {
            Self::Memory => None,
            Self::Host(options) => Some(&options.commands),
            Self::Podman(options) => Some(&options.commands),
            Self::Mock(options) => Some(&options.commands),
        }
    }

    #[doc(hidden)]
    pub fn commands_mut(&mut self) -> Option<&mut CommandOptions> {
        match self {
            Self::Memory => None,
            Self::Host(options) => Some(&mut options.commands),
            Self::Podman(options) => Some(&mut options.commands),
            Self::Mock(options) => Some(&mut options.commands),
        }
    }

    /// Returns the options to be recorded. Variables appear by their digests, unless their values may be recorded.
    pub fn options(&self) -> Value {
        self.options_as(false)
    }

    /// Returns the options with the values of variables, for a program that opens the same workspace.
    pub fn options_with_values(&self) -> Value {
        self.options_as(true)
    }

    fn options_as(&self, with_values: bool) -> Value {
        let options = match self {
            Self::Memory => return Value::Null,
            Self::Host(options) => serde_json::to_value(options),
            Self::Podman(options) => serde_json::to_value(options),
            Self::Mock(options) => serde_json::to_value(options),
        };
        // Plain structs of texts, bytes and numbers always serialize.
        let mut options = options.unwrap_or_default();
        if let Some(commands) = self.commands() {
            commands.put(&mut options, with_values);
        }
        options
    }

    /// Loads the stored values of a session's variables, which its forks and copies need.
    #[must_use]
    pub fn with_values_of(mut self, session: SessionId, home: &Path) -> Self {
        if let Some(commands) = self.commands_mut() {
            commands.take_values(&home.join(WORKSPACES).join(session.to_string()));
        }
        self
    }

    /// Stores the values of variables that are not recorded in a file that only its owner may read.
    pub fn keep_values(&self, session: SessionId, home: &Path) -> Result<(), BackendError> {
        let directory = home.join(WORKSPACES).join(session.to_string());
        let kept = self.commands().map_or(Ok(()), |commands| commands.keep_values(&directory));
        let reason = |error| format!("failed to store the environment in {}: {error}", directory.display());
        kept.map_err(|error| BackendError { backend: self.backend_name(), reason: reason(error) })
    }

    /// Parses recorded options. Fails for an unknown backend, and for options that are invalid or out of range.
    pub fn parse(backend: &str, options: &Value) -> Result<Self, BackendError> {
        let mut options = if options.is_null() { Value::Object(Default::default()) } else { options.clone() };
        let wrong =
            |backend| move |error: serde_json::Error| BackendError { backend, reason: format!("its options: {error}") };
        let commands = CommandOptions::take(&mut options)
            .map_err(|error| BackendError { backend: "requested", reason: format!("its options: {error}") })?;
        let container = |engine: EngineKind, options| {
            let read = serde_json::from_value(options).map_err(wrong(engine.name()));
            read.map(|options| Self::Podman(PodmanOptions { engine, ..options }))
        };
        let mut spec = match backend {
            "memory" if commands != CommandOptions::default() => Err(BackendError {
                backend: "memory",
                reason: "its options are for commands, which it does not run; choose another backend".to_owned(),
            }),
            "memory" => Ok(Self::Memory),
            "host" => serde_json::from_value(options).map(Self::Host).map_err(wrong("host")),
            "podman" => container(EngineKind::Podman, options),
            "docker" => container(EngineKind::Docker, options),
            "mock" => serde_json::from_value(options).map(Self::Mock).map_err(wrong("mock")),
            other => {
                let reason = format!("unknown backend {other:?}; use memory, host, podman, docker or mock");
                Err(BackendError { backend: "requested", reason })
            }
        }?;
        if let Some(own) = spec.commands_mut() {
            *own = commands;
        }
        spec.check()?;
        Ok(spec)
    }

    /// Parses the request of a new session: a missing image comes from the environment, `container` stands for the
    /// available engine, and `mount` for the host with files in a mount.
    #[doc(hidden)]
    pub fn asked_for(backend: &str, options: &Value) -> Result<Self, BackendError> {
        let own = match backend {
            "container" => podman::find_engine(options["connection"].as_str())?.name(),
            Self::MOUNT => "host",
            backend => backend,
        };
        let mut spec = Self::parse(own, options)?;
        if let Self::Host(host) = &mut spec {
            host.mount |= backend == Self::MOUNT;
            spec.check()?;
        }
        if let Some(commands) = spec.commands()
            && commands.variables().count() < commands.environment.len()
        {
            let reason = "its options: environment: give the text of each variable".to_owned();
            return Err(BackendError { backend: spec.backend_name(), reason });
        }
        if let Self::Podman(podman) = &mut spec
            && options.get("image").is_none()
        {
            podman.image = PodmanOptions::usual(podman.engine, podman.connection.as_deref()).image;
        }
        Ok(spec)
    }

    /// Checks the options. An engine would treat a value outside of these ranges as no limit.
    fn check(&self) -> Result<(), BackendError> {
        let wrong =
            |what: String| BackendError { backend: self.backend_name(), reason: format!("its options: {what}") };
        self.commands().map_or(Ok(()), CommandOptions::check).map_err(wrong)?;
        self.check_mount().map_err(wrong)?;
        let Self::Podman(options) = self else { return Ok(()) };
        check_prefix(&options.name_prefix).map_err(wrong)?;
        if options.copy_on_write && options.directory.is_none() {
            return Err(wrong("copy_on_write needs a directory; add one".to_owned()));
        }
        if let Some(place) = &options.also_at {
            check_also_at(place, options.own_directory().is_some()).map_err(wrong)?;
        }
        self.check_masks().map_err(wrong)?;
        if options.public_ports.contains(&0) {
            return Err(wrong("public_ports has 0; a port is from 1 to 65535".to_owned()));
        }
        if options.writable_root && options.engine == EngineKind::Docker {
            let why = "writable_root needs a user namespace per container, which Docker lacks; use podman";
            return Err(wrong(why.to_owned()));
        }
        let cpus = options.cpus.is_finite() && options.cpus >= CPUS_MIN;
        let ranges = [
            (cpus, "cpus", "0.01"),
            (options.memory_bytes > 0, "memory_bytes", "1"),
            (options.pids > 0, "pids", "1"),
            (options.tmp_bytes > 0, "tmp_bytes", "1"),
        ];
        match ranges.into_iter().find(|(is_right, ..)| !is_right) {
            None => Ok(()),
            Some((_, name, least)) => Err(wrong(format!("{name} must be a number of at least {least}"))),
        }
    }

    /// Returns the definition for a fork: the same, but without a given directory, which only this session uses.
    ///
    /// ```
    /// # use foldspace_backends as foldspace;
    /// use foldspace::{WorkspaceSpec, backends::HostOptions};
    /// let given = WorkspaceSpec::Host(HostOptions { directory: Some("/srv/project".into()), ..Default::default() });
    /// assert_eq!(given.forked(), WorkspaceSpec::Host(HostOptions::default()));
    /// ```
    pub fn forked(&self) -> Self {
        match self {
            Self::Host(HostOptions { commands, mount, .. }) => {
                Self::Host(HostOptions { commands: commands.clone(), mount: *mount, ..HostOptions::default() })
            }
            Self::Podman(options) => {
                Self::Podman(PodmanOptions { directory: None, copy_on_write: false, ..options.clone() })
            }
            Self::Memory | Self::Mock(_) => self.clone(),
        }
    }

    /// Returns the user's directory that the workspace works in.
    pub fn given_directory(&self) -> Option<&Path> {
        match self {
            Self::Host(options) => options.directory.as_deref(),
            Self::Podman(options) => options.own_directory(),
            Self::Memory | Self::Mock(_) => None,
        }
    }

    /// Returns the user's directory of a session with this first event.
    #[doc(hidden)]
    pub fn directory_of(started: Option<&SessionStarted>) -> Option<PathBuf> {
        Some(Self::of_session(started?).ok()?.given_directory()?.to_owned())
    }

    /// Returns the globs of generated files of a session with this first event.
    #[doc(hidden)]
    pub fn generated_of(started: Option<&SessionStarted>) -> Vec<String> {
        let spec = started.and_then(|started| Self::of_session(started).ok());
        spec.as_ref().and_then(Self::commands).map(|commands| commands.generated.clone()).unwrap_or_default()
    }

    /// Returns the user's directory that the workspace works in, or starts with a copy of.
    pub fn named_directory(&self) -> Option<&Path> {
        match self {
            Self::Host(HostOptions { directory, .. }) | Self::Podman(PodmanOptions { directory, .. }) => {
                directory.as_deref()
            }
            Self::Memory | Self::Mock(_) => None,
        }
    }

    /// Returns true if commands can run there.
    pub fn runs_commands(&self) -> bool {
        !matches!(self, Self::Memory | Self::Host(HostOptions { files_only: true, .. }))
    }

    /// Returns true for a directory where other programs work and the session only records the changes.
    pub fn only_watches(&self) -> bool {
        matches!(self, Self::Host(HostOptions { files_only: true, gitignore: true, .. }))
    }

    #[doc(hidden)]
    pub fn named_directory_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Host(HostOptions { directory, .. }) | Self::Podman(PodmanOptions { directory, .. }) => {
                directory.as_mut()
            }
            Self::Memory | Self::Mock(_) => None,
        }
    }

    /// Lists the parts of its machine that it can access, for a person: directories, engines, networks.
    pub fn reaches(&self) -> Vec<String> {
        let mut reached: Vec<String> =
            self.named_directory().map(|given| format!("the directory {}", given.display())).into_iter().collect();
        match self {
            Self::Memory | Self::Mock(_) | Self::Host(_) => {}
            Self::Podman(options) => {
                reached.extend(options.connection.iter().map(|url| format!("the engine at {url}")));
                if options.network.is_on() {
                    reached.push("the network".to_owned());
                }
                if !options.public_ports.is_empty() {
                    reached.push("ports without a token".to_owned());
                }
                if options.writable_root {
                    reached.push("root of a user namespace".to_owned());
                }
                if options.pull {
                    reached.push(format!("pulling the image {}", options.image));
                }
            }
        }
        reached
    }

    /// Returns the workspace in a session's first event.
    pub fn of_session(started: &SessionStarted) -> Result<Self, BackendError> {
        Self::parse(&started.backend, &started.options)
    }

    /// Checks that the engine of a new session's container responds and has the image.
    ///
    /// # Errors
    /// [`BackendError`] with the reason. Other backends need no engine.
    pub fn check_engine(&self) -> Result<(), BackendError> {
        match self {
            Self::Podman(options) => podman::check_engine(options),
            Self::Memory | Self::Host(_) | Self::Mock(_) => Ok(()),
        }
    }

    /// Opens the workspace of a session. A directory that was not given is created below `home`; nothing runs yet.
    pub fn open(&self, session: SessionId, home: &Path) -> Result<Arc<dyn Workspace>, BackendError> {
        self.check()?;
        let refused =
            |error: UnusableDirectory| BackendError { backend: self.backend_name(), reason: error.to_string() };
        self.check_directory(home).map_err(refused)?;
        self.keep_values(session, home)?;
        let spec = self.clone().with_values_of(session, home);
        let kept = || KeptIndex::at(home.join(WORKSPACES).join(session.to_string()).join(INDEX));
        Ok(match &spec {
            Self::Memory => Arc::new(MemoryWorkspace),
            Self::Host(options) if options.mount => {
                Arc::new(LayeredWorkspace::open(&home.join(WORKSPACES), session, options)?)
            }
            Self::Host(options) => {
                let directory = match &options.directory {
                    Some(directory) => directory.clone(),
                    None => Self::own_directory(session, home)?,
                };
                Arc::new(HostWorkspace::open_kept(&directory, options, Some(kept()))?)
            }
            Self::Podman(options) => podman::open(session, options, home, kept())?,
            Self::Mock(options) => {
                let mock = MockWorkspace::with_options(options.commands.clone());
                let answers = &mut options.answers.iter();
                Arc::new(answers.try_fold(mock, |mock, rule| mock.answering(&rule.command, rule.answer.clone()))?)
            }
        })
    }

    /// Opens the workspace of a session and fetches the image of its commands, with progress reports to `progress`.
    /// Call it before a tool call; otherwise the fetch counts toward the call's time limit. A failed fetch is not an
    /// error: the files are available, and commands report the cause.
    pub fn open_ready(
        &self,
        session: SessionId,
        home: &Path,
        progress: Option<ProgressWatch>,
    ) -> Result<Arc<dyn Workspace>, BackendError> {
        let workspace = self.open(session, home)?;
        if let Some(progress) = progress {
            workspace.watch_progress(progress);
        }
        let may_pull = matches!(self, Self::Podman(options) if options.pull);
        if let (true, Some(container)) = (may_pull, workspace.container()) {
            drop(container.fetch());
        }
        Ok(workspace)
    }

    /// Removes the data of a removed session's workspace from this machine, except for a given directory.
    pub fn remove(&self, session: SessionId, home: &Path) -> Result<(), BackendError> {
        let own = || remove_path(&home.join(WORKSPACES).join(session.to_string())).map_err(|error| error.to_string());
        let removed = match self {
            // Other sessions may share some of the files.
            Self::Podman(_) => podman::remove_files(session).map_err(|error| error.to_string()).and_then(|()| own()),
            Self::Host(HostOptions { mount: true, .. }) => {
                let layers = LayeredWorkspace::remove(&home.join(WORKSPACES), session);
                layers.map_err(|error| error.to_string()).and_then(|()| own())
            }
            Self::Host(_) => {
                let base = LayeredWorkspace::remove_base(&home.join(WORKSPACES), session);
                // A given directory stays.
                base.map_err(|error| error.to_string()).and_then(|()| own())
            }
            Self::Memory | Self::Mock(_) => own(),
        };
        removed.map_err(|reason| BackendError { backend: self.backend_name(), reason })
    }

    /// Lists the directories below `home` with files of removed sessions.
    pub fn abandoned(home: &Path, is_there: impl Fn(SessionId) -> bool) -> Result<Vec<PathBuf>, BackendError> {
        let place = home.join(WORKSPACES);
        let failed =
            |error| BackendError { backend: "host", reason: format!("can't read {}: {error}", place.display()) };
        let mut found = Vec::new();
        for entry in entries_in(&place).map_err(failed)? {
            let session = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if session.is_some_and(|session| !is_there(session)) {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    fn own_directory(session: SessionId, home: &Path) -> Result<PathBuf, BackendError> {
        let all = home.join(WORKSPACES);
        let failed = |error: std::io::Error| BackendError { backend: "host", reason: error.to_string() };
        make_private(&all).map_err(failed)?;
        Ok(Self::directory(session, home))
    }

    /// Returns the default directory of a session's files on this machine.
    pub fn directory(session: SessionId, home: &Path) -> PathBuf {
        home.join(WORKSPACES).join(session.to_string()).join("files")
    }
}

/// Checks a second path of the workspace, which must not overlap the engine's own mounts.
fn check_also_at(place: &str, is_directory: bool) -> Result<(), String> {
    let path = Path::new(place);
    let taken = ["/workspace", "/run", "/tmp", "/proc", "/sys", "/dev"];
    let is_plain = path.components().collect::<PathBuf>().as_os_str() == place && !place.contains("/..");
    if !path.is_absolute() || path.parent().is_none() || !is_plain {
        return Err(format!("also_at is {place:?}; give an absolute path, such as /app"));
    }
    if let Some(taken) = taken.iter().find(|taken| overlap(path, Path::new(taken))) {
        return Err(format!("also_at is {place}, but {taken} is the container's own; give another place"));
    }
    match is_directory {
        true => Err("also_at is not for a directory of yours; remove one of the two".to_owned()),
        false => Ok(()),
    }
}

/// Checks a name prefix by the engines' rules for names.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if prefix.len() <= 60 && prefix.starts_with(|first: char| first.is_ascii_alphanumeric()) && prefix.bytes().all(fits)
    {
        return Ok(());
    }
    Err("name_prefix must have 1 to 60 letters, digits, `_`, `.` and `-`, and begin with a letter or a digit"
        .to_owned())
}

#[cfg(test)]
mod tests;
