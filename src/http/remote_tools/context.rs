//! The context of a tool that the server calls back.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::wire::{CallMessage, EncodedBytes, RemoteEntry, RemoteRun, RunCommand, ToolRequest};
use crate::engine::event::{CommandLine, Event};
use crate::engine::id::{Seq, SessionId};
use crate::tools::ToolError;

pub(super) type PendingAsk = (ToolRequest, oneshot::Sender<Result<Value, String>>);

/// A remote tool's access to the files and the shell of the call's workspace.
///
/// Each request goes to the process that owns the workspace. Changes of files are staged there: this call sees them at
/// once, other calls after its success. Paths are as in the parameters of the file tools.
pub struct RemoteContext {
    call: CallMessage,
    deadline: Instant,
    cancel: CancellationToken,
    asks: mpsc::Sender<PendingAsk>,
}

/// A command for [`RemoteContext::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCommand {
    /// The command.
    pub command: CommandLine,
    /// The directory to run it in.
    pub cwd: String,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Its standard input.
    pub stdin: Bytes,
    /// Its time limit; `None` for the shell's default.
    pub timeout: Option<Duration>,
}

impl RemoteCommand {
    /// Creates a command that runs in the workspace's root.
    pub fn new(command: CommandLine) -> Self {
        Self { command, cwd: String::new(), env: BTreeMap::new(), stdin: Bytes::new(), timeout: None }
    }
}

impl RemoteContext {
    pub(super) fn new(call: CallMessage, cancel: CancellationToken, asks: mpsc::Sender<PendingAsk>) -> Self {
        let deadline = Instant::now() + Duration::from_millis(call.limit_ms.min(LONGEST_MS));
        Self { call, deadline, cancel, asks }
    }

    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.call.session
    }

    /// Returns the session's name.
    pub fn session_name(&self) -> &str {
        &self.call.session_name
    }

    /// Returns the agent that called.
    pub fn agent(&self) -> &str {
        &self.call.agent
    }

    /// Returns the call id: the position of the call's intent.
    pub fn call(&self) -> Seq {
        self.call.call
    }

    /// Returns the rest of the time limit.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the token that is cancelled with the call.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Reads a file, following links.
    pub async fn read(&mut self, path: &str) -> Result<Bytes, ToolError> {
        let contents: EncodedBytes = self.ask(ToolRequest::Read { path: path.to_owned() }).await?;
        contents.bytes().map_err(|error| ToolError::new(format!("the answer is not base64: {error}")))
    }

    /// Writes a file, following links. A missing file and missing parent directories are created.
    pub async fn write(&mut self, path: &str, bytes: impl AsRef<[u8]> + Send) -> Result<(), ToolError> {
        let contents = EncodedBytes::of(bytes.as_ref());
        self.ask(ToolRequest::Write { path: path.to_owned(), contents }).await
    }

    /// Removes an entry; a directory with everything below it.
    pub async fn remove(&mut self, path: &str) -> Result<(), ToolError> {
        self.ask(ToolRequest::Remove { path: path.to_owned() }).await
    }

    /// Lists all entries below a directory.
    pub async fn list(&mut self, below: &str) -> Result<Vec<RemoteEntry>, ToolError> {
        self.ask(ToolRequest::List { below: below.to_owned() }).await
    }

    /// Runs a command if the session's policy allows it. It sees the call's earlier changes; its own changes are
    /// recorded whatever the outcome.
    pub async fn run(&mut self, command: RemoteCommand) -> Result<RemoteRun, ToolError> {
        let RemoteCommand { command, cwd, env, stdin, timeout } = command;
        let stdin = (!stdin.is_empty()).then(|| EncodedBytes::of(&stdin));
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self.ask(ToolRequest::Run(RunCommand { command, cwd, env, stdin, timeout_ms })).await
    }

    /// Adds the program's own event to the call's commit. The server must not have an event of that kind; programs that
    /// know the kind fold it, others count it as unknown. References that it declares are left out.
    pub async fn record<E: Event>(&mut self, event: &E) -> Result<(), ToolError> {
        let mut bytes = Vec::new();
        event.encode(&mut bytes).map_err(|error| ToolError::new(error.to_string()))?;
        let payload = EncodedBytes::of(&bytes);
        self.ask(ToolRequest::Record { kind: E::KIND.to_owned(), version: E::VERSION, payload }).await
    }

    /// Shows text to watchers of the call, like the output of a command. It is not recorded.
    pub async fn show(&mut self, text: &str) -> Result<(), ToolError> {
        self.ask(ToolRequest::Show { text: text.to_owned() }).await
    }

    async fn ask<T: DeserializeOwned>(&mut self, ask: ToolRequest) -> Result<T, ToolError> {
        let (tell, answer) = oneshot::channel();
        let gone = || ToolError::new("the connection to the server is closed");
        self.asks.send((ask, tell)).await.map_err(|_| gone())?;
        let answer = answer.await.map_err(|_| gone())?.map_err(ToolError::new)?;
        serde_json::from_value(answer).map_err(|error| ToolError::new(format!("unexpected answer: {error}")))
    }
}

/// A day: a longer limit is as good as none, and could overflow the clock.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;
