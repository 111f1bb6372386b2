//! The server's side of a program with tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::asks::{perform, told};
use super::wire::{self, CallMessage, ToProgram, ToServer, ToolOffer};
use crate::backends::HostCaller;
use crate::engine::lock::lock;
use crate::tools::{Answering, Effect, ErasedTool, ToolAnswer, ToolContext, ToolDescription, ToolError};

/// The most calls in flight of a program's tools.
const CALLS_MAX: usize = 64;
/// The most messages that wait for the program.
pub(super) const WAITING_MAX: usize = 4;
/// Time that a program may take to accept the cancellation of a call.
const PROGRAM_STALL_LIMIT: Duration = Duration::from_secs(10);

/// The connection to a program.
pub(super) struct ProgramLink {
    pub(super) program: HostCaller,
    out: mpsc::Sender<Bytes>,
    calls: Mutex<CallTable>,
    /// Notified when the last call has ended.
    idle: Notify,
    pub(super) closed: CancellationToken,
}

#[derive(Default)]
struct CallTable {
    last: u64,
    /// A call sends one message at a time and waits for its reply, so a capacity of one is enough.
    open: BTreeMap<u64, mpsc::Sender<ToServer>>,
}

impl ProgramLink {
    pub(super) fn new(program: HostCaller, out: mpsc::Sender<Bytes>) -> Arc<Self> {
        let (calls, idle, closed) = (Mutex::default(), Notify::new(), CancellationToken::new());
        Arc::new(Self { program, out, calls, idle, closed })
    }

    /// Passes a message to its call, or drops it if the call has ended.
    pub(super) fn take(&self, message: ToServer) -> Result<(), String> {
        let Some(call) = lock(&self.calls).open.get(&message.id()).cloned() else { return Ok(()) };
        match call.try_send(message) {
            Err(mpsc::error::TrySendError::Full(_)) => Err("it did not wait for the reply".to_owned()),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Waits until no call is in flight.
    pub(super) async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if lock(&self.calls).open.is_empty() {
                return;
            }
            idle.await;
        }
    }

    fn begin(self: &Arc<Self>) -> Result<CalledBack, ToolError> {
        let (tell, messages) = mpsc::channel(1);
        let mut calls = lock(&self.calls);
        if calls.open.len() >= CALLS_MAX {
            let what = format!("{CALLS_MAX} calls wait for the program that has this tool; retry later");
            return Err(ToolError::new(what));
        }
        calls.last += 1;
        let id = calls.last;
        calls.open.insert(id, tell);
        Ok(CalledBack { id, link: Arc::clone(self), messages, has_answered: false })
    }

    async fn send(&self, message: &ToProgram) -> Result<(), ToolError> {
        let line = wire::line(message).map_err(ToolError::new)?;
        tokio::select! {
            sent = self.out.send(line) => sent.map_err(|_| self.gone()),
            () = self.closed.cancelled() => Err(self.gone()),
        }
    }

    fn gone(&self) -> ToolError {
        let process = self.program.number();
        ToolError::new(format!("the program that has this tool (process {process}) ended before it answered"))
    }
}

/// A call that waits for the program.
struct CalledBack {
    id: u64,
    link: Arc<ProgramLink>,
    messages: mpsc::Receiver<ToServer>,
    has_answered: bool,
}

impl CalledBack {
    async fn next(&mut self) -> Result<ToServer, ToolError> {
        tokio::select! {
            biased;
            message = self.messages.recv() => message.ok_or_else(|| self.link.gone()),
            () = self.link.closed.cancelled() => Err(self.link.gone()),
        }
    }

    async fn work(&mut self, context: &mut ToolContext) -> Result<ToolAnswer, ToolError> {
        loop {
            match self.next().await? {
                ToServer::Ask { id, ask } => {
                    let done = tokio::select! {
                        done = perform(context, ask, &self.link.program) => done,
                        () = self.link.closed.cancelled() => return Err(self.link.gone()),
                    };
                    let (ok, error) = told(done);
                    self.link.send(&ToProgram::Reply { id, ok, error }).await?;
                }
                ToServer::Done { result, text, .. } => {
                    self.has_answered = true;
                    let shown = || serde_json::to_string_pretty(&result).unwrap_or_default();
                    return Ok(ToolAnswer { text: text.unwrap_or_else(shown), result });
                }
                ToServer::Failed { message, .. } => {
                    self.has_answered = true;
                    return Err(ToolError::new(message));
                }
            }
        }
    }
}

impl Drop for CalledBack {
    fn drop(&mut self) {
        let mut calls = lock(&self.link.calls);
        calls.open.remove(&self.id);
        if calls.open.is_empty() {
            self.link.idle.notify_waiters();
        }
        drop(calls);
        if self.has_answered || self.link.closed.is_cancelled() {
            return;
        }
        let (Ok(runtime), Ok(line)) =
            (tokio::runtime::Handle::try_current(), wire::line(&ToProgram::Cancel { id: self.id }))
        else {
            return;
        };
        let link = Arc::clone(&self.link);
        runtime.spawn(async move {
            if tokio::time::timeout(PROGRAM_STALL_LIMIT, link.out.send(line)).await.is_err() {
                tracing::warn!(
                    process = link.program.number(),
                    "a program with tools stopped reading and is disconnected"
                );
                link.closed.cancel();
            }
        });
    }
}

/// A tool that a program offers.
pub(super) struct OfferedTool {
    pub(super) offer: ToolOffer,
    pub(super) link: Arc<ProgramLink>,
}

impl ErasedTool for OfferedTool {
    fn describe(&self) -> ToolDescription {
        let ToolOffer { name, description, effect, params, output, .. } = self.offer.clone();
        ToolDescription { name: name.into(), description: description.into(), effect, params, output }
    }

    fn effect(&self) -> Effect {
        self.offer.effect
    }

    fn limit(&self) -> Option<Duration> {
        self.offer.limit_ms.map(Duration::from_millis)
    }

    fn call<'a>(&'a self, context: &'a mut ToolContext, params: Value) -> Answering<'a> {
        Box::pin(async move {
            let mut call = self.link.begin()?;
            let (id, tool) = (call.id, self.offer.name.clone());
            let message = CallMessage { id, tool, params, ..CallMessage::of(context) };
            self.link.send(&ToProgram::Call(message)).await?;
            call.work(context).await
        })
    }
}
