//! A command at a terminal in a throw-away copy of a session's workspace: nothing is recorded.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::calls::CallRequest;
use super::problem::{HttpProblem, ProblemKind};
use super::stream::CallTeller;
use super::{HttpFace, blocking};
use crate::backends::{ShellCommand, WindowSize};
use crate::engine::event::CallStatus;
use crate::engine::id::Seq;
use crate::hub::operations::ProbeCommand;
use crate::tools::{CommandOutput, OutputOptions, Outputs, Probe, TERMINAL, ToolCall, ToolOutcome};

/// The parameters of a call in a copy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiedCommand {
    command: ProbeCommand,
    #[serde(default)]
    tty: bool,
}

/// Runs a call's command to its end in a copy of the workspace at a position, and removes the copy.
pub(super) async fn run_in_copy(
    face: &HttpFace,
    (session, at): (String, Seq),
    request: CallRequest,
    (call, window): (ToolCall, WindowSize),
    teller: CallTeller,
) -> Result<ToolOutcome, HttpProblem> {
    let command = command_of(&call, window)?;
    let mut rules = (*face.rules).clone();
    rules.policy.auto_confirm |= request.auto_confirm;
    rules.policy.allow.extend(request.allow.iter().cloned());
    rules.policy.deny.extend(request.deny()?);
    let (session, home) = (face.session(&session).await?, face.hub().options().home.clone());
    let mut probe = blocking(move || Probe::of_session(&session, at, &home, rules)).await??;
    let outputs = Outputs::default();
    // Nothing is recorded, so the call gets no position.
    drop(teller.begun.send((0, Some(outputs.subscribe(OutputOptions { call: None, whole: true })))));
    let watch = move |stream, bytes: &[u8]| {
        outputs.show(|| CommandOutput { call: 0, stream, bytes: Bytes::copy_from_slice(bytes) });
    };
    let cancel = call.cancel.clone();
    let ran = {
        let mut running = std::pin::pin!(probe.run(command, Arc::new(watch), cancel.clone()));
        tokio::select! {
            ran = &mut running => ran,
            () = face.shared.ending.cancelled() => {
                cancel.cancel();
                running.await
            }
        }
    };
    // Dropping it removes its files.
    blocking(move || drop(probe)).await?;
    let ran = ran?;
    let status = if ran.cancelled { CallStatus::Interrupted } else { CallStatus::Ok };
    let (micros, text) = (u64::try_from(ran.duration.as_micros()).unwrap_or(u64::MAX), status.word().to_owned());
    let result = json!({ "exit_code": ran.exit_code, "timed_out": ran.timed_out });
    let (reason, ran, limit, repeated) = (None, None, None, false);
    Ok(ToolOutcome { call: 0, finished: 0, status, result, text, micros, reason, ran, limit, repeated })
}

fn command_of(call: &ToolCall, window: WindowSize) -> Result<ShellCommand, HttpProblem> {
    let wrong = |detail: String| HttpProblem::new(ProblemKind::Unusable, detail);
    if call.tool != "shell_execute" {
        return Err(wrong(format!("{} can't be called in a copy; shell_execute can", call.tool)));
    }
    let CopiedCommand { command, tty } = serde_json::from_value(call.params.clone())
        .map_err(|error| wrong(format!("a command in a copy has `command` and `tty`: {error}")))?;
    let mut command = match command {
        ProbeCommand::Text(text) => ShellCommand::shell(text),
        ProbeCommand::Words(words) => ShellCommand::args(words),
    };
    command.terminal = tty.then_some(window);
    if tty {
        command.env.insert("TERM".to_owned(), TERMINAL.to_owned());
    }
    (command.input, command.is_unlimited) = (call.input.clone(), true);
    Ok(command)
}
