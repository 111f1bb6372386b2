//! The server of the Model Context Protocol: a workspace with its tools, and all that is recorded of it, for any client.

mod asking;
mod calls;
mod client;
mod handler;
mod instructions;
mod lines;
mod names;
mod offer;
mod options;
mod orchestrate;
mod parked;
mod progress;
mod resources;
mod stateless;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use client::{Client, Shared};
use handler::Handler;
use lines::Lines;
pub use options::{McpOptions, ToolGroup, UnknownGroup};
use stateless::Stateless;

/// Bytes of one message; a call's parameters have a limit of their own below that.
const MESSAGE_MAX: usize = 8 << 20;
/// How long a connection over HTTP lasts on which nothing is said: with it goes what its client has begun.
const UNUSED_MAX: Duration = Duration::from_secs(60 * 60);

/// Serves the sessions of a hub to clients of the Model Context Protocol, in the versions 2024-11-05 to 2026-07-28.
///
/// A client's session is begun, or joined, at its first call that needs one: who only asks what there is leaves
/// nothing. Several clients in one session are several agents in it.
///
/// ```
/// use foldspace::{Hub, HubOptions, McpOptions, McpServer, Registry, Sessions};
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
    shared: Arc<Shared>,
}

/// Why a client could not be served to its end.
#[derive(Debug, thiserror::Error)]
#[error("the client could not be served: {0}")]
pub struct McpError(String);

impl McpServer {
    /// A server with no client yet.
    pub fn new(hub: Hub, options: McpOptions) -> Self {
        let (agents, parked) = (Arc::default(), parked::Parked::default());
        Self { shared: Arc::new(Shared { hub, options, agents, parked }) }
    }

    /// The same over this process's standard input and output.
    ///
    /// # Errors
    /// As [`serve`](McpServer::serve).
    pub async fn serve_standard_streams(&self, end: CancellationToken) -> Result<(), McpError> {
        // Pipes are waited for without a thread each, which saves two changes of threads for every message.
        let (input, output) = rmcp::transport::io::stdio_pipes();
        self.serve(input, output, end).await
    }

    /// Serves one client over lines, until it says no more or `end` is cancelled. Its calls are taken back then, and its
    /// session is let go of.
    ///
    /// # Errors
    /// [`McpError`] when the client does not speak the protocol.
    pub async fn serve<R, W>(&self, input: R, output: W, end: CancellationToken) -> Result<(), McpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let client = Client::new(&self.shared);
        let gone = client.gone.clone();
        let lines = Lines::new(input, output, gone.clone());
        let handler = Handler::new(client, None);
        let ending = end.clone();
        // Calls under way are told at once, so that their ends are answered before the connection ends.
        let watch = tokio::spawn(async move {
            ending.cancelled().await;
            gone.cancel();
        });
        let served = serve_server_with_ct(handler, lines, CancellationToken::new()).await;
        let served = match served {
            Ok(running) => running.waiting().await.map_err(|error| McpError(error.to_string())),
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
                Ok(QuitReason::Closed)
            }
            Err(error) => Err(McpError(names::shown(&error.to_string(), 1000))),
        };
        watch.abort();
        served.map(|_| ())
    }

    /// Serves clients over HTTP: a `tower` service that can be nested at a path, until `end` is cancelled. It takes every
    /// `Host` and `Origin`, and asks for no token: who nests it sees to that.
    ///
    /// With `?session=NAME` a client asks for a session. Clients of versions without connections are told apart by what
    /// they call themselves and what they ask for.
    pub fn streamable_http(
        &self,
        end: CancellationToken,
    ) -> StreamableHttpService<impl rmcp::ServerHandler + use<>, LocalSessionManager> {
        let (shared, stateless) = (Arc::clone(&self.shared), Arc::new(Stateless::new(&self.shared)));
        let make = move || Ok(Handler::new(Client::new(&shared), Some(Arc::clone(&stateless))));
        let mut connections = LocalSessionManager::default();
        connections.session_config.keep_alive = Some(UNUSED_MAX);
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_cancellation_token(end)
            .with_max_request_body_bytes(MESSAGE_MAX);
        StreamableHttpService::new(make, Arc::new(connections), config)
    }
}
