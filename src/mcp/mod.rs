//! The MCP server: offers a workspace's tools and recorded history to any MCP client.

mod advice;
mod approver;
mod attach;
mod body_limit;
mod calls;
mod client;
mod connect_query;
mod connections;
mod elsewhere;
mod error;
mod handler;
mod instructions;
mod names;
mod offered;
mod options;
mod order;
mod pending_questions;
mod probe_approval;
mod progress;
mod requests;
mod resources;
mod session_tools;
mod sessionless;
mod shorten;
mod stdio;
mod tool_list;
mod watching;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::RouterIntoService;
use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::tools::ASK_THE_PERSON;
#[doc(hidden)]
pub use attach::AttachRequest;
use client::{McpClient, ServerState};
use connections::Connections;
pub use error::McpError;
use handler::Handler;
pub use options::{McpOptions, ToolGroup};
use requests::ConnectionRequests;
use sessionless::Stateless;
use stdio::LineTransport;

/// Limit for a message in bytes. A call's parameters have a separate, lower limit.
const MESSAGE_MAX: usize = 64 << 20;
/// Idle timeout of an HTTP connection, and of a client without a connection.
const UNUSED_MAX: Duration = Duration::from_secs(60 * 60);
/// Limit for concurrent HTTP connections and requests of clients without a connection.
const CONNECTIONS_MAX: usize = 4096;

/// Serves the sessions of a hub to clients of the Model Context Protocol, versions 2024-11-05 to 2026-07-28.
///
/// A client's session is created or joined at its first call that needs one; a client that only lists leaves nothing
/// behind. Several clients in one session are separate agents.
///
/// ```
/// # use foldspace_mcp as foldspace;
/// use foldspace::{Hub, Registry, Sessions, hub::HubOptions, mcp::{McpOptions, McpServer}};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
/// use tokio_util::sync::CancellationToken;
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
/// let server = McpServer::new(hub, McpOptions::default());
///
/// let (mut client, ours) = tokio::io::duplex(1 << 16);
/// let (input, output) = tokio::io::split(ours);
/// let serving = tokio::spawn(async move { server.serve(input, output, CancellationToken::new()).await });
/// let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
///     "capabilities":{},"clientInfo":{"name":"demo","version":"1"}}}"#;
/// client.write_all(format!("{}\n", hello.replace('\n', " ")).as_bytes()).await?;
/// let mut answer = String::new();
/// BufReader::new(&mut client).read_line(&mut answer).await?;
/// assert!(answer.contains("foldspace"));
/// drop(client);
/// serving.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<ServerState>,
}

impl McpServer {
    /// Creates a server with no clients.
    pub fn new(hub: Hub, mut options: McpOptions) -> Self {
        options.rules.advice.get_or_insert_with(|| ASK_THE_PERSON.into());
        Self { shared: Arc::new(ServerState { hub, options, agents: Arc::default(), offered: OnceLock::new() }) }
    }

    /// Serves one client over standard input and output.
    pub async fn serve_standard_streams(&self, end: CancellationToken) -> Result<(), McpError> {
        // Polls the pipes without a thread for each, which saves two thread switches per message.
        let (input, output) = rmcp::transport::io::stdio_pipes();
        self.serve(input, output, end).await
    }

    /// Serves one client over lines, until it ends or `end` is cancelled, and then cancels its calls.
    ///
    /// # Errors
    /// [`McpError`] if the client violates the protocol.
    pub async fn serve<R, W>(&self, input: R, output: W, end: CancellationToken) -> Result<(), McpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let client = McpClient::new(&self.shared, &end);
        let lines = LineTransport::new(input, output, client.gone.clone(), ConnectionRequests::new(&self.shared));
        let handler = Handler::new(client, None);
        // The client cancels its calls in flight, so that they are answered before the connection ends.
        let served = serve_server_with_ct(handler, lines, CancellationToken::new()).await;
        match served {
            Ok(running) => running.waiting().await.map(|_| ()).map_err(|error| McpError::Connection(error.to_string())),
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            // Ended before the client completed the handshake.
            Err(_) if end.is_cancelled() => Ok(()),
            Err(error) => Err(McpError::Connection(names::shown(&error.to_string(), 1000))),
        }
    }

    /// Returns a `tower` service that serves clients over HTTP until `end` is cancelled, and can be nested at a path.
    /// It accepts every `Host` and `Origin` without a token: the embedding program must check them.
    ///
    /// A client chooses its session with `?session=NAME`, its agent name with `?agent=NAME`, and a subset of the
    /// tools with `?tools=GROUPS`. Clients of protocol versions without connections are distinguished by name and
    /// query: two clients with equal names and queries count as one. A client that sends nothing for an hour is
    /// forgotten; with `?session=NAME` it returns to its session.
    pub fn streamable_http(&self, end: CancellationToken) -> RouterIntoService<Body> {
        let (shared, stateless) = (Arc::clone(&self.shared), Stateless::new(&self.shared, &end));
        let (ending, counted) = (end.clone(), Arc::new(()));
        let make = move || {
            if Arc::strong_count(&counted) > CONNECTIONS_MAX {
                return Err(std::io::Error::other(format!("too many connections; the limit is {CONNECTIONS_MAX}")));
            }
            Ok(Handler::new(McpClient::new(&shared, &ending), Some((Arc::clone(&stateless), Arc::clone(&counted)))))
        };
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_cancellation_token(end)
            .with_max_request_body_bytes(MESSAGE_MAX);
        let service = StreamableHttpService::new(make, Arc::new(Connections::new(&self.shared)), config);
        let checked = axum::middleware::from_fn_with_state(Arc::clone(&self.shared), body_limit::whole);
        let router = Router::new().fallback_service(service).layer(checked);
        router.into_service()
    }
}
