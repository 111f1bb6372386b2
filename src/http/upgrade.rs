//! Connections on the unix socket that are upgraded to another protocol.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use super::HttpFace;
use super::problem::{HttpProblem, ProblemKind};
use super::{blocking, request};
use crate::backends::HostCaller;
use crate::hub::Hub;
use crate::hub::operations::OperationError;

/// A client's request to upgrade its connection.
pub struct UpgradeRequest {
    /// The open workspaces.
    pub hub: Hub,
    /// The client's process.
    pub caller: HostCaller,
    /// The body of the request.
    pub params: Value,
    /// Cancelled when the server shuts down.
    pub end: CancellationToken,
}

/// An upgraded connection.
pub type UpgradedStream = TokioIo<Upgraded>;

/// The work on an upgraded connection, until its end.
pub type UpgradeWork = Box<dyn FnOnce(UpgradedStream) -> BoxFuture<'static, ()> + Send>;

/// Returns a route that upgrades a client's connection to a protocol, for [`HttpFace::router_with`] on a unix socket.
/// The client counts as connected until the work ends.
pub fn upgrade_route(
    face: &HttpFace,
    path: &str,
    protocol: &'static str,
    begin: impl Fn(UpgradeRequest) -> Result<UpgradeWork, OperationError> + Send + Sync + 'static,
) -> Router {
    let (face, begin) = (face.clone(), Arc::new(begin));
    let answer = move |request: Request| {
        let (face, begin) = (face.clone(), Arc::clone(&begin));
        async move { upgrade(face, protocol, request, begin).await }
    };
    Router::new().route(path, post(answer))
}

/// The path and the protocol of clients that only stay connected.
pub(super) const ATTEND: (&str, &str) = ("/v1/attend", "foldspace-attend");

/// Returns the route for clients that stay connected, so that the server does not exit for lack of clients.
pub(super) fn attend_route(face: &HttpFace) -> Router {
    upgrade_route(face, ATTEND.0, ATTEND.1, |request| {
        Ok(Box::new(move |mut stream: UpgradedStream| {
            async move {
                // The client sends nothing: any read ends with the connection.
                let mut byte = [0];
                tokio::select! {
                    _ = stream.read(&mut byte) => {}
                    () = request.end.cancelled() => {}
                }
            }
            .boxed()
        }))
    })
}

async fn upgrade(
    face: HttpFace,
    protocol: &'static str,
    request: Request,
    begin: Arc<impl Fn(UpgradeRequest) -> Result<UpgradeWork, OperationError> + Send + Sync + 'static>,
) -> Result<Response, HttpProblem> {
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.remove::<HostCaller>();
    let local = || HttpProblem::new(ProblemKind::Forbidden, "only clients on the unix socket may do this");
    let caller = caller.ok_or_else(local)?;
    let is_meant = parts.headers.get(header::UPGRADE).is_some_and(|wanted| wanted == protocol);
    let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| is_meant);
    let unasked = || HttpProblem::new(ProblemKind::BadRequest, format!("ask for an upgrade to {protocol}"));
    let upgrade = upgrade.ok_or_else(unasked)?;
    let params = request::json(&parts, body).await?.into();
    let attendance = face.attend(&caller)?;
    let end = face.shared.ending.child_token();
    let asked = UpgradeRequest { hub: face.hub().clone(), caller, params, end };
    // `begin` may look up a session.
    let work = blocking(move || begin(asked)).await??;
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => work(TokioIo::new(stream)).await,
            Err(error) => tracing::debug!(%error, "failed to upgrade a connection"),
        }
        drop(attendance);
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(protocol)),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}
