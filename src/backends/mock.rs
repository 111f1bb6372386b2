//! The mock backend: answers commands from a list, and remembers them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::command_options::CommandOptions;
use super::commands::SIGNALLED;
use super::output::Collector;
use super::shell::{
    DEFAULT_TIMEOUT, OutputStream, OutputWatch, Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties,
    ShellResult, Which,
};
use super::{BackendError, FileChange, Workspace};
use crate::engine::event::CommandLine;
use crate::engine::lock::lock;

const NAME: &str = "mock";
const NOT_FOUND: i32 = 127;
const SIGKILL: i32 = 9;

/// A workspace without a machine: files are only in the journal, and commands are answered from a list. For tests of
/// agents and orchestrators.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{Workspace, backends::{MockAnswer, MockWorkspace, Shell, ShellCommand, unwatched}};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let mock = MockWorkspace::new().answering("cargo test*", MockAnswer::printing("ok\n"))?;
/// let shell = mock.unrecorded_shell().unwrap();
/// let result = runtime.block_on(shell.execute(ShellCommand::shell("cargo test --all"), unwatched(), Default::default()))?;
/// assert_eq!((result.exit_code, &result.stdout.kept[..]), (0, &b"ok\n"[..]));
/// assert_eq!(mock.calls().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MockWorkspace {
    shell: Arc<MockShell>,
    options: CommandOptions,
}

#[derive(Debug, Default)]
struct MockShell {
    answers: Mutex<Vec<(GlobMatcher, MockAnswer)>>,
    calls: Mutex<Vec<ShellCommand>>,
}

/// The mock's answer to a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MockAnswer {
    /// Its exit code.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its running time, in milliseconds.
    pub millis: u64,
    /// The reason that the shell itself fails, if it does.
    pub failure: Option<String>,
}

impl MockAnswer {
    /// A success with some output.
    pub fn printing(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    /// A command that ends with an exit code and an error message.
    pub fn exiting(exit_code: i32, stderr: impl Into<String>) -> Self {
        Self { exit_code, stderr: stderr.into(), ..Self::default() }
    }

    /// A shell that fails.
    pub fn failing(reason: impl Into<String>) -> Self {
        Self { failure: Some(reason.into()), ..Self::default() }
    }

    /// Adds a running time.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self
    }
}

impl MockWorkspace {
    /// A mock without answers: each command ends with 127.
    pub fn new() -> Self {
        Self::default()
    }

    /// A mock with options of all commands.
    pub(crate) fn with_options(options: CommandOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Answers commands that match a glob; `*` matches anything. The earliest match wins.
    pub fn answering(self, pattern: &str, answer: MockAnswer) -> Result<Self, BackendError> {
        let glob = Glob::new(pattern);
        let glob =
            glob.map_err(|e| BackendError { backend: NAME, reason: format!("pattern {pattern:?}: {}", e.kind()) })?;
        lock(&self.shell.answers).push((glob.compile_matcher(), answer));
        Ok(self)
    }

    /// The commands so far, in order.
    pub fn calls(&self) -> Vec<ShellCommand> {
        lock(&self.shell.calls).clone()
    }
}

impl Workspace for MockWorkspace {
    fn backend_name(&self) -> &'static str {
        NAME
    }

    fn apply(&self, _: &[FileChange]) -> Result<(), BackendError> {
        Ok(())
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        Some(Arc::clone(&self.shell) as Arc<dyn Shell>)
    }

    fn command_options(&self) -> CommandOptions {
        self.options.clone()
    }

    fn description(&self) -> String {
        "Commands are answered from a list; nothing is actually run.".to_owned()
    }
}

impl MockShell {
    fn answer(&self, command: &CommandLine) -> MockAnswer {
        let text = command.to_string();
        let answers = lock(&self.answers);
        let found = answers.iter().find(|(glob, _)| glob.is_match(&text));
        found
            .map_or_else(|| MockAnswer::exiting(NOT_FOUND, format!("mock: no answer for {text}\n")), |(_, a)| a.clone())
    }
}

impl Shell for MockShell {
    fn properties(&self) -> ShellProperties {
        ShellProperties {
            backend_name: NAME,
            sandboxed: true,
            network_enabled: false,
            default_timeout: DEFAULT_TIMEOUT,
            in_container: false,
        }
    }

    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult> {
        if let Err(error) = command.check() {
            return Box::pin(async { Err(error) });
        }
        if command.terminal.is_some() || command.input.is_some() {
            let what = "the mock workspace has no terminals and no streamed input; use a host or a container workspace";
            return Box::pin(async { Err(ShellError::Invalid(what.to_owned())) });
        }
        lock(&self.calls).push(command.clone());
        let answer = self.answer(&command.command);
        Box::pin(async move {
            if let Some(reason) = answer.failure {
                return Err(ShellError::Unavailable { backend: NAME, reason });
            }
            let takes = Duration::from_millis(answer.millis);
            let timeout = command.time_limit(DEFAULT_TIMEOUT).unwrap_or(Duration::MAX);
            let (cancelled, timed_out) = tokio::select! {
                () = tokio::time::sleep(takes.min(timeout)) => (false, takes > timeout),
                () = cancel.cancelled() => (true, false),
            };
            let collected = |stream, text: &str| {
                let mut collector = Collector::new(command.keep);
                if command.capture_output {
                    watch(stream, text.as_bytes());
                    collector.add(text.as_bytes());
                }
                collector.finish()
            };
            let killed = timed_out || cancelled;
            Ok(ShellResult {
                exit_code: if killed { SIGNALLED + SIGKILL } else { answer.exit_code },
                stdout: collected(OutputStream::Stdout, &answer.stdout),
                stderr: collected(OutputStream::Stderr, &answer.stderr),
                command: command.command,
                cwd: command.cwd,
                duration: takes.min(timeout),
                timed_out,
                cancelled,
                signal: killed.then_some(SIGKILL),
                lost: false,
                terminal: None,
            })
        })
    }

    fn which(&self, program: &str) -> Running<Which> {
        let known = lock(&self.answers).iter().any(|(glob, _)| glob.is_match(program));
        let path = known.then(|| format!("/mock/{program}"));
        let which = Which { command: program.to_owned(), path };
        Box::pin(async { Ok(which) })
    }

    fn env(&self) -> Running<ShellEnv> {
        let variables = BTreeMap::from([("PATH".to_owned(), "/mock".to_owned())]);
        Box::pin(async { Ok(ShellEnv { variables, cwd: "/".to_owned(), shell: "/bin/sh".to_owned() }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::unwatched;

    fn run(mock: &MockWorkspace, command: ShellCommand, cancel: CancellationToken) -> Result<ShellResult, ShellError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(mock.shell.execute(command, unwatched(), cancel))
    }

    #[test]
    fn mock_gives_first_matching_answer() {
        let mock = MockWorkspace::new()
            .answering("git *", MockAnswer::printing("git"))
            .and_then(|mock| mock.answering("*", MockAnswer::exiting(3, "other")))
            .unwrap();
        let result = |text: &str| run(&mock, ShellCommand::shell(text), CancellationToken::new()).unwrap();
        assert_eq!(&result("git status").stdout.kept[..], b"git");
        assert_eq!((result("make").exit_code, &result("make").stderr.kept[..]), (3, &b"other"[..]));
        assert_eq!(mock.calls().len(), 3);
    }

    #[test]
    fn mock_fails_times_out_and_is_cancelled() {
        let slow = MockAnswer::printing("x").after(Duration::from_secs(60));
        let mock = MockWorkspace::new().answering("slow", slow).unwrap();
        let mock = mock.answering("broken", MockAnswer::failing("no engine")).unwrap();
        let mut command = ShellCommand::shell("slow");
        command.timeout = Some(Duration::from_millis(100));
        let result = run(&mock, command, CancellationToken::new()).unwrap();
        assert!(result.timed_out && !result.success() && result.signal == Some(SIGKILL));
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert!(run(&mock, ShellCommand::shell("slow"), cancel).unwrap().cancelled);
        let broken = run(&mock, ShellCommand::shell("broken"), CancellationToken::new());
        assert_eq!(broken, Err(ShellError::Unavailable { backend: NAME, reason: "no engine".to_owned() }));
        let unknown = run(&mock, ShellCommand::shell("nonsense"), CancellationToken::new()).unwrap();
        assert_eq!(unknown.exit_code, NOT_FOUND);
    }

    #[test]
    fn mock_output_is_bounded() {
        let mock = MockWorkspace::new().answering("*", MockAnswer::printing("x".repeat(1000))).unwrap();
        let mut command = ShellCommand::shell("y");
        command.keep = 10;
        command.stdin = "ignored".into();
        let result = run(&mock, command, CancellationToken::new()).unwrap();
        assert_eq!((result.stdout.kept.len(), result.stdout.bytes, result.truncated()), (10, 1000, true));
    }
}
