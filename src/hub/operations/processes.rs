//! Background processes of a session.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::backends::WindowSize;
use crate::engine::id::Seq;
use crate::tools::processes::{Process, ProcessDocument, signal_number};

async fn process(context: &OperationContext<'_>, number: Seq) -> Result<Arc<Process>, OperationError> {
    let session = context.session().await?;
    context.hub.process(session.id(), number).ok_or_else(|| no_process(session.name(), number))
}

pub fn no_process(session: &str, number: Seq) -> OperationError {
    OperationError::not_found(format!("session {session} has no process {number}; its log lists older processes"))
}

/// Lists a session's running background processes and the last finished ones.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListProcesses {}

impl Operation for ListProcesses {
    const NAME: &'static str = "list_processes";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("processes", "/v1/sessions/{session}/processes");
    type Output = Vec<ProcessDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<ProcessDocument>, OperationError> {
        let session = context.session().await?;
        Ok(context.hub.processes(session.id()).iter().map(|process| process.document()).collect())
    }
}

/// Shows a process.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowProcess {
    /// Its number.
    pub process: Seq,
}

impl Operation for ShowProcess {
    const NAME: &'static str = "show_process";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::get("processes", "/v1/sessions/{session}/processes/{process}");
    type Output = ProcessDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<ProcessDocument, OperationError> {
        Ok(process(context, self.process).await?.document())
    }
}

/// Waits for a process to end, at most `timeout_seconds`, and returns its status.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "WaitRequest")]
#[serde(deny_unknown_fields)]
pub struct WaitProcess {
    /// Its number.
    pub process: Seq,
    /// Seconds to wait, at most and by default 86,400.
    pub timeout_seconds: Option<f64>,
}

impl Operation for WaitProcess {
    const NAME: &'static str = "wait_process";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::post("processes", "/v1/sessions/{session}/processes/{process}/wait", 200);
    type Output = ProcessDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<ProcessDocument, OperationError> {
        let seconds = self.timeout_seconds.unwrap_or(86_400.0);
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() <= 86_400);
        let time =
            time.ok_or_else(|| OperationError::invalid(format!("timeout_seconds is {seconds}; the limit is 86400")))?;
        let process = process(context, self.process).await?;
        tokio::select! {
            _ = tokio::time::timeout(time, process.ended()) => {}
            () = context.cancel.cancelled() => {}
        }
        Ok(process.document())
    }
}

/// Sends input to a process: `text` or `base64`, at most 4 MiB. Waits while the process does not read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ProcessInput")]
#[serde(deny_unknown_fields)]
pub struct SendInput {
    /// Its number.
    pub process: Seq,
    /// Text.
    pub text: Option<String>,
    /// Bytes, as base64.
    pub base64: Option<String>,
    /// True to end the input afterwards; on a terminal, like Ctrl-D.
    #[serde(default)]
    pub end: bool,
    /// The new size of its terminal.
    pub window: Option<WindowSize>,
}

impl Operation for SendInput {
    const NAME: &'static str = "send_input";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::post("processes", "/v1/sessions/{session}/processes/{process}/input", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let bytes = match (self.text, self.base64) {
            (Some(_), Some(_)) => return Err(OperationError::invalid("give text or base64, not both")),
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => {
                STANDARD.decode(base64).map_err(|error| OperationError::invalid(format!("base64: {error}")))?
            }
            (None, None) => Vec::new(),
        };
        let process = process(context, self.process).await?;
        context.check_commands().await?;
        if let Some(window) = self.window {
            process.input.resize(window);
        }
        let sent = tokio::select! {
            sent = async { bytes.is_empty() || process.input.send(&bytes).await } => sent,
            () = context.cancel.cancelled() => false,
        };
        if !sent {
            return Err(OperationError::refused(format!("process {} accepts no more input", self.process)));
        }
        if self.end {
            process.input.end();
        }
        Ok(())
    }
}

/// Sends a signal to a process and its group. `KILL` ends everything that it has started.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ProcessSignal")]
#[serde(deny_unknown_fields)]
pub struct SignalProcess {
    /// Its number.
    pub process: Seq,
    /// The signal: a name such as `TERM`, or a number.
    pub signal: Value,
}

impl Operation for SignalProcess {
    const NAME: &'static str = "signal_process";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::post("processes", "/v1/sessions/{session}/processes/{process}/signal", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let number = signal_number(&self.signal).map_err(|error| OperationError::invalid(error.to_string()))?;
        let process = process(context, self.process).await?;
        context.check_commands().await?;
        if !process.is_running() {
            return Err(OperationError::refused(format!("process {} has ended", self.process)));
        }
        process.signal(number);
        Ok(())
    }
}
