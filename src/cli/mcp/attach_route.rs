//! The route that connects MCP clients to the owner.

use axum::Router;
use foldspace::http::{HttpFace, UpgradeRequest, upgrade_route};
use foldspace::mcp::McpServer;
use futures_util::FutureExt;

pub(super) const ATTACH_PATH: &str = "/v1/mcp";
pub(super) const ATTACH_PROTOCOL: &str = "foldspace-mcp";

/// Returns the route that `foldspace mcp` in other processes connects to.
pub(in crate::cli) fn attach_route(face: &HttpFace) -> Router {
    upgrade_route(face, ATTACH_PATH, ATTACH_PROTOCOL, |request| {
        let UpgradeRequest { hub, caller, params, end } = request;
        let server = McpServer::for_process(&hub, caller, params)?;
        Ok(Box::new(move |stream| {
            async move {
                let (input, output) = tokio::io::split(stream);
                if let Err(error) = server.serve(input, output, end).await {
                    tracing::debug!(%error, "the connection of an MCP client failed");
                }
            }
            .boxed()
        }))
    })
}
