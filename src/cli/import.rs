use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Arg;
use foldspace::event::{EventRef, ServiceStarted, SessionStarted};
use foldspace::history::{HistoryError, import_session_if};
use foldspace::store::Durability;
use foldspace::tools::{ImportedRun, import_transcripts};
use foldspace::{Sessions, WorkspaceSpec};

use super::owner::OwnerClient;
use super::rerun::{AgainArgs, BaseArgs, RunAgain};
use super::{Exit, Failure, Globals, Out, export, files, open, output, text, workspace};

/// The magic bytes of a file that `export` wrote.
const EXPORTED: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads sessions from a file that `export` wrote, or from other programs' transcripts
///
/// Everything in the file is checked first. If the session exists already, the file must continue its history, and only
/// new events are added. So importing the file again completes an interrupted import.
///
/// Transcripts come from Claude Code, Codex, Gemini CLI, Copilot CLI, OpenCode, Cursor, Cline, Goose, Aider,
/// mini-swe-agent, SWE-agent and OpenHands, logs of Inspect, and trajectories in ATIF. A run becomes a session with its
/// calls, their outcomes and times, and its subagents become forks. It has the files that the transcript states; calls
/// with unknown changes are counted. A transcript that has grown can be imported again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The workspace and its commands have the options of `foldspace run`: --help lists them.

Examples:
  foldspace import demo.fold
  foldspace import ~/.claude/projects/-home-me-app/1f0c*.jsonl --name yesterday
  foldspace import ~/.codex/sessions/2026/11/23/*.jsonl
  opencode export ses_1f0c > run.json && foldspace import run.json
  foldspace import run.jsonl --re-run --base HEAD~3 --backend container")]
#[command(mut_args(of_rerun))]
pub(super) struct Import {
    /// The files; - is standard input, for a file that `export` wrote
    #[arg(value_hint = clap::ValueHint::AnyPath, required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Renames the session, or the session of the first transcript
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Reruns the calls of the first run in a new session, with every file at every call
    ///
    /// The commands come from the transcript's author: each is decided as with `foldspace run`.
    #[arg(long, requires = "base")]
    re_run: bool,
    /// Accepts a session with a workspace in a directory of this machine, or that reaches an engine or the network, and
    /// services that start again
    #[arg(long)]
    trust_workspace: bool,
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    again: AgainArgs,
}

/// Options that need no `--re-run`.
const OWN: [&str; 4] = ["files", "name", "re_run", "trust_workspace"];

fn of_rerun(arg: Arg) -> Arg {
    let arg = workspace::again(arg);
    match arg.get_id().as_str() {
        "keep" => arg.help("The name of the new session [default: the run's name, with -again]").requires("re_run"),
        own if OWN.contains(&own) => arg,
        _ => arg.requires("re_run"),
    }
}

impl Import {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        match &self.files[..] {
            [file] if (files::is_standard(file) || is_exported(file)) && self.re_run => {
                Err(Failure::usage("--re-run is for transcripts of other programs")
                    .with_hint("import, then use `rerun`"))
            }
            [file] if files::is_standard(file) || is_exported(file) => {
                self.exported(file, globals, out).map(|()| Exit::Ok)
            }
            files => {
                if let Some(file) = files.iter().find(|file| files::is_standard(file)) {
                    return Err(Failure::usage(format!("{} can't be one of several files", file.display())));
                }
                self.transcripts(globals, out)
            }
        }
    }

    fn transcripts(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let paths: Vec<&Path> = self.files.iter().map(PathBuf::as_path).collect();
        let import = |sessions: &Sessions| Ok(import_transcripts(sessions, &paths, self.name.as_deref()));
        let imported = through_owner(globals, import)??;
        let Some(run) = imported.first().filter(|_| self.re_run) else {
            out.show(&imported, |out| imported.iter().try_for_each(|run| out.line(told(run))))?;
            return Ok(Exit::Ok);
        };
        if !out.is_json() {
            imported.iter().try_for_each(|run| out.line(told(run)))?;
        }
        let usual = format!("{}-again", run.name);
        let keep = Some(self.again.keep.as_deref().unwrap_or(&usual));
        let (session, options) = (run.session.to_string(), &self.again);
        RunAgain { session: &session, until: None, base: &self.base, options, keep }.run(globals, out)
    }

    fn exported(&self, file: &Path, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let file = files::Rereadable::open(file)?;
        let accept = |event: &EventRef<'_>| if self.trust_workspace { Ok(()) } else { harmless(event) };
        let import = |sessions: &Sessions| {
            let mut file = file.file(&open::directory(globals)?)?;
            Ok(import_session_if(sessions, &mut file, self.name.as_deref(), &accept))
        };
        let summary = through_owner(globals, import)?.map_err(|error| match error {
            HistoryError::Refused(_) => {
                Failure::from(error).with_hint("if you trust the file's source, --trust-workspace accepts it")
            }
            error => error.into(),
        })?;
        if self.name.as_ref().is_some_and(|name| *name != summary.name) {
            output::note(&format!("the session already exists and is called {}", summary.name));
        }
        out.show(&summary, |out| {
            out.line(format!("{} read, {} events were new", export::told(&summary), summary.added))
        })
    }
}

/// Runs `work` with the sessions of the owner, which stays up until `work` ends.
fn through_owner<T>(globals: &Globals, work: impl FnOnce(&Sessions) -> Result<T, Failure>) -> Result<T, Failure> {
    super::block_on(async {
        let owner = OwnerClient::of(globals, Durability::Synced).await?;
        let opened = owner.sessions()?;
        let done = tokio::task::block_in_place(|| work(&opened.sessions))?;
        owner.end().await;
        Ok(done)
    })?
}

fn harmless(event: &EventRef<'_>) -> Result<(), String> {
    if let Some(service) = event.decoded::<ServiceStarted>().filter(|service| service.restart) {
        let name = text::one_line(&service.name, 80);
        return Err(format!("its next command would start the service {name}, whose command nobody here approved"));
    }
    // An invalid workspace can't be opened, so it is harmless.
    let Some(started) = event.decoded::<SessionStarted>() else { return Ok(()) };
    let reached = WorkspaceSpec::of_session(&started).map(|spec| spec.reaches()).unwrap_or_default();
    match reached.is_empty() {
        true => Ok(()),
        false => Err(format!("its workspace would use {}", text::one_line(&reached.join(", "), 1000))),
    }
}

#[expect(clippy::disallowed_methods, reason = "a file's kind is in its first bytes")]
fn is_exported(file: &Path) -> bool {
    let mut start = [0; EXPORTED.len()];
    match std::fs::File::open(file).and_then(|mut opened| opened.read(&mut start)) {
        Ok(read) => start[..read] == EXPORTED,
        // The import then reports the error.
        Err(_) => !file.is_dir(),
    }
}

fn told(run: &ImportedRun) -> String {
    let child = run.parent.as_ref().map(|parent| format!(", a child of {parent}")).unwrap_or_default();
    let missing = match run.incomplete {
        0 => String::new(),
        count => format!("; the changes of {} are not in the transcript", text::count(count, "call")),
    };
    let unreadable = match run.unreadable {
        0 => String::new(),
        count => format!("; {} left out: not JSON", text::count(count, "line")),
    };
    let (calls, records) = (text::count(run.calls, "call"), text::count(run.records, "other record"));
    let (name, added) = (text::one_line(&run.name, 80), text::count(run.added, "event"));
    format!("{name} ({}{child}): {calls}, {records}, {added} new{missing}{unreadable}", run.format.name())
}
