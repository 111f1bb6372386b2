//! Ports of sandboxes: the host of a request is `PORT-SANDBOX.NAME`, as `get_host` returns it.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::E2bApi;
use crate::http::guard::note_known;
use crate::http::ports::{PortHost, Unanswered, pass_on};
use crate::hub::PortError;

/// The port of `envd`, which this server itself answers.
pub(super) const ENVD_PORT: u16 = 49_983;
/// The header with a sandbox's token for its ports. The port does not receive it.
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// Returns the answer of a sandbox's port; errors have the texts of E2B's proxy.
pub(super) async fn answer(api: &E2bApi, at: PortHost, mut request: Request) -> Response {
    let PortHost { session: name, port } = at.clone();
    let wrong = |status: StatusCode, message: &str| {
        let body = json!({ "sandboxId": name, "port": port, "message": message, "code": status.as_u16() });
        (status, axum::Json(body)).into_response()
    };
    let sandbox = match api.running(&name).await {
        Ok(sandbox) => sandbox,
        Err(error) if error.status == StatusCode::BAD_GATEWAY => {
            return wrong(StatusCode::BAD_GATEWAY, "The sandbox was not found");
        }
        Err(error) => return wrong(error.status, &error.message),
    };
    let shown = request.headers_mut().remove(TRAFFIC_TOKEN);
    let shown = shown.as_ref().and_then(|shown| shown.to_str().ok()).unwrap_or_default();
    if sandbox.record.ports.are_private && !api.is_traffic_token_of(&name, shown) {
        return wrong(StatusCode::FORBIDDEN, "send the sandbox's traffic access token as e2b-traffic-access-token");
    }
    note_known(&request);
    if let Some(host) = &sandbox.record.ports.host {
        match HeaderValue::from_str(&host.replace("${PORT}", &port.to_string())) {
            Ok(host) => drop(request.headers_mut().insert(HOST, host)),
            Err(_) => return wrong(StatusCode::BAD_REQUEST, "maskRequestHost of the sandbox is not a host"),
        }
    }
    match pass_on(&api.face, at, request).await {
        Ok(response) => response,
        Err(Unanswered::Port(PortError::Closed { .. })) => {
            wrong(StatusCode::BAD_GATEWAY, "The sandbox is running but port is not open")
        }
        Err(unanswered) => wrong(StatusCode::BAD_GATEWAY, &unanswered.problem().detail),
    }
}
