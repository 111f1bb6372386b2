//! The runner of checks, and the shell as used by the checks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Means;
use super::report::{CheckOutcome, ComplianceCheck, ComplianceReport};
use crate::backends::{OutputWatch, Shell, ShellCommand, ShellError, ShellResult, unwatched};
use crate::engine::path::EntryPath;

pub(super) const PLACE: &str = "foldspace-compliance";
/// The time limit of one check. A passing check needs less than a tenth of it, except on a very slow machine.
const CHECK_TIME_LIMIT: Duration = Duration::from_secs(90);
/// The time limit of commands that end on their own.
pub(super) const LONG: Duration = Duration::from_secs(60);
const SHOWN: usize = 300;

#[derive(Debug)]
pub(super) enum Fault {
    Seen(String),
    NotApplicable(String),
}

pub(super) type CheckFinding<T = ()> = Result<T, Fault>;

pub(super) fn ensure(is_so: bool, seen: impl FnOnce() -> String) -> CheckFinding {
    if is_so { Ok(()) } else { Err(Fault::Seen(seen())) }
}

pub(super) fn seen<T>(what: impl Into<String>) -> CheckFinding<T> {
    Err(Fault::Seen(what.into()))
}

pub(super) struct Suite<R> {
    backend: &'static str,
    rig: R,
    checks: Vec<ComplianceCheck>,
}

impl<R: Clone> Suite<R> {
    pub(super) fn new(backend: &'static str, rig: R) -> Self {
        Self { backend, rig, checks: Vec::new() }
    }

    pub(super) fn rig(&self) -> &R {
        &self.rig
    }

    pub(super) fn finish(self) -> ComplianceReport {
        ComplianceReport { backend: self.backend, checks: self.checks }
    }

    /// Runs one check. It fails if it panics or does not end in time.
    pub(super) async fn check<F>(&mut self, name: &'static str, expects: &'static str, run: impl FnOnce(R) -> F)
    where
        F: Future<Output = CheckFinding> + Send + 'static,
    {
        let mut task = JoinSet::new();
        task.spawn(run(self.rig.clone()));
        let outcome = match tokio::time::timeout(CHECK_TIME_LIMIT, task.join_next()).await {
            Ok(Some(Ok(Ok(())))) => CheckOutcome::Passed,
            Ok(Some(Ok(Err(Fault::Seen(seen))))) => CheckOutcome::Failed { seen },
            Ok(Some(Ok(Err(Fault::NotApplicable(reason))))) => CheckOutcome::NotApplicable { reason },
            Ok(Some(Err(error))) => CheckOutcome::Failed { seen: format!("it panicked: {error}") },
            Ok(None) => CheckOutcome::Failed { seen: "it did not end".to_owned() },
            Err(_) => CheckOutcome::Failed { seen: format!("it did not end within {} s", CHECK_TIME_LIMIT.as_secs()) },
        };
        self.checks.push(ComplianceCheck { name, expects, outcome });
    }
}

#[derive(Clone)]
pub(super) struct Rig {
    shell: Arc<dyn Shell>,
    means: Means,
}

impl Rig {
    pub(super) fn new(shell: Arc<dyn Shell>, means: Means) -> Self {
        Self { shell, means }
    }

    pub(super) fn shell(&self) -> &Arc<dyn Shell> {
        &self.shell
    }

    pub(super) fn processes(&self) -> CheckFinding {
        match self.means {
            Means::Processes => Ok(()),
            Means::Canned => Err(Fault::NotApplicable("no processes are run".to_owned())),
        }
    }

    pub(super) fn canned(&self) -> CheckFinding {
        match self.means {
            Means::Canned => Ok(()),
            Means::Processes => Err(Fault::NotApplicable("it can't be made to fail".to_owned())),
        }
    }

    pub(super) async fn run(&self, command: ShellCommand) -> CheckFinding<ShellResult> {
        self.run_watched(command, unwatched(), CancellationToken::new()).await
    }

    pub(super) async fn run_watched(
        &self,
        mut command: ShellCommand,
        watch: OutputWatch,
        cancel: CancellationToken,
    ) -> CheckFinding<ShellResult> {
        command.timeout.get_or_insert(LONG);
        let text = command.command.to_string();
        match self.shell.execute(command, watch, cancel).await {
            Ok(result) => Ok(result),
            Err(error) => seen(format!("`{}` returned an error: {error}", short(&text))),
        }
    }

    pub(super) async fn sh(&self, text: &str) -> CheckFinding<String> {
        let result = self.run(ShellCommand::shell(text)).await?;
        ensure(result.success(), || format!("`{text}` ended with {}", shown(&result)))?;
        Ok(String::from_utf8_lossy(&result.stdout.kept).into_owned())
    }

    pub(super) async fn directory(&self, name: &str) -> CheckFinding<EntryPath> {
        self.processes()?;
        self.sh(&format!("mkdir -p {PLACE} && rm -rf {PLACE}/{name} && mkdir {PLACE}/{name}")).await?;
        path(&format!("{PLACE}/{name}"))
    }

    pub(super) async fn invalid(&self, what: &str, command: ShellCommand) -> CheckFinding {
        match self.shell.execute(command, unwatched(), CancellationToken::new()).await {
            Err(ShellError::Invalid(_)) => Ok(()),
            Err(other) => seen(format!("{what} returned another error: {other}")),
            Ok(result) => seen(format!("{what} was run: {}", shown(&result))),
        }
    }

    pub(super) async fn clear(&self) {
        if self.processes().is_ok() {
            // Remains show up in the checks that need the directory.
            drop(self.sh(&format!("rm -rf {PLACE}")).await);
        }
    }
}

pub(super) fn path(text: &str) -> CheckFinding<EntryPath> {
    EntryPath::lookup(text).or_else(|error| seen(format!("{text} is not a path: {error}")))
}

pub(super) fn shown(result: &ShellResult) -> String {
    let mut text = format!("exit code {}", result.exit_code);
    if let Some(signal) = result.signal {
        text.push_str(&format!(", signal {signal}"));
    }
    for (is_so, word) in [(result.timed_out, "timed out"), (result.cancelled, "cancelled")] {
        if is_so {
            text.push_str(&format!(", {word}"));
        }
    }
    for (name, output) in [("stdout", &result.stdout), ("stderr", &result.stderr)] {
        if output.bytes > 0 {
            text.push_str(&format!(", {name} {:?}", output.text(SHOWN).0));
        }
    }
    text
}

pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

pub(super) fn ensure_printed(result: &ShellResult, stdout: &str, stderr: &str) -> CheckFinding {
    let is_so = result.success()
        && result.signal.is_none()
        && result.stdout.kept == stdout.as_bytes()
        && result.stderr.kept == stderr.as_bytes();
    ensure(is_so, || format!("{} instead of exit code 0, stdout {stdout:?}, stderr {stderr:?}", shown(result)))
}
