use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anstyle::Style;
use clap::ValueEnum;
use foldspace::backends::{EngineKind, HostOptions, PodmanOptions, ShellCommand, find_engine};
use foldspace::hub::operations;
use foldspace::tools::WorkspaceError;
use foldspace::tools::{
    BisectFound, BisectReport, BisectVerdict, Bisection, CommandPolicy, Predicate, ProbeRecord, ShellRules, bisect,
    bisect_slices, first_position,
};
use foldspace::view::{self, ObservedCalls, Position};
use foldspace::{EntryPath, Seq, Session, WorkspaceSpec};
use tokio_util::sync::CancellationToken;

use super::external_command::Home;
use super::position::settled;
use super::{
    BAD, BOLD, DIM, Exit, Failure, GOOD, Globals, ODD, Out, Signals, diffs, events, open, output, text, workspace,
};

/// Finds the first change after which a command fails
///
/// The command runs in throw-away workspaces with the files of each probed position; the session stays as it is. As
/// with `git bisect run`, exit code 0 means good, 125 skips the position, 128 and above end the search, and any other
/// code, or a timeout, means bad. All positions after a bad one count as bad.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").args(["command", "slice"]).required(true)))]
#[command(
    override_usage = "foldspace bisect [OPTIONS] <SESSION> <CMD>...\n       foldspace bisect [OPTIONS] <SESSION> --slice <EXPR>"
)]
#[command(after_help = "\
Examples:
  foldspace bisect NAME python3 -m pytest -q
  foldspace bisect NAME --good 40 --bad -5 --jobs 4 --sh 'make && ./test'
  foldspace bisect NAME --slice 'VirtualFileSystem./src/main.rs exists'
  foldspace bisect NAME --slice 'Usage.calls > 9 and Commands.failed >= 1'

A predicate compares values in slices, as `foldspace state NAME SLICE --json` shows them, with ==, !=, <, \
<=, >, >=, contains, matches \"REGEX\", exists, count(...), and, or, not. A file is \
VirtualFileSystem./its/path or VirtualFileSystem[\"/its path\"], with fields such as .size.")]
pub(super) struct BisectArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The command that fails at the bad position and not at the good one
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
    /// Joins the arguments and runs them with /bin/sh -c
    #[arg(long, conflicts_with = "slice")]
    sh: bool,
    /// A good position [default: before the first call; with --slice before the first event]
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    good: Option<Position>,
    /// A later, bad position [default: the last position]
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    bad: Option<Position>,
    /// Searches from before the first call of an agent's run to after its last: the run's id, the beginning of it, or
    /// `last`
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Runs N probes at once, each in its own workspace
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// The place of the probes [default: like the session's commands; on the host, without a sandbox, for a session in
    /// memory]
    #[arg(long, value_name = "BACKEND", conflicts_with = "slice")]
    backend: Option<ProbeBackend>,
    /// Finds the first position where this predicate over slices holds; runs no command
    #[arg(long, value_name = "EXPR", conflicts_with = "jobs")]
    slice: Option<String>,
    /// Limits the time of each run, up to 600 seconds; a position that times out is bad
    #[arg(long, value_name = "SECS", default_value_t = 600.0, conflicts_with = "slice")]
    timeout: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProbeBackend {
    /// In directories on this machine; commands are not sandboxed
    Host,
    /// In containers of the first engine that works here
    Container,
    /// In Podman containers
    Podman,
    /// In Docker containers
    Docker,
}

impl BisectArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        // A bisection may take hours, and must not hold the store.
        let opened = open::reading(globals)?;
        let session = opened.find(&self.session)?.session;
        let run = self.run.as_deref().map(|run| ObservedCalls::of(&session)?.run(&session, run)).transpose()?;
        let bad = match (&self.bad, &run) {
            (Some(position), _) => settled(position, &session)?,
            (None, Some(run)) => run.last,
            (None, None) => session.head()?,
        };
        let good = match (&self.good, &run) {
            (Some(position), _) => settled(position, &session)?,
            (None, Some(run)) => run.before,
            _ if self.slice.is_some() => 0,
            _ => first_position(&session)?,
        };
        for (position, at) in [(&self.good, good), (&self.bad, bad)] {
            let asked = position.as_ref().map_or(Ok(None), |position| position.inside(&session))?;
            if let Some(asked) = asked.filter(|asked| *asked != at) {
                output::note(&format!("event {asked} is inside a commit; this goes to its end, {at}"));
            }
        }
        if let Some(text) = &self.slice {
            let predicate = Predicate::parse_for(text, &session.state()?)
                .map_err(|error| Failure::from(error).with_hint(PREDICATES))?;
            return by_slice(&session, &predicate, good, bad, out);
        }
        let (spec, home) = (self.spec(globals, &session)?, Home::of(globals)?);
        let policy = CommandPolicy::typed();
        let rules = ShellRules { policy, ..ShellRules::default() };
        let (ends, place, jobs) = ((Some(good), Some(bad)), home.path().to_owned(), usize::from(self.jobs));
        let bisection = Bisection::of_session(session, self.command()?, rules, ends, place, jobs)?;
        let bisection = Bisection { spec, ..bisection };
        if !out.is_json() {
            out.go_live_for_good()?;
        }
        let report = super::block_on(search(&bisection, out))??;
        match out.is_json() {
            true => out.document(&operations::bisected(&bisection.session, &report)?)?,
            false => show(&bisection.session, &report, out)?,
        }
        Ok(Exit::Ok)
    }

    fn command(&self) -> Result<ShellCommand, Failure> {
        let mut command = match self.sh {
            true => ShellCommand::shell(self.command.join(" ")),
            false => ShellCommand::args(self.command.iter().cloned()),
        };
        let timeout = Duration::try_from_secs_f64(self.timeout).ok();
        command.timeout =
            Some(timeout.ok_or_else(|| Failure::usage("--timeout: expected a number of seconds from 0.1 to 600"))?);
        command.check()?;
        Ok(command)
    }

    fn spec(&self, globals: &Globals, session: &Session) -> Result<WorkspaceSpec, Failure> {
        let own = workspace::spec_for_copy(globals, session)?;
        Ok(match self.backend {
            None => own,
            Some(ProbeBackend::Host) => WorkspaceSpec::Host(HostOptions::default()),
            Some(ProbeBackend::Container) if matches!(own, WorkspaceSpec::Podman(_)) => own,
            Some(ProbeBackend::Container) => in_container(own, find_engine(None)?),
            Some(ProbeBackend::Podman) => in_container(own, EngineKind::Podman),
            Some(ProbeBackend::Docker) => in_container(own, EngineKind::Docker),
        })
    }
}

/// Returns a container of the engine for probes, with the limits and image of the session's own, if it has one.
fn in_container(own: WorkspaceSpec, engine: EngineKind) -> WorkspaceSpec {
    WorkspaceSpec::Podman(match own {
        WorkspaceSpec::Podman(own) if own.engine == engine => own,
        _ => PodmanOptions::usual(engine, None),
    })
}

async fn search(bisection: &Bisection, out: &mut Out) -> Result<BisectReport, Failure> {
    let cancel = CancellationToken::new();
    let mut signals = Signals::listen();
    let out = Mutex::new(out);
    let seen = |record: &ProbeRecord| {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if !out.is_json() {
            let code = if record.timed_out { "took too long".to_owned() } else { format!("exit {}", record.exit_code) };
            let ((word, style), duration) = (word(record.verdict), text::duration(record.micros));
            let line = out.paint(style, format!("{:>6}  {word:<4}  {code} in {duration}", record.seq));
            // The search continues without a reader.
            drop(out.line(line));
        }
    };
    let mut work = std::pin::pin!(bisect(bisection, &seen, &cancel));
    loop {
        tokio::select! {
            done = &mut work => return done.map_err(failed),
            // A second signal does not end the program, since the probes have to be removed.
            signal = signals.next() => {
                output::note(&format!("{}; removing the probes", signal.words()));
                cancel.cancel();
            }
        }
    }
}

fn word(verdict: BisectVerdict) -> (&'static str, Style) {
    match verdict {
        BisectVerdict::Good => ("good", GOOD),
        BisectVerdict::Bad => ("bad", BAD),
        BisectVerdict::Skip => ("skip", ODD),
    }
}

fn show(session: &Session, report: &BisectReport, out: &mut Out) -> Result<(), Failure> {
    show_found(session, &report.found, out)?;
    if report.is_odd {
        output::note("a good position follows a bad one: this is one of several changes from good to bad");
    }
    for difference in &report.environment {
        output::note(&difference.to_string());
    }
    let left_out = left_out(report);
    if let Some(first) = left_out.first() {
        let count = text::count(left_out.len() as u64, "entry");
        output::note(&format!("failed to recreate {count} in the probes, such as {}", first.rooted()));
    }
    let (probes, checks) = (text::count(report.probes.len() as u64, "probe"), report.checks.len());
    let (changes, (good, bad)) = (text::count(report.changes as u64, "change"), report.ends);
    out.line(out.paint(DIM, format!("\n{probes}, and {checks} of the ends, for {changes} between {good} and {bad}")))
}

fn show_found(session: &Session, found: &BisectFound, out: &mut Out) -> Result<(), Failure> {
    let Some((last, others)) = found.bad.split_last() else { return Ok(()) };
    match others.is_empty() {
        true => out.line(out.paint(BOLD, format!("\nthe first bad change is event {last}")))?,
        false => {
            let which: Vec<String> = found.bad.iter().map(Seq::to_string).collect();
            let words = format!("\nthe first bad change is one of {}: all but the last were skipped", which.join(", "));
            out.line(out.paint(BOLD, words))?;
        }
    }
    let mut before = found.good;
    for seq in &found.bad {
        show_change(session, before, *seq, out)?;
        before = *seq;
    }
    Ok(())
}

fn show_change(session: &Session, before: Seq, seq: Seq, out: &mut Out) -> Result<(), Failure> {
    let event = session.event(seq)?;
    let who = match event.call {
        Some(call) => format!("#{call} {}", events::gist(session, &session.event(call)?.view())),
        None => format!("no call: {}", events::gist(session, &event.view())),
    };
    let agent =
        if event.agent.is_empty() { String::new() } else { format!(" by {}", text::one_line(&event.agent, 80)) };
    out.line(format!("{seq}  {}  {who}{agent}", text::moment(event.time)))?;
    for change in view::file_changes(session, before, seq, None)? {
        diffs::show_change(session, &change, out)?;
    }
    Ok(())
}

fn left_out(report: &BisectReport) -> BTreeSet<&EntryPath> {
    report.checks.iter().chain(&report.probes).flat_map(|record| &record.left_out).collect()
}

fn by_slice(session: &Session, predicate: &Predicate, good: Seq, bad: Seq, out: &mut Out) -> Result<Exit, Failure> {
    let looked = bisect_slices(session, predicate, good, bad).map_err(failed)?;
    if out.is_json() {
        out.document(&operations::bisected_by_slice(session, predicate, (good, bad), &looked)?)?;
        return Ok(Exit::Ok);
    }
    let (found, looks) = looked;
    for (seq, holds) in &looks {
        let (style, word) = if *holds { (BAD, "holds") } else { (GOOD, "does not hold") };
        out.line(out.paint(style, format!("{seq:>6}  {word}")))?;
    }
    let Some(first) = found.bad.first() else { return Ok(Exit::Ok) };
    out.line(out.paint(BOLD, format!("\nthe predicate first holds at event {first}")))?;
    show_change(session, found.good, *first, out)?;
    let looks = text::count(looks.len() as u64, "look");
    out.line(out.paint(
        DIM,
        format!("\n{looks}, and 2 at the ends, for {} between {good} and {bad}", text::count(bad - good, "event")),
    ))?;
    Ok(Exit::Ok)
}

const PREDICATES: &str = "`foldspace bisect --help` explains predicates; `foldspace state SESSION` lists the slices";
const ENDS: &str = "it must hold at the bad position and not at the good one; set them with --good and --bad";
const GIVEN: usize = 4096;

fn failed(error: WorkspaceError) -> Failure {
    let hint = match &error {
        WorkspaceError::Order { .. } => "--good and --bad set the range".to_owned(),
        WorkspaceError::NothingChanged { .. } => "`foldspace log --path '**'` shows what changed when".to_owned(),
        WorkspaceError::GoodIsBad(record) => printed(record, "set a good position with --good"),
        WorkspaceError::BadIsGood(record) => printed(record, "set a bad position with --bad"),
        WorkspaceError::NotRun(record) => printed(record, "does the program exist in the probe?"),
        WorkspaceError::Aborted(record) => printed(record, "exit code 125 skips a position"),
        WorkspaceError::SameAtEnd { holds: true, .. } => ENDS.to_owned(),
        WorkspaceError::SameAtEnd { .. } => format!(
            "{ENDS}; if it changed more than once, `foldspace replay SESSION --until PREDICATE` finds the first change"
        ),
        _ => return error.into(),
    };
    Failure::from(error).with_hint(hint)
}

fn printed(record: &ProbeRecord, hint: &str) -> String {
    let mut text = record.stderr.text(GIVEN).0;
    if text.trim().is_empty() {
        text = record.stdout.text(GIVEN).0;
    }
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    let shown: String = lines.into_iter().rev().map(|line| format!("\n  {line}")).collect();
    let left_out = record.left_out.first().map_or(String::new(), |first| {
        let count = text::count(record.left_out.len() as u64, "entry");
        format!("; the probe is incomplete: failed to recreate {count}, such as {}", first.rooted())
    });
    format!("{hint}{left_out}{shown}")
}
