//! Messages as lines, from standard input and to standard output.
//!
//! Memory is bounded: a number of requests is in flight, more wait, and when too much waits nothing is read. Other messages
//! overtake requests: a cancellation or an answer may be what a request waits for.
//!
//! Calls begin in order of arrival. One that may change files runs alone; reads run beside reads.

pub(crate) mod in_flight;
pub(crate) mod queue;
mod reader;
mod writer;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, GetExtensions, GetMeta, JsonRpcMessage,
    ProtocolVersion, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::MESSAGE_MAX;
use super::order::Order;
use in_flight::{InFlightRequests, RequestGuard};
use queue::{QueuedRequest, RequestQueue};
use reader::{InputLine, LineReader};
use writer::LineWriter;

/// Requests in flight at once.
const UNDER_WAY_MAX: usize = 64;
/// Bytes of requests that wait.
const WAITING_MAX: usize = 16 << 20;
/// Time that calls go on after the end of the input, since the last one ended: the client may still read.
const GRACE: Duration = Duration::from_secs(1);

pub(super) type Ordering = Box<dyn Fn(&ClientRequest) -> Order + Send + Sync>;

pub(super) struct LineTransport<R, W> {
    reader: LineReader<R>,
    writer: LineWriter<W>,
    under_way: InFlightRequests,
    waiting: RequestQueue,
    order: Ordering,
    /// An answer of the transport itself. Nothing is read meanwhile, or a client could cause many.
    answering: Option<BoxFuture<'static, ()>>,
    /// True after the handshake; before it a notification is about nothing.
    has_begun: bool,
    ends_at: Option<Instant>,
    gone: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W, gone: CancellationToken, order: Ordering) -> Self {
        Self {
            reader: LineReader::new(input, MESSAGE_MAX),
            writer: LineWriter::new(output, gone.clone()),
            under_way: InFlightRequests::default(),
            waiting: RequestQueue::default(),
            order,
            answering: None,
            has_begun: false,
            ends_at: None,
            gone,
        }
    }

    fn next_waiting(&mut self) -> Option<ClientJsonRpcMessage> {
        if self.under_way.count() >= UNDER_WAY_MAX {
            return None;
        }
        let QueuedRequest { mut message, order, .. } = self.waiting.next(|order| self.under_way.admits(order))?;
        if let JsonRpcMessage::Request(request) = &mut message {
            let slot = self.under_way.begin(request.id.clone(), order);
            request.request.extensions_mut().insert::<RequestGuard>(slot);
        }
        Some(message)
    }

    fn take(&mut self, line: InputLine) -> Option<ClientJsonRpcMessage> {
        let bytes = match line {
            InputLine::Whole(bytes) => bytes,
            InputLine::TooLong => {
                let what = format!("a message has at most {MESSAGE_MAX} bytes; this one was not read");
                self.refuse(None, ErrorCode::INVALID_REQUEST, &what);
                return None;
            }
        };
        let size = bytes.len();
        match serde_json::from_slice::<ClientJsonRpcMessage>(&bytes) {
            Ok(JsonRpcMessage::Request(request)) => {
                if self.under_way.has(&request.id) || self.waiting.has(&request.id) {
                    let what = "a request with that id is under way already";
                    self.refuse(Some(&request.id), ErrorCode::INVALID_REQUEST, what);
                    return None;
                }
                self.has_begun |= begins(&request.request);
                let order = (self.order)(&request.request);
                self.waiting.push(QueuedRequest { message: JsonRpcMessage::Request(request), order, bytes: size });
                None
            }
            Ok(_) if !self.has_begun => None,
            Ok(message) => self.pass(message),
            Err(_) => {
                self.refuse_line(&bytes);
                None
            }
        }
    }

    /// Passes on what is no request. A request that is cancelled before it began gets no answer.
    fn pass(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        if let JsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            if self.waiting.remove(id).is_some() {
                return None;
            }
            self.under_way.cancel(id);
        }
        Some(message)
    }

    fn refuse_line(&mut self, bytes: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
            return self.refuse(None, ErrorCode::PARSE_ERROR, "this line is no JSON, or nested too deep");
        };
        let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        match &value {
            Value::Array(_) => {
                let what = "batches are not taken; send each message as a line of its own";
                self.refuse(None, ErrorCode::INVALID_REQUEST, what);
            }
            Value::Object(fields) if id.is_some() && fields.get("method").is_some_and(Value::is_string) => {
                self.refuse(id.as_ref(), ErrorCode::INVALID_PARAMS, "the parameters of a request are an object");
            }
            // A notification is never answered.
            Value::Object(fields) if fields.contains_key("method") && !fields.contains_key("id") => {}
            _ => {
                let what = "this is no message of JSON-RPC 2.0 with an id that is a text or a whole number";
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
        // If it fails, the client is gone.
        self.answering = Some(async move { drop(writer.write(&answer).await) }.boxed());
    }

    /// Waits for calls in flight after the end of the input; false when it is over.
    async fn wind_up(&mut self) -> bool {
        let ends_at = *self.ends_at.get_or_insert_with(|| Instant::now() + GRACE);
        let is_idle = self.waiting.is_empty() && self.under_way.count() == 0;
        if is_idle || self.gone.is_cancelled() || Instant::now() >= ends_at {
            self.gone.cancel();
            return false;
        }
        tokio::select! {
            // One that wrote many waits for them all.
            () = self.under_way.fewer() => self.ends_at = None,
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
        let (writer, under_way) = (self.writer.clone(), self.under_way.clone());
        async move {
            let written = writer.write(&item).await;
            let answered = match &item {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                _ => None,
            };
            if let Some(id) = answered {
                under_way.end(id);
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(answering) = &mut self.answering {
                answering.await;
                self.answering = None;
            }
            if let Some(message) = self.next_waiting() {
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
                line = self.reader.next(), if self.waiting.bytes() < WAITING_MAX => line,
                () = self.under_way.fewer(), if !self.waiting.is_empty() => None,
                () = self.gone.cancelled() => None,
            };
            if let Some(message) = line.and_then(|line| self.take(line)) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // It may be in the middle of a line, and is not gone on with any more.
        self.answering = None;
        self.writer.close().await
    }
}
