//! The result of a command.

use schemars::JsonSchema;
use serde::Serialize;

use super::exit_note::exit_note;
use crate::backends::{Output, ShellResult};
use crate::engine::id::Seq;

/// Exit code of a command that timed out.
pub(crate) const TIMED_OUT: i32 = 124;

/// Result of a command.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShellRun {
    /// Exit code: 0 for success, 124 if it timed out, 127 if the program was not found; null if it still runs.
    pub(crate) exit_code: Option<i32>,
    /// Standard output; its beginning and end if it exceeds the session's limit, by default 32 KiB.
    pub(crate) stdout: String,
    /// Standard error, likewise.
    pub(crate) stderr: String,
    /// Directory that it ran in.
    pub(super) cwd: String,
    /// Duration in seconds.
    pub(super) duration_seconds: f64,
    /// True if it timed out and was killed.
    pub(super) timed_out: bool,
    /// True if part of the output is missing here.
    pub(super) truncated: bool,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<i32>,
    /// True if the container or the runner ended while it ran, so the command itself did not fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
    /// Program that ran a script, if the call named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interpreter: Option<String>,
    /// Meaning of an exit code that is no failure or says little, for example of 1 of `grep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_note: Option<String>,
    /// Advice in addition to its output, for example that its daemon does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// The background process that the command has become, after `background_after_seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<Seq>,
    /// The byte of the process's output that process_read reads on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<u64>,
}

impl ShellRun {
    pub(crate) fn render(&self) -> String {
        let mut text = self.stdout.clone();
        if !self.stderr.is_empty() {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{gap}[stderr]\n{}", self.stderr));
        }
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let why = if self.timed_out { ": it timed out and was killed" } else { "" };
        let notes = self.exit_note.iter().chain(&self.note);
        let note: String = notes.map(|note| format!("\n[note: {note}]")).collect();
        let by = self.interpreter.as_ref().map(|program| format!(" of {program}")).unwrap_or_default();
        let end = match (self.exit_code, self.process, self.next) {
            (None, Some(process), Some(next)) => {
                let seconds = self.duration_seconds;
                format!("still runs after {seconds:.1} s as process {process}; process_read reads on from {next}")
            }
            (code, ..) => format!("exit code {}{by}{why}", code.unwrap_or_default()),
        };
        format!("{text}{gap}[{end}]{note}")
    }

    /// Describes a result with up to `returned` bytes of each stream; `None` for no output.
    pub(crate) fn of(result: &ShellResult, returned: Option<usize>) -> Self {
        let text = |output: &Output| match returned {
            Some(most) => output.text(most),
            None => ("capture disabled".to_owned(), false),
        };
        let ((stdout, cut_out), (stderr, cut_err)) = (text(&result.stdout), text(&result.stderr));
        Self {
            exit_code: Some(if result.timed_out { TIMED_OUT } else { result.exit_code }),
            stdout,
            stderr,
            cwd: result.cwd.rooted(),
            duration_seconds: result.duration.as_secs_f64(),
            timed_out: result.timed_out,
            truncated: cut_out || cut_err,
            signal: result.signal,
            lost: result.lost,
            interpreter: None,
            exit_note: exit_note(result),
            note: None,
            process: None,
            next: None,
        }
    }
}
