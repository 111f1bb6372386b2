//! The stdio transport: one message per line.
//!
//! Memory is bounded: requests beyond a limit wait, and when too many bytes wait, reading stops. Other messages
//! overtake requests, since a request may wait for a cancellation or an answer.

mod reader;
mod writer;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, GetMeta, JsonRpcMessage, ProtocolVersion, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::MESSAGE_MAX;
use super::requests::ConnectionRequests;
use reader::{InputLine, LineReader};
use writer::LineWriter;

/// Limit for waiting requests in bytes.
const WAITING_MAX: usize = 16 << 20;
/// Time limit for calls after the end of the input, counted from the last call that ended, since the client may still
/// read. Also the time limit for closing the output.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct LineTransport<R, W> {
    reader: LineReader<R>,
    writer: LineWriter<W>,
    requests: ConnectionRequests,
    /// A pending answer of the transport itself. Reading waits for it, so that a client can't pile up answers.
    answering: Option<BoxFuture<'static, ()>>,
    /// True after the handshake. Earlier notifications are ignored.
    has_begun: bool,
    ends_at: Option<Instant>,
    gone: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W, gone: CancellationToken, requests: ConnectionRequests) -> Self {
        Self {
            reader: LineReader::new(input, MESSAGE_MAX),
            writer: LineWriter::new(output, gone.clone()),
            requests,
            answering: None,
            has_begun: false,
            ends_at: None,
            gone,
        }
    }

    fn take(&mut self, line: InputLine) -> Option<ClientJsonRpcMessage> {
        let bytes = match line {
            InputLine::Whole(bytes) => bytes,
            InputLine::TooLong => {
                let what = format!("message too long; the limit is {MESSAGE_MAX} bytes");
                self.refuse(None, ErrorCode::INVALID_REQUEST, &what);
                return None;
            }
        };
        match serde_json::from_slice::<ClientJsonRpcMessage>(&bytes) {
            Ok(JsonRpcMessage::Request(request)) => {
                if self.requests.has(&request.id) {
                    let what = "a request with this id is already in flight";
                    self.refuse(Some(&request.id), ErrorCode::INVALID_REQUEST, what);
                    return None;
                }
                self.has_begun |= begins(&request.request);
                self.requests.push(request, bytes.len());
                None
            }
            Ok(_) if !self.has_begun => None,
            Ok(message) => self.requests.pass(message),
            Err(_) => {
                self.refuse_line(&bytes);
                None
            }
        }
    }

    fn refuse_line(&mut self, bytes: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
            return self.refuse(None, ErrorCode::PARSE_ERROR, "invalid or too deeply nested JSON");
        };
        let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        match &value {
            Value::Array(_) => {
                let what = "batches are not supported; send each message on its own line";
                self.refuse(None, ErrorCode::INVALID_REQUEST, what);
            }
            Value::Object(fields) if id.is_some() && fields.get("method").is_some_and(Value::is_string) => {
                self.refuse(id.as_ref(), ErrorCode::INVALID_PARAMS, "invalid request parameters");
            }
            // A notification is never answered.
            Value::Object(fields) if fields.contains_key("method") && !fields.contains_key("id") => {}
            _ => {
                let what = "invalid JSON-RPC 2.0 message; the id must be a string or an integer";
                self.refuse(id.as_ref(), ErrorCode::INVALID_REQUEST, what);
            }
        }
    }

    fn refuse(&mut self, id: Option<&RequestId>, code: ErrorCode, what: &str) {
        let mut answer = json!({ "jsonrpc": "2.0", "error": { "code": code, "message": what } });
        if let Some(id) = id {
            answer["id"] = json!(id);
        }
        let writer = self.writer.clone();
        // Writing fails only if the client is gone.
        self.answering = Some(async move { drop(writer.write(&answer).await) }.boxed());
    }

    /// Waits for calls in flight after the end of the input. Returns false when the wait is over.
    async fn wind_up(&mut self) -> bool {
        let ends_at = *self.ends_at.get_or_insert_with(|| Instant::now() + GRACE);
        let is_idle = !self.requests.is_waiting() && self.requests.in_flight().count() == 0;
        if is_idle || self.gone.is_cancelled() || Instant::now() >= ends_at {
            self.gone.cancel();
            return false;
        }
        tokio::select! {
            // A client that sent many requests may wait for all of them.
            () = self.requests.in_flight().fewer() => self.ends_at = None,
            () = self.gone.cancelled() => {}
            () = tokio::time::sleep_until(ends_at) => {}
        }
        true
    }
}

fn begins(request: &ClientRequest) -> bool {
    let is_whole = || request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    matches!(request, ClientRequest::InitializeRequest(_)) || is_whole()
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for LineTransport<R, W>
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (writer, in_flight) = (self.writer.clone(), self.requests.in_flight().clone());
        async move {
            let written = writer.write(&item).await;
            in_flight.sent(&item);
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                answering.await;
                self.answering = None;
            }
            if let Some(message) = self.requests.next() {
                return Some(message);
            }
            if self.gone.is_cancelled() {
                return None;
            }
            if self.reader.has_ended() {
                match self.wind_up().await {
                    true => continue,
                    false => return None,
                }
            }
            let line = tokio::select! {
                line = self.reader.next(), if self.requests.bytes() < WAITING_MAX => line,
                () = self.requests.in_flight().fewer(), if self.requests.is_waiting() => None,
                () = self.gone.cancelled() => None,
            };
            if let Some(message) = line.and_then(|line| self.take(line)) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.gone.cancel();
        let (answering, writer) = (self.answering.take(), &self.writer);
        let closing = async move {
            // It may have written part of a line.
            if let Some(answering) = answering {
                answering.await;
            }
            writer.close().await
        };
        tokio::time::timeout(GRACE, closing).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
    }
}
