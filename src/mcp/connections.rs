//! Connections of clients over HTTP: the order of their calls, and the end of cancelled ones.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt, future, stream};
use rmcp::model::{
    CallToolResult, ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, GetExtensions, JsonRpcMessage,
    JsonRpcRequest, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use tokio::sync::{RwLock, mpsc};
use tokio_util::sync::CancellationToken;

use super::client::ServerState;
use super::order::Order;
use super::{UNUSED_MAX, calls};
use crate::engine::lock::lock;

/// The connections of clients over HTTP.
///
/// Calls of one connection begin in order of arrival, on whichever TCP connections they arrive. A cancelled request is
/// answered, so that its client does not resume the stream.
pub(super) struct Connections {
    local: Arc<LocalSessionManager>,
    shared: Arc<ServerState>,
    known: Mutex<BTreeMap<SessionId, ClientConnection>>,
}

#[derive(Default)]
struct ClientConnection {
    turns: Arc<RwLock<()>>,
    open: Vec<(RequestId, CancellationToken)>,
}

/// A place among the calls of a connection. Dropping the last clone frees it.
#[derive(Clone)]
struct CallTurn(#[expect(dead_code, reason = "it is there to be dropped")] Arc<dyn Any + Send + Sync>);

impl CallTurn {
    async fn take(turns: Arc<RwLock<()>>, order: Order) -> Self {
        Self(match order {
            Order::Reads => Arc::new(turns.read_owned().await),
            Order::Changes => Arc::new(turns.write_owned().await),
            Order::Free | Order::Resumes => Arc::new(()),
        })
    }
}

impl Connections {
    pub(super) fn new(shared: &Arc<ServerState>) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(UNUSED_MAX);
        // Only streams of cancelled requests are kept, and they are not replayed.
        local.session_config.completed_cache_ttl = Duration::ZERO;
        Self { local: Arc::new(local), shared: Arc::clone(shared), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SessionId, ClientConnection>> {
        lock(&self.known)
    }

    fn begin(&self, id: &SessionId, request: &RequestId, cancelled: &CancellationToken) -> Arc<RwLock<()>> {
        let mut known = self.known();
        let Some(connection) = known.get_mut(id) else { return Arc::default() };
        connection.open.retain(|(_, token)| !token.is_cancelled());
        connection.open.push((request.clone(), cancelled.clone()));
        Arc::clone(&connection.turns)
    }

    fn cancel(&self, id: &SessionId, request: &RequestId) {
        let known = self.known();
        let open = known.get(id).into_iter().flat_map(|connection| &connection.open);
        open.filter(|(known, _)| known == request).for_each(|(_, token)| token.cancel());
    }
}

impl SessionManager for Connections {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        self.known().insert(Arc::clone(&id), ClientConnection::default());
        Ok((id, transport))
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
        self.known().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let (tell, told) = mpsc::channel(1);
        if let JsonRpcMessage::Request(request) = message {
            let cancelled = CancellationToken::new();
            let turns = self.begin(id, &request.id, &cancelled);
            let mut turn = CallTurn::take(turns, Order::of(&self.shared, &request.request)).boxed();
            // Asked for once, it has its place in the queue.
            let turn = match future::poll_immediate(&mut turn).await {
                Some(turn) => future::ready(turn).boxed(),
                None => turn,
            };
            let local = Arc::clone(&self.local);
            let open =
                OpenConnections { local, id: Arc::clone(id), cancelled, tell, is_answered: AtomicBool::new(false) };
            tokio::spawn(open.answer(turn, request));
        }
        Ok(stream::unfold(told, |mut told| async move { told.recv().await.map(|message| (message, told)) }))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        let cancelled = match &message {
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
                _ => None,
            },
            _ => None,
        };
        // Before its stream is closed.
        if let Some(request) = cancelled {
            self.cancel(id, &request);
        }
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
        self.local.resume(id, last_event_id).await
    }
}

struct OpenConnections {
    local: Arc<LocalSessionManager>,
    id: SessionId,
    cancelled: CancellationToken,
    tell: mpsc::Sender<ServerSseMessage>,
    is_answered: AtomicBool,
}

impl OpenConnections {
    /// Forwards a request in its turn, and its messages back. A waiting request ends with its stream.
    async fn answer(self, turn: future::BoxFuture<'static, CallTurn>, request: JsonRpcRequest<ClientRequest>) {
        let _ended = self.cancelled.clone().drop_guard();
        let cancelled = cancelled(&request);
        tokio::select! {
            // A cancellation closes the stream that is passed back, too.
            biased;
            () = self.cancelled.cancelled() => {
                if !self.is_answered.load(Ordering::Relaxed) {
                    drop(self.tell.send(cancelled).await);
                }
            }
            () = self.pass(turn, request) => {}
            () = self.tell.closed() => {}
        }
    }

    async fn pass(&self, turn: future::BoxFuture<'static, CallTurn>, mut request: JsonRpcRequest<ClientRequest>) {
        // It goes with the request, so it lasts as long as the call, whether its client waits or not.
        request.request.extensions_mut().insert(turn.await);
        let id = request.id.clone();
        match self.local.create_stream(&self.id, JsonRpcMessage::Request(request)).await {
            Ok(told) => {
                let mut told = std::pin::pin!(told);
                while let Some(message) = told.next().await {
                    let is_answer = matches!(
                        message.message.as_deref(),
                        Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
                    );
                    self.is_answered.fetch_or(is_answer, Ordering::Relaxed);
                    if self.tell.send(message).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                let error = ErrorData::internal_error(error.to_string(), None);
                let message = ServerJsonRpcMessage::error(error, Some(id));
                drop(self.tell.send(ServerSseMessage::from_message(message)).await);
            }
        }
    }
}

/// Returns the last message of a cancelled request. Some clients resume a stream that ends with an error.
fn cancelled(request: &JsonRpcRequest<ClientRequest>) -> ServerSseMessage {
    let id = request.id.clone();
    ServerSseMessage::from_message(match &request.request {
        ClientRequest::CallToolRequest(_) => {
            let mut result: CallToolResult = calls::failed(&"the call was cancelled");
            // Versions with connections do not have it.
            result.result_type = None;
            ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), id)
        }
        _ => ServerJsonRpcMessage::error(ErrorData::internal_error("the request was cancelled", None), Some(id)),
    })
}
