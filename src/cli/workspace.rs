//! The options for a session's workspace and its commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ValueEnum};
use foldspace::backends::{
    CommandOptions, EngineKind, HostOptions, MAX_TIMEOUT, MockOptions, MockRule, OverlayUse, PodmanOptions, find_engine,
};
use foldspace::event::Isolation;
use foldspace::store::MAX_AGENT_BYTES;
use foldspace::tools::{
    Asker, CaptureBudget, CommandPolicy, CommandTime, DenyRule, MAX_COMMAND_CHARS, PythonPlace, PythonRules, ShellRules,
};
use foldspace::{EntryPath, Session, WorkspaceSpec};
use indicatif::ProgressBar;

use super::approver::AtTerminal;
use super::command_args::{CommandArgs, NEW_COMMANDS};
use super::network_args::NetworkArgs;
use super::{Exit, Failure, Globals, data_directory, files, output, text};

const NEW_WORKSPACE: &str = "Workspace of a new session";
const COMMANDS: &str = "Commands";

/// The variable with the largest timeout that a call may set for its command, in seconds.
pub(super) const MAX_TIMEOUT_VARIABLE: &str = "FOLDSPACE_MAX_TIMEOUT";
/// The variable that answers every question about a command with yes.
pub(super) const AUTO_CONFIRM_VARIABLE: &str = "FOLDSPACE_AUTO_CONFIRM";

const MIB_MAX: u64 = 1 << 30;

pub(super) fn agent_name(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err("expected a name".to_owned()),
        1..=MAX_AGENT_BYTES => Ok(name.to_owned()),
        _ => Err(format!("an agent's name has at most {MAX_AGENT_BYTES} bytes")),
    }
}

/// Resolves the directory of an option.
pub(super) fn existing_directory(option: &str, directory: &Path) -> Result<PathBuf, Failure> {
    if !directory.is_dir() {
        let shown = text::one_line(&directory.display().to_string(), 300);
        return Err(Failure::missing(format!("{option}: {shown} is not a directory")));
    }
    directory.canonicalize().map_err(|error| Failure::io("open", directory.display(), &error))
}

pub(super) fn isolation() -> impl TypedValueParser<Value = Isolation> {
    let help = [
        ("shared", "The session itself, under another agent's name"),
        ("fork", "Its history and files, as of a position"),
        ("full", "Only its mounts, copied again"),
    ];
    let values = help.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "shared" => Isolation::Shared,
        "full" => Isolation::Full,
        _ => Isolation::Fork,
    })
}

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = NEW_WORKSPACE)]
pub(super) struct WorkspaceArgs {
    /// The place of its files and commands [default: memory, which runs no commands]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<BackendArg>,
    /// host, container: works in DIR itself, with its present files, instead of in a new directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// container: works in a copy of DIR, which stays unchanged; `foldspace apply` copies the changes back
    #[arg(long, requires = "dir")]
    copy_on_write: bool,
    /// host: leaves out .git and files in DIR that git ignores; without a repository node_modules, target and the like
    #[arg(long, requires = "dir")]
    gitignore: bool,
    /// host: records PATH below DIR, and everything in it, although git ignores it; may be given several times
    #[arg(long, value_name = "PATH", requires = "gitignore", value_parser = entry_path)]
    include_ignored: Vec<EntryPath>,
    /// container: the image
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// container: pulls the image if the engine does not have it
    #[arg(long)]
    pull: bool,
    /// container: MiB of memory
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=MIB_MAX))]
    memory: Option<u64>,
    /// container: processors
    #[arg(long, value_name = "N", value_parser = processors)]
    cpus: Option<f64>,
    /// container: processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..))]
    pids: Option<u32>,
    /// container: MiB of the memory file system at /tmp [default: 256]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MIB_MAX))]
    tmp: Option<u64>,
    /// container: stops the container after SECS without a call; 0 for never [default: 600]
    #[arg(long, value_name = "SECS", value_parser = whole_seconds)]
    idle_seconds: Option<u64>,
    /// container: removes the container SECS after its start, whatever runs in it; 0 for never [default: 0]
    #[arg(long, value_name = "SECS", value_parser = whole_seconds)]
    uptime_seconds: Option<u64>,
    /// container: the start of its name, which ends with the session's id [default: foldspace]
    #[arg(long, value_name = "NAME")]
    name_prefix: Option<String>,
    /// container: puts the files in an overlay; auto does so if the user can mount one [default: auto]
    #[arg(long, value_name = "WHEN", value_parser = ["auto", "never"])]
    overlay: Option<String>,
    /// container: also shows the workspace at PATH, such as /app, and hides the image's files there
    #[arg(long, value_name = "PATH")]
    also_at: Option<String>,
    /// podman: runs commands as root of a user namespace, free to change the container's whole file system; changes
    /// outside the workspace are neither recorded nor forked
    #[arg(long)]
    writable_root: bool,
    #[command(flatten)]
    network: NetworkArgs,
    /// container: the engine's address, such as unix:///run/podman/podman.sock
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
    /// mock: a JSON list of answers: [{"command": "make *", "stdout": "ok\n", "exit_code": 0}]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    answers: Option<PathBuf>,
    #[command(flatten)]
    commands: CommandArgs,
}

/// The backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// Only the journal has the files; no commands
    Memory,
    /// A directory on this machine; commands are not sandboxed
    Host,
    /// As host, in a mount that forks share; needs root
    Mount,
    /// A container of the first engine that works here, Podman before Docker
    Container,
    /// A Podman container
    Podman,
    /// A Docker container
    Docker,
    /// Answers to commands from a list
    Mock,
}

impl BackendArg {
    /// Returns the backend that stands for all backends with the same options.
    fn family(self) -> Self {
        match self {
            Self::Podman | Self::Docker => Self::Container,
            Self::Mount => Self::Host,
            other => other,
        }
    }
}

/// Parses the timeout of a typed command.
pub(super) fn command_seconds(text: &str) -> Result<f64, String> {
    Ok(most_time(text)?.most().as_secs_f64())
}

fn most_time(text: &str) -> Result<CommandTime, String> {
    let time = text.parse().ok().and_then(|seconds| CommandTime::up_to(seconds).ok());
    time.ok_or_else(|| "expected a number of seconds from 1 to 86400".to_owned())
}

fn processors(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(count) if count.is_finite() && (0.01..=1024.0).contains(&count) => Ok(count),
        _ => Err("expected a number of processors, such as 1 or 0.5".to_owned()),
    }
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected whole seconds, or 0 for never".to_owned())
}

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = COMMANDS)]
pub(super) struct RuleArgs {
    /// Allows a program, or a program with its first arguments; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    allow: Vec<String>,
    /// Denies a program, or a program with its first arguments, even if it is allowed; may be given several times
    #[arg(long, value_name = "PROGRAM", value_parser = DenyRule::words)]
    deny: Vec<DenyRule>,
    /// Answers every question about a command with yes, as FOLDSPACE_AUTO_CONFIRM=1 does; denied commands stay denied
    #[arg(short, long)]
    yes: bool,
    /// Limits the timeout that a call may set for its command, up to 86,400 [default: FOLDSPACE_MAX_TIMEOUT, else 600]
    #[arg(long, value_name = "SECS", value_parser = most_time)]
    max_timeout: Option<CommandTime>,
    /// Limits a tool's command to N characters, up to 131,072; execute_script takes longer texts [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=131_072))]
    command_chars: Option<u32>,
    /// Limits a text that write_file or edit_file takes to N characters, up to 33,554,432 [default: 48000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=33_554_432))]
    text_chars: Option<u32>,
    /// Starts the Docker daemon with CMD if a command on the host runs docker and no daemon answers
    #[arg(long, value_name = "CMD", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    start_docker: Option<String>,
    /// Runs the code of evaluate_python there [default: in the session's container; without one, in process]
    #[arg(long, value_name = "PLACE")]
    python: Option<PythonArg>,
    /// Limits code that runs in process to N characters, up to 48000 [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=48_000))]
    python_chars: Option<u32>,
    /// Stores at most N bytes of each file that a command wrote [default: 64 MiB]
    #[arg(long, value_name = "N")]
    keep_file_bytes: Option<u64>,
    /// Stores at most N bytes of all files that a call wrote [default: 256 MiB]
    #[arg(long, value_name = "N")]
    keep_step_bytes: Option<u64>,
}

/// Parses an option's path below a directory.
pub(super) fn entry_path(text: &str) -> Result<EntryPath, String> {
    let path = EntryPath::from_bytes(text.trim_start_matches("./").trim_end_matches('/').as_bytes());
    match path {
        Ok(path) if !path.is_root() => Ok(path),
        Ok(_) => Err("expected a path below the directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The places of Python code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PythonArg {
    /// In a process of foldspace, with a subset of Python
    InProcess,
    /// With python3, next to the session's commands
    Container,
}

/// Adapts the help of workspace options for commands that rerun calls. Short help has only a pointer to them.
pub(super) fn again(arg: Arg) -> Arg {
    let about_workspace = arg.get_help_heading() == Some(NEW_WORKSPACE);
    let about_commands = matches!(arg.get_help_heading(), Some(NEW_COMMANDS | COMMANDS));
    let arg = if about_workspace { arg.help_heading("Workspace of the calls") } else { arg };
    let arg = if about_workspace || about_commands { arg.hide_short_help(true) } else { arg };
    match arg.get_id().as_str() {
        "backend" => arg.help("The place of its files and commands [default: like the recorded session]"),
        "dir" | "copy_on_write" | "gitignore" | "include_ignored" => arg.hide(true),
        _ => arg,
    }
}

/// Adapts the help of `--backend` for commands whose sessions are on the host by default.
pub(super) fn on_host(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "backend" => arg.help("The place of its files and commands [default: host, this machine]"),
        _ => arg,
    }
}

/// Hides the options for questions and Python in commands without them.
pub(super) fn unasked(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "allow" | "yes" | "max_timeout" | "command_chars" | "text_chars" | "python" | "python_chars" => arg.hide(true),
        _ => arg,
    }
}

impl WorkspaceArgs {
    pub(super) fn names_image(&self) -> bool {
        self.image.is_some()
    }

    pub(super) fn spec(&self) -> Result<Option<WorkspaceSpec>, Failure> {
        let can_be_given =
            matches!(self.backend.map(BackendArg::family), Some(BackendArg::Host | BackendArg::Container));
        if self.dir.is_some() && !can_be_given {
            return Err(Failure::usage("--dir requires --backend host or container"));
        }
        for (backend, is_given, option) in self.given() {
            if is_given && self.backend.map(BackendArg::family) != Some(backend) {
                let name = format!("{backend:?}").to_lowercase();
                return Err(Failure::usage(format!("{option} requires --backend {name}")));
            }
        }
        if let (None | Some(BackendArg::Memory), Some(option)) = (self.backend, self.commands.given()) {
            let hint = "add --backend host or --backend container";
            return Err(Failure::usage(format!("{option} requires a backend that runs commands")).with_hint(hint));
        }
        let (directory, commands) = (self.directory()?, self.commands.options()?);
        let container = |engine| {
            let options = PodmanOptions {
                directory: directory.clone(),
                copy_on_write: self.copy_on_write,
                commands: commands.clone(),
                ..self.container(engine)?
            };
            Ok::<_, Failure>(Some(WorkspaceSpec::Podman(options)))
        };
        Ok(match self.backend {
            None => None,
            Some(BackendArg::Memory) => Some(WorkspaceSpec::Memory),
            Some(backend @ (BackendArg::Host | BackendArg::Mount)) => {
                let (gitignore, include) = (self.gitignore, self.include_ignored.clone());
                let mount = backend == BackendArg::Mount;
                let options = HostOptions { directory, gitignore, include, commands, mount, ..HostOptions::default() };
                Some(WorkspaceSpec::Host(options))
            }
            Some(BackendArg::Container) => container(find_engine(self.engine.as_deref())?)?,
            Some(BackendArg::Podman) => container(EngineKind::Podman)?,
            Some(BackendArg::Docker) => container(EngineKind::Docker)?,
            Some(BackendArg::Mock) => Some(WorkspaceSpec::Mock(self.mock(commands)?)),
        })
    }

    /// Does the same; the default is the host.
    pub(super) fn spec_or_host(&self) -> Result<WorkspaceSpec, Failure> {
        let spec = Self { backend: self.backend.or(Some(BackendArg::Host)), ..self.clone() }.spec()?;
        Ok(spec.unwrap_or_default())
    }

    fn given(&self) -> Vec<(BackendArg, bool, &'static str)> {
        let container = |is_given, option| (BackendArg::Container, is_given, option);
        let network = self.network.given().map(|(is_given, option)| container(is_given, option));
        let others = [
            (BackendArg::Host, self.gitignore, "--gitignore"),
            container(self.copy_on_write, "--copy-on-write"),
            container(self.image.is_some(), "--image"),
            container(self.pull, "--pull"),
            container(self.memory.is_some(), "--memory"),
            container(self.cpus.is_some(), "--cpus"),
            container(self.pids.is_some(), "--pids"),
            container(self.tmp.is_some(), "--tmp"),
            container(self.idle_seconds.is_some(), "--idle-seconds"),
            container(self.uptime_seconds.is_some(), "--uptime-seconds"),
            container(self.name_prefix.is_some(), "--name-prefix"),
            container(self.overlay.is_some(), "--overlay"),
            container(self.also_at.is_some(), "--also-at"),
            container(self.writable_root, "--writable-root"),
            container(self.engine.is_some(), "--engine"),
            (BackendArg::Mock, self.answers.is_some(), "--answers"),
        ];
        network.into_iter().chain(others).collect()
    }

    fn directory(&self) -> Result<Option<PathBuf>, Failure> {
        self.dir.as_deref().map(|directory| existing_directory("--dir", directory)).transpose()
    }

    fn container(&self, engine: EngineKind) -> Result<PodmanOptions, Failure> {
        let connection = self.engine.as_deref();
        let defaults = match &self.image {
            Some(image) => PodmanOptions { image: image.clone(), engine, ..PodmanOptions::default() },
            None => PodmanOptions::usual(engine, connection),
        };
        let mut options = PodmanOptions {
            pull: self.pull,
            cpus: self.cpus.unwrap_or(defaults.cpus),
            pids: self.pids.unwrap_or(defaults.pids),
            also_at: self.also_at.clone(),
            writable_root: self.writable_root,
            network: self.network.network()?,
            public_ports: self.network.public_ports(),
            idle_seconds: self.idle_seconds.unwrap_or(defaults.idle_seconds),
            uptime_seconds: self.uptime_seconds.unwrap_or(defaults.uptime_seconds),
            name_prefix: self.name_prefix.clone().unwrap_or(defaults.name_prefix),
            connection: self.engine.clone(),
            ..defaults
        };
        for (asked, bytes) in [(self.memory, &mut options.memory_bytes), (self.tmp, &mut options.tmp_bytes)] {
            *bytes = asked.map_or(*bytes, |mib| mib << 20);
        }
        if self.overlay.as_deref() == Some("never") {
            options.overlay = OverlayUse::Never;
        }
        Ok(options)
    }

    fn mock(&self, commands: CommandOptions) -> Result<MockOptions, Failure> {
        let Some(path) = &self.answers else { return Ok(MockOptions { commands, ..MockOptions::default() }) };
        let answers: Vec<MockRule> = serde_json::from_reader(files::reader(path)?).map_err(|error| {
            let shown = text::one_line(&path.display().to_string(), 300);
            Failure::usage(format!("{shown} is not a list of answers: {error}"))
        })?;
        Ok(MockOptions { answers, commands })
    }
}

/// The advice about a command that needs approval, without a terminal to ask on.
const ALLOW_IT: &str = "allow the program (--allow PROGRAM), or answer every question with yes (--yes)";

impl RuleArgs {
    /// Returns the rules for commands of agents, which ask the person at the terminal.
    pub(super) fn asking(&self, bar: Option<ProgressBar>) -> Result<ShellRules, Failure> {
        let asker = output::can_ask().then(|| Arc::new(AtTerminal::new(bar)) as Arc<dyn Asker>);
        Ok(ShellRules { asker, advice: Some(ALLOW_IT.into()), ..self.unasked()? })
    }

    /// Returns the rules for rerun calls: their timeouts and lengths were allowed before.
    pub(super) fn again(&self) -> Result<ShellRules, Failure> {
        let longest = CommandTime::up_to(MAX_TIMEOUT.as_secs_f64())?;
        let mut rules = ShellRules { time: self.max_timeout.unwrap_or(longest), ..self.asking(None)? };
        rules.policy.max_chars = MAX_COMMAND_CHARS;
        Ok(rules)
    }

    /// Returns the rules for typed commands, without questions and without limits of time or length.
    pub(super) fn typed(&self) -> Result<ShellRules, Failure> {
        let longest = CommandTime::up_to(MAX_TIMEOUT.as_secs_f64())?;
        Ok(self.rules(CommandPolicy::typed(), longest.unlimited()))
    }

    /// Returns the rules for commands without a terminal to ask on.
    pub(super) fn unasked(&self) -> Result<ShellRules, Failure> {
        let time = match self.max_timeout {
            Some(time) => time,
            None => variable(MAX_TIMEOUT_VARIABLE, most_time)?.unwrap_or_default(),
        };
        let auto_confirm = self.yes || variable(AUTO_CONFIRM_VARIABLE, switch)?.unwrap_or_default();
        let mut policy = CommandPolicy { auto_confirm, ..CommandPolicy::default() };
        policy.max_chars = chars(self.command_chars).unwrap_or(policy.max_chars);
        Ok(self.rules(policy, time))
    }

    fn rules(&self, mut policy: CommandPolicy, time: CommandTime) -> ShellRules {
        let defaults = CaptureBudget::default();
        policy.allow.extend(self.allow.iter().cloned());
        policy.deny.extend(self.deny.iter().cloned());
        let budget = CaptureBudget {
            file_bytes: self.keep_file_bytes.unwrap_or(defaults.file_bytes),
            step_bytes: self.keep_step_bytes.unwrap_or(defaults.step_bytes),
            ..defaults
        };
        let start_docker = self.start_docker.as_deref().map(Arc::from);
        let (python, text_chars) = (self.python(), chars(self.text_chars));
        ShellRules { policy, budget, time, start_docker, python, text_chars, ..ShellRules::default() }
    }

    fn python(&self) -> PythonRules {
        let place = self.python.map(|python| match python {
            PythonArg::InProcess => PythonPlace::InProcess,
            PythonArg::Container => PythonPlace::Container,
        });
        PythonRules { place, code_chars: chars(self.python_chars).unwrap_or(PythonRules::default().code_chars) }
    }
}

fn chars(asked: Option<u32>) -> Option<usize> {
    asked.and_then(|chars| usize::try_from(chars).ok())
}

/// Reads a setting from the environment; `None` if it is not set or empty.
fn variable<T>(name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
    let Some(said) = std::env::var_os(name).filter(|said| !said.is_empty()) else { return Ok(None) };
    let said = said.to_string_lossy();
    read(&said)
        .map(Some)
        .map_err(|advice| Failure::usage(format!("{name} is {:?}", text::one_line(&said, 80))).with_hint(advice))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("expected 1 for yes or 0 for no".to_owned()),
    }
}

/// Returns the spec to open a workspace like the session's, with the values of its variables.
pub(super) fn spec_for_copy(globals: &Globals, session: &Session) -> Result<WorkspaceSpec, Failure> {
    Ok(spec_of(session)?.with_values_of(session.id(), &data_directory::directory(globals)?))
}

pub(super) fn spec_of(session: &Session) -> Result<WorkspaceSpec, Failure> {
    match session.started() {
        Some(started) => Ok(WorkspaceSpec::of_session(started)?),
        None => {
            let name = text::one_line(session.name(), 80);
            let what = format!("failed to read the first event of session {name}, which describes its workspace");
            Err(Failure::new(Exit::Damaged, what).with_hint(
                "use the foldspace that started it, if that is newer; `foldspace check --bytes` finds damage",
            ))
        }
    }
}

/// Refuses a session that only watches an attached directory.
pub(super) fn check_runs_commands(session: &Session) -> Result<(), Failure> {
    match spec_of(session)?.only_watches() {
        true => Err(Failure::usage("the session of an attached directory only records changes: it can't run commands")
            .with_hint("`foldspace record -- CMD`, in the directory, runs a command and records its changes")),
        false => Ok(()),
    }
}

/// Returns the failure of a command in a session in memory.
pub(super) fn without_shell(session: &str) -> Failure {
    Failure::usage(format!("the memory workspace of {} has no shell", text::one_line(session, 80)))
        .with_hint("`foldspace new` creates a session that runs commands, on this machine or with --backend container")
}
