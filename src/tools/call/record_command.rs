//! Events of commands and evaluations that have run.

use crate::backends::{Output, ShellResult, TerminalRecording};
use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::event::{CommandResult, EvalResult, RecordedOutput, TerminalRecorded};

pub(crate) enum RecordAs {
    Command { backend: &'static str },
    Evaluation { language: &'static str, place: &'static str, code: String },
}

impl RecordAs {
    /// Logs the command as recorded, without values of variables.
    fn log(&self, result: &ShellResult, micros: u64) {
        let (component, command) = match self {
            Self::Command { backend } => (format!("tools.{backend}"), result.command.to_string()),
            Self::Evaluation { language, place, code } => {
                (format!("tools.{place}"), format!("{language} {}", Content::of(code.clone()).digest))
            }
        };
        let ShellResult { exit_code, timed_out, .. } = *result;
        let cwd = result.cwd.rooted();
        tracing::debug!(component, command, cwd, exit_code, timed_out, micros, "command");
    }

    pub(crate) fn record(self, facts: &mut Commit, result: &ShellResult) -> Result<(), CommitError> {
        let micros = u64::try_from(result.duration.as_micros()).unwrap_or(u64::MAX);
        self.log(result, micros);
        let (stdout, stderr) = (kept(facts, &result.stdout), kept(facts, &result.stderr));
        match self {
            Self::Command { backend } => facts.push(&CommandResult {
                backend: backend.to_owned(),
                command: result.command.clone(),
                cwd: result.cwd.clone(),
                exit_code: result.exit_code,
                signal: result.signal,
                timed_out: result.timed_out,
                cancelled: result.cancelled,
                lost: result.lost,
                micros,
                stdout,
                stderr,
            })?,
            Self::Evaluation { language, place, code } => {
                let code = Content::of(code);
                let digest = code.digest;
                facts.keep(code);
                facts.push(&EvalResult {
                    language: language.to_owned(),
                    place: place.to_owned(),
                    code: digest,
                    exit_code: result.exit_code,
                    timed_out: result.timed_out,
                    cancelled: result.cancelled,
                    micros,
                    stdout,
                    stderr,
                })?;
            }
        }
        match &result.terminal {
            Some(recording) => recorded(facts, recording),
            None => Ok(()),
        }
    }
}

fn recorded(facts: &mut Commit, recording: &TerminalRecording) -> Result<(), CommitError> {
    let TerminalRecording { window, cast, truncated } = recording;
    let content = Content::of(cast.clone());
    let (cast, bytes) = (content.digest, content.bytes.len() as u64);
    facts.keep(content);
    facts.push(&TerminalRecorded { rows: window.rows, columns: window.columns, cast, bytes, truncated: *truncated })
}

fn kept(facts: &mut Commit, output: &Output) -> RecordedOutput {
    let content = Content::of(output.kept.clone());
    let recorded = RecordedOutput { content: content.digest, kept: content.bytes.len() as u64, bytes: output.bytes };
    facts.keep(content);
    recorded
}
