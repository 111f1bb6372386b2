//! The guard of E2B's API: the API key of the control plane, and the token of a sandbox.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::connect::{Wrong, is_rpc};
use super::ports::{self, ENVD_PORT};
use super::query::parameter;
use super::sandbox::Sandbox;
use super::signature::{UrlSignature, signature};
use super::{DEBUG_SANDBOX, E2bAnswer, E2bApi};
use crate::http::HttpOptions;
use crate::http::guard::{check_head, check_host, note_known, run, seal};
use crate::http::ports::PortHost;

const KEY: &str = "set E2B_API_KEY to foldspace's token; `foldspace serve` prints where it is";

/// Header with the API key.
const API_KEY: &str = "x-api-key";
/// Header with the sandbox of a request to `envd`, and with the token of that sandbox.
const SANDBOX: &str = "e2b-sandbox-id";
const SANDBOX_TOKEN: &str = "x-access-token";

pub(super) async fn pass(State(api): State<E2bApi>, mut request: Request, next: Next) -> Response {
    if let Some(at) = PortHost::of(request.headers(), &api.options.names) {
        if at.port != ENVD_PORT {
            let response = match check_head(&request) {
                Ok(()) => ports::answer(&api, at, request).await,
                Err(problem) => problem.into_response(),
            };
            api.face.metrics().answered(response.status());
            return response;
        }
        name_sandbox(&mut request, &at.session);
    }
    let path = request.uri().path().to_owned();
    let mut response = match check(&api, &mut request).await {
        Ok(()) => {
            request.extensions_mut().insert(Arc::new(HttpOptions::default()));
            run(request, next).await
        }
        Err(wrong) => wrong.answer(&path),
    };
    seal(&api.face, &mut response);
    response
}

/// Names the sandbox of a request to `envd` at its own host.
fn name_sandbox(request: &mut Request, sandbox: &str) {
    let headers = request.headers_mut();
    let host = headers.get(HOST).and_then(|host| Some(host.to_str().ok()?.split_once('.')?.1.to_owned()));
    for (name, value) in [(HOST, host.as_deref()), (HeaderName::from_static(SANDBOX), Some(sandbox))] {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
}

/// Answers requests for unknown paths.
pub(super) fn unknown(path: &str) -> Response {
    Wrong::missing(format_args!("{path:.200}")).answer(path)
}

async fn check(api: &E2bApi, request: &mut Request) -> Result<(), Wrong> {
    check_head(request)?;
    check_host(request.uri(), request.headers(), &api.options.names)?;
    let path = request.uri().path();
    if !is_rpc(path) && !matches!(path, "/files" | "/health") {
        let shown = text(request.headers(), API_KEY).or_else(|| bearer(request.headers()));
        let Some(shown) = shown else { return Err(unauthorized("missing API key", KEY)) };
        // Some releases of the SDKs accept only keys with this prefix.
        let bare = shown.strip_prefix("e2b_").unwrap_or(shown);
        if !api.options.token.is(bare) && !api.options.token.is(shown) {
            return Err(unauthorized("the API key is not the server's token", KEY));
        }
        note_known(request);
        return Ok(());
    }
    let named = text(request.headers(), SANDBOX).map(str::to_owned);
    // A signature is for a file, never for a call. At the sandbox's own host, the URL also names the sandbox.
    if path == "/files" && request.headers().get(SANDBOX_TOKEN).is_none() && is_signed(request.uri()) {
        let signed = signed(api, named.as_deref(), request.uri(), request.method() == axum::http::Method::GET)?;
        note_known(request);
        let sandbox = api.running(signed.name()).await?;
        request.extensions_mut().insert(sandbox);
        return Ok(());
    }
    let Some(name) = named else {
        if path == "/health" {
            return Ok(());
        }
        return Err(unauthorized("the request has neither a sandbox nor a signature", "request a signed URL"));
    };
    let is_debug = api.options.debug && name == DEBUG_SANDBOX;
    let shown = text(request.headers(), SANDBOX_TOKEN).unwrap_or_default();
    if !is_debug && !api.is_token_of(&name, shown) {
        let hint = "connect to the sandbox again, with an API key, for a new token";
        return Err(unauthorized("the token is not for this sandbox", hint));
    }
    note_known(request);
    let sandbox = if is_debug { api.debug_sandbox().await? } else { api.running(&name).await? };
    request.extensions_mut().insert(sandbox);
    Ok(())
}

fn is_signed(uri: &Uri) -> bool {
    parameter(uri.query(), "signature").is_some()
}

/// Finds the sandbox of a signed URL, which names it only at the sandbox's own host.
fn signed(api: &E2bApi, named: Option<&str>, uri: &Uri, is_read: bool) -> Result<Sandbox, Wrong> {
    for sandbox in api.table.all().into_iter().filter(|sandbox| named.is_none_or(|name| name == sandbox.name())) {
        match signature(api, &sandbox, uri.query(), is_read) {
            UrlSignature::Valid => return Ok(sandbox),
            // Programs compare E2B's texts.
            UrlSignature::Expired => return Err(Wrong::new(StatusCode::UNAUTHORIZED, "signature is already expired")),
            UrlSignature::Wrong => {}
        }
    }
    Err(Wrong::new(StatusCode::UNAUTHORIZED, "invalid signature"))
}

fn unauthorized(what: &str, hint: &str) -> Wrong {
    Wrong::new(StatusCode::UNAUTHORIZED, format!("{what}; {hint}"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim())
}

/// Reports that a sandbox runs; without a sandbox, that the server does.
pub(super) async fn health(_: Option<Extension<Sandbox>>) -> E2bAnswer {
    Ok(StatusCode::NO_CONTENT.into_response())
}
