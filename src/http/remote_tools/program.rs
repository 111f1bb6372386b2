//! The program's side: it registers tools and answers the calls of the server.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::context::RemoteContext;
use super::tool::RemoteTools;
use super::wire::{self, CallMessage, REGISTER, RegisterRequest, ToProgram, ToServer};
use crate::engine::lock::lock;
use crate::http::upgrade::UpgradedStream;
use crate::http::{ClientError, HttpClient};
use crate::tools::{ErasedTool, ToolAnswer, ToolError};

/// A registration of tools, until it is dropped or the server ends.
#[derive(Debug)]
pub struct RegisteredTools {
    closed: CancellationToken,
    _end: DropGuard,
}

impl RegisteredTools {
    /// Waits until the connection to the server has ended.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl HttpClient {
    /// Registers tools at the server, in one session, by its name or the beginning of its id, or in all sessions. While
    /// the result lives, the server offers them like its own and calls them back on this connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if a name is taken there, or a tool's description and schemas are too long.
    pub async fn register_tools(
        &self,
        tools: &RemoteTools,
        session: Option<&str>,
    ) -> Result<RegisteredTools, ClientError> {
        let request = RegisterRequest { session: session.map(str::to_owned), tools: tools.offers() };
        let stream = self.upgrade(REGISTER.0, REGISTER.1, &request).await?;
        let (end, closed) = (CancellationToken::new(), CancellationToken::new());
        let (ending, ended) = (end.clone(), closed.clone().drop_guard());
        let tools = tools.clone();
        tokio::spawn(async move {
            if let Err(why) = serve(stream, &tools, &ending).await {
                tracing::warn!("the tools are no longer registered: {why}");
            }
            drop(ended);
        });
        Ok(RegisteredTools { closed, _end: end.drop_guard() })
    }
}

/// Calls in flight, by their numbers.
type AnsweredCalls = Arc<Mutex<BTreeMap<u64, AnsweredCall>>>;

struct AnsweredCall {
    cancel: CancellationToken,
    /// A call sends one request at a time, so a capacity of one is enough.
    replies: mpsc::Sender<Result<Value, String>>,
}

async fn serve(stream: UpgradedStream, tools: &RemoteTools, end: &CancellationToken) -> Result<(), String> {
    let (read, mut write) = tokio::io::split(stream);
    let (out, mut lines) = mpsc::channel::<Bytes>(1);
    let calls = AnsweredCalls::default();
    // The end of the connection cancels all calls.
    let all = CancellationToken::new();
    let _all = all.clone().drop_guard();
    let reading = async {
        let mut read = BufReader::new(read);
        while let Some(message) = wire::next::<ToProgram>(&mut read).await? {
            match message {
                ToProgram::Call(call) => begin(call, tools, &all, &calls, &out),
                ToProgram::Reply { id, ok, error } => {
                    if let Some(call) = lock(&calls).get(&id) {
                        drop(call.replies.try_send(error.map_or_else(|| Ok(ok.unwrap_or_default()), Err)));
                    }
                }
                ToProgram::Cancel { id } => {
                    if let Some(call) = lock(&calls).get(&id) {
                        call.cancel.cancel();
                    }
                }
            }
        }
        Ok(())
    };
    let writing = async {
        while let Some(line) = lines.recv().await {
            write.write_all(&line).await.map_err(|error| error.to_string())?;
            write.flush().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    tokio::select! {
        read = reading => read,
        written = writing => written,
        () = end.cancelled() => Ok(()),
    }
}

fn begin(
    call: CallMessage,
    tools: &RemoteTools,
    all: &CancellationToken,
    calls: &AnsweredCalls,
    out: &mpsc::Sender<Bytes>,
) {
    let Some(tool) = tools.0.get(&*call.tool).cloned() else { return };
    let (id, cancel) = (call.id, all.child_token());
    let (reply, replies) = mpsc::channel(1);
    lock(calls).insert(id, AnsweredCall { cancel: cancel.clone(), replies: reply });
    let (calls, out) = (Arc::clone(calls), out.clone());
    tokio::spawn(async move {
        let work = answer(tool, call, &cancel, replies, &out);
        if let Some(Some(message)) = cancel.run_until_cancelled(work).await {
            // The server may be gone.
            let _ = out.send(message).await;
        }
        lock(&calls).remove(&id);
    });
}

async fn answer(
    tool: Arc<dyn ErasedTool<RemoteContext>>,
    mut call: CallMessage,
    cancel: &CancellationToken,
    mut replies: mpsc::Receiver<Result<Value, String>>,
    out: &mpsc::Sender<Bytes>,
) -> Option<Bytes> {
    let (id, params) = (call.id, std::mem::take(&mut call.params));
    let (asks, mut asked) = mpsc::channel(1);
    let mut context = RemoteContext::new(call, cancel.clone(), asks);
    let mut work = std::pin::pin!(AssertUnwindSafe(tool.call(&mut context, params)).catch_unwind());
    // A tool may abandon a request; the next one still has to wait for the abandoned one's reply.
    let mut waiting: Option<oneshot::Sender<Result<Value, String>>> = None;
    let done = loop {
        tokio::select! {
            done = &mut work => break done.unwrap_or_else(|_| Err(ToolError::new("the tool failed: it panicked"))),
            Some(reply) = replies.recv() => drop(waiting.take().map(|tell| tell.send(reply))),
            Some((ask, tell)) = asked.recv(), if waiting.is_none() => match wire::line(&ToServer::Ask { id, ask }) {
                Ok(line) => {
                    waiting = Some(tell);
                    out.send(line).await.ok()?;
                }
                Err(error) => drop(tell.send(Err(error))),
            },
        }
    };
    let message = match done {
        Ok(ToolAnswer { result, text }) => ToServer::Done { id, result, text: Some(text) },
        Err(error) => ToServer::Failed { id, message: error.to_string() },
    };
    wire::line(&message).or_else(|message| wire::line(&ToServer::Failed { id, message })).ok()
}
