//! The options about a session's workspace and its commands, and the way to it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use foldspace::{
    Asker, CaptureBudget, CommandPolicy, Dispatcher, HostOptions, MAX_AGENT_BYTES, MockOptions, MockRule,
    PodmanOptions, Session, ShellRules, Tools, Workspace, WorkspaceSpec,
};

use super::asking::AtTerminal;
use super::bar::Bar;
use super::exit::{Exit, Failure};
use super::{Globals, files, open, output, text};

/// MiB of memory that a container may be given: 1 PiB.
const MEMORY_MAX: u64 = 1 << 30;

/// Checks an agent's name on the command line.
pub(super) fn agent_name(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err("a name is needed".to_owned()),
        1..=MAX_AGENT_BYTES => Ok(name.to_owned()),
        _ => Err(format!("an agent's name has at most {MAX_AGENT_BYTES} bytes")),
    }
}

/// What a new session's workspace is to be.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Workspace of a new session")]
pub(super) struct WorkspaceArgs {
    /// Where its files are and its commands run [default: memory, where nothing can run]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<Backend>,
    /// host: works in DIR, with what is in it; else in a directory of its own
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// podman: the image
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// podman: pulls the image when the engine does not have it
    #[arg(long)]
    pull: bool,
    /// podman: MiB of memory
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=MEMORY_MAX))]
    memory: Option<u64>,
    /// podman: processors
    #[arg(long, value_name = "N", value_parser = processors)]
    cpus: Option<f64>,
    /// podman: processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..))]
    pids: Option<u32>,
    /// podman: lets commands reach the network
    #[arg(long)]
    network: bool,
    /// podman: where the engine listens, such as unix:///run/podman/podman.sock
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
    /// mock: a JSON list of answers: [{"command": "make *", "stdout": "ok\n", "exit_code": 0}]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    answers: Option<PathBuf>,
}

/// The backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The files are in the journal only; nothing can run
    Memory,
    /// A directory of this machine; commands are not sandboxed
    Host,
    /// A container
    Podman,
    /// Commands are answered from a list
    Mock,
}

fn processors(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(count) if count.is_finite() && (0.01..=1024.0).contains(&count) => Ok(count),
        _ => Err("give a number of processors, such as 1 or 0.5".to_owned()),
    }
}

/// What commands may do, and how much of it is kept.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Commands")]
pub(super) struct RuleArgs {
    /// Allows a program, or a program with its first words; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    allow: Vec<String>,
    /// Answers every question about a command with yes; what is denied stays so
    #[arg(short, long)]
    yes: bool,
    /// Keeps at most so many bytes of a file that a command wrote [default: 64 MiB]
    #[arg(long, value_name = "N")]
    keep_file_bytes: Option<u64>,
    /// Keeps at most so many bytes of all files that a call wrote [default: 256 MiB]
    #[arg(long, value_name = "N")]
    keep_step_bytes: Option<u64>,
}

impl WorkspaceArgs {
    /// What was asked for; none when nothing was.
    pub(super) fn spec(&self) -> Result<Option<WorkspaceSpec>, Failure> {
        let podman = self.image.is_some() || self.pull || self.memory.is_some() || self.cpus.is_some();
        let podman = podman || self.pids.is_some() || self.network || self.engine.is_some();
        let given = [
            (Backend::Host, self.dir.is_some(), "--dir"),
            (Backend::Podman, podman, "--image, --pull, --memory, --cpus, --pids, --network or --engine"),
            (Backend::Mock, self.answers.is_some(), "--answers"),
        ];
        for (backend, is_given, option) in given {
            if is_given && self.backend != Some(backend) {
                let name = format!("{backend:?}").to_lowercase();
                return Err(Failure::new(Exit::Usage, format!("{option} is for --backend {name}")));
            }
        }
        Ok(match self.backend {
            None => None,
            Some(Backend::Memory) => Some(WorkspaceSpec::Memory),
            Some(Backend::Host) => Some(WorkspaceSpec::Host(HostOptions { directory: self.directory()? })),
            Some(Backend::Podman) => Some(WorkspaceSpec::Podman(self.podman())),
            Some(Backend::Mock) => Some(WorkspaceSpec::Mock(self.mock()?)),
        })
    }

    fn directory(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = &self.dir else { return Ok(None) };
        if !directory.is_dir() {
            let shown = text::one_line(&directory.display().to_string(), 300);
            return Err(Failure::new(Exit::NotFound, format!("--dir: {shown} is not a directory")));
        }
        let absolute = directory.canonicalize();
        absolute.map(Some).map_err(|error| Failure::io("open", directory.display(), &error))
    }

    fn podman(&self) -> PodmanOptions {
        let defaults = PodmanOptions::default();
        PodmanOptions {
            image: self.image.clone().or_else(environment_image).unwrap_or(defaults.image),
            pull: self.pull,
            memory_bytes: self.memory.map_or(defaults.memory_bytes, |mib| mib << 20),
            cpus: self.cpus.unwrap_or(defaults.cpus),
            pids: self.pids.unwrap_or(defaults.pids),
            network: self.network,
            connection: self.engine.clone(),
            ..defaults
        }
    }

    fn mock(&self) -> Result<MockOptions, Failure> {
        let Some(path) = &self.answers else { return Ok(MockOptions::default()) };
        let answers: Vec<MockRule> = serde_json::from_reader(files::reader(path)?).map_err(|error| {
            let shown = text::one_line(&path.display().to_string(), 300);
            Failure::new(Exit::Usage, format!("{shown} is no list of answers: {error}"))
        })?;
        Ok(MockOptions { answers })
    }
}

/// The image that the environment names.
pub(super) fn environment_image() -> Option<String> {
    std::env::var("FOLDSPACE_IMAGE").ok().filter(|image| !image.is_empty())
}

impl RuleArgs {
    /// The rules for commands that somebody else thought of. The person at the terminal is asked; the bar, if
    /// there is one, steps aside for that.
    pub(super) fn asking(&self, bar: Option<Bar>) -> ShellRules {
        let asker = output::can_ask().then(|| Arc::new(AtTerminal::new(bar)) as Arc<dyn Asker>);
        self.rules(self.yes, asker)
    }

    /// The rules for commands that a person typed, which is answer enough to a question.
    pub(super) fn typed(&self) -> ShellRules {
        self.rules(true, None)
    }

    fn rules(&self, auto_confirm: bool, asker: Option<Arc<dyn Asker>>) -> ShellRules {
        let defaults = CaptureBudget::default();
        let policy = CommandPolicy { allow: self.allow.clone(), auto_confirm, ..CommandPolicy::default() };
        let budget = CaptureBudget {
            file_bytes: self.keep_file_bytes.unwrap_or(defaults.file_bytes),
            step_bytes: self.keep_step_bytes.unwrap_or(defaults.step_bytes),
        };
        ShellRules { policy, asker, budget }
    }
}

/// What the first event of a session says of its workspace.
pub(super) fn spec_of(session: &Session) -> Result<WorkspaceSpec, Failure> {
    match session.started() {
        Some(started) => Ok(WorkspaceSpec::of_session(started)?),
        None => {
            let name = text::one_line(session.name(), 80);
            let what = format!("how session {name} began can't be read, so neither can what its workspace is");
            let failure = Failure::new(Exit::Damaged, what);
            Err(failure.with_hint("a newer foldspace may have begun it: use that one; `foldspace fsck` finds damage"))
        }
    }
}

/// Opens the workspace of a session as its first event describes it.
pub(super) fn of_session(globals: &Globals, session: &Session) -> Result<Arc<dyn Workspace>, Failure> {
    let home = open::directory(globals)?;
    Ok(spec_of(session)?.open(session.id(), &home)?)
}

/// A dispatcher of the standard tools on a session's workspace.
pub(super) fn dispatcher(
    session: Session,
    workspace: Arc<dyn Workspace>,
    rules: ShellRules,
) -> Result<Dispatcher, Failure> {
    Ok(Dispatcher::new(session, Tools::standard(), workspace)?.with_rules(rules))
}
