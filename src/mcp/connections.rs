//! HTTP connections of clients: the order of their calls, and the answers to cancelled calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResult, CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, JsonRpcRequest, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};

use super::client::ServerState;
use super::requests::{Awaited, ConnectionRequests};
use super::{UNUSED_MAX, calls};
use crate::engine::lock::lock;

/// Time limit for a client to reconnect after its connection broke.
const GRACE: Duration = Duration::from_secs(5);

type LocalTransport = <LocalSessionManager as SessionManager>::Transport;

/// The HTTP connections of clients.
///
/// Calls of one client begin in order of arrival, even on different TCP connections. A cancelled request gets an
/// answer, so that its client does not resume the stream.
pub(super) struct Connections {
    local: Arc<LocalSessionManager>,
    shared: Arc<ServerState>,
    /// The number of reconnections by client.
    resumed: Arc<Mutex<BTreeMap<SessionId, u64>>>,
}

impl Connections {
    pub(super) fn new(shared: &Arc<ServerState>) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(UNUSED_MAX);
        // Only streams of cancelled requests would be cached, and they are not replayed.
        local.session_config.completed_cache_ttl = Duration::ZERO;
        Self { local: Arc::new(local), shared: Arc::clone(shared), resumed: Arc::default() }
    }
}

impl SessionManager for Connections {
    type Error = LocalSessionManagerError;
    type Transport = OrderedTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, local) = self.local.create_session().await?;
        Ok((id, OrderedTransport { local, requests: ConnectionRequests::new(&self.shared) }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        lock(&self.resumed).remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let is_answered = Arc::new(AtomicBool::new(false));
        let (mut last, mut left) = (None, None);
        if let JsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(Awaited(Arc::downgrade(&is_answered)));
            last = Some(cancelled(request));
            left = Some(LeftRequest {
                local: Arc::clone(&self.local),
                resumed: Arc::clone(&self.resumed),
                client: id.clone(),
                request: request.id.clone(),
                is_answered: Arc::clone(&is_answered),
            });
        }
        let seen = Arc::clone(&is_answered);
        let told = self.local.create_stream(id, message).await?.inspect(move |told| {
            let is_answer =
                matches!(told.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
            seen.fetch_or(is_answer, Ordering::Relaxed);
            // Moved into the closure, so that it is dropped with the stream.
            let _ = &left;
        });
        // A cancellation ends the stream without an answer.
        let last = std::iter::once_with(move || last.filter(|_| !is_answered.load(Ordering::Relaxed))).flatten();
        Ok(told.chain(stream::iter(last)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        *lock(&self.resumed).entry(id.clone()).or_default() += 1;
        self.local.resume(id, last_event_id).await
    }
}

/// Cancels a request on drop, if its client left before the answer and does not reconnect.
struct LeftRequest {
    local: Arc<LocalSessionManager>,
    resumed: Arc<Mutex<BTreeMap<SessionId, u64>>>,
    client: SessionId,
    request: RequestId,
    is_answered: Arc<AtomicBool>,
}

impl LeftRequest {
    fn times_resumed(&self) -> u64 {
        lock(&self.resumed).get(&self.client).copied().unwrap_or_default()
    }
}

impl Drop for LeftRequest {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_answered.load(Ordering::Relaxed) {
            return;
        }
        let (local, resumed, before) = (Arc::clone(&self.local), Arc::clone(&self.resumed), self.times_resumed());
        let (client, request) = (self.client.clone(), self.request.clone());
        runtime.spawn(async move {
            tokio::time::sleep(GRACE).await;
            let times = lock(&resumed).get(&client).copied().unwrap_or_default();
            if times != before {
                return;
            }
            let params = CancelledNotificationParam::new(Some(request), Some("its client disconnected".to_owned()));
            let cancelled = ClientNotification::CancelledNotification(CancelledNotification::new(params));
            // Fails if the client has ended; its calls have ended, too.
            let _ = local.accept_message(&client, ClientJsonRpcMessage::notification(cancelled)).await;
        });
    }
}

/// Returns the last message of a cancelled request. Some clients resume a stream that ends with an error.
fn cancelled(request: &JsonRpcRequest<ClientRequest>) -> ServerSseMessage {
    let id = request.id.clone();
    ServerSseMessage::from_message(match &request.request {
        ClientRequest::CallToolRequest(_) => {
            let mut result: CallToolResult = calls::failed(&"the call was cancelled");
            // Protocol versions with connections lack this field.
            result.result_type = None;
            ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), id)
        }
        _ => ServerJsonRpcMessage::error(ErrorData::internal_error("the request was cancelled", None), Some(id)),
    })
}

/// The messages of one connection. Its calls begin in order of arrival.
pub(super) struct OrderedTransport {
    local: LocalTransport,
    requests: ConnectionRequests,
}

impl Transport<RoleServer> for OrderedTransport {
    type Error = <LocalTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.requests.in_flight().sent(&item);
        self.local.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(message) = self.requests.next() {
                return Some(message);
            }
            let message = tokio::select! {
                message = self.local.receive() => message?,
                () = self.requests.in_flight().fewer() => continue,
            };
            match message {
                JsonRpcMessage::Request(request) => self.requests.push(request, 0),
                message => {
                    if let Some(message) = self.requests.pass(message) {
                        return Some(message);
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.local.close().await
    }
}
