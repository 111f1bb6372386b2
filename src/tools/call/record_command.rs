//! Events of commands and evaluations that have run.

use crate::backends::{Output, ShellCommand, ShellResult, TerminalRecording};
use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::event::{CommandResult, EffectOutcome, EvalResult, RecordedOutput, TerminalRecorded};
use crate::engine::id::Seq;
use crate::tools::policy::effects::{effects_of, settle};

pub(crate) enum RecordAs {
    Command {
        backend: &'static str,
        /// The call that it began in, if another one records its end.
        began_in: Option<Seq>,
    },
    Evaluation {
        language: &'static str,
        place: &'static str,
        code: String,
    },
}

impl RecordAs {
    /// Logs the command as recorded, without values of variables.
    fn log(&self, result: &ShellResult, micros: u64) {
        let (component, command) = match self {
            Self::Command { backend, .. } => (format!("tools.{backend}"), result.command.to_string()),
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
            Self::Command { backend, began_in } => {
                record_effects(facts, result, began_in)?;
                facts.push(&CommandResult {
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
                })?;
            }
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

/// Records the outcomes of the effects that were announced before the command began, perhaps by another call.
fn record_effects(facts: &mut Commit, result: &ShellResult, began_in: Option<Seq>) -> Result<(), CommitError> {
    let was_ended = result.timed_out || result.cancelled || result.lost || result.signal.is_some();
    let exit_code = (!was_ended).then_some(result.exit_code);
    let mut effects = effects_of(&ShellCommand::new(result.command.clone()));
    settle(&mut effects, &result.command, exit_code);
    effects.retain(|effect| effect.outcome != EffectOutcome::Unknown);
    effects.iter_mut().try_for_each(|effect| {
        effect.of = began_in;
        facts.push(effect)
    })
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
