//! Sign-in of pages in a browser: separate listeners, and codes that are valid once.

use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::owner::local_only;
use super::page::SIGN_IN;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::token::secret;
use super::verb::{HttpVerb, Media};
use super::{Access, HttpFace, HttpOptions, HttpServer, ServerLimits, Token};
use crate::engine::lock::lock;
use crate::hub::operations::OperationRoute;

/// Time that a code stays valid.
const GOOD: Duration = Duration::from_secs(60);
/// The most valid codes at a time.
const CODES: usize = 64;

/// The listeners for pages, and their unused codes.
#[derive(Default)]
pub(super) struct Pages {
    /// With full access, and read-only.
    listeners: tokio::sync::Mutex<[Option<PageListener>; 2]>,
    codes: Mutex<Vec<PageCode>>,
}

#[derive(Clone)]
struct PageListener {
    address: String,
    token: String,
}

/// An unused code.
struct PageCode {
    digest: blake3::Hash,
    until: Instant,
    token: String,
    read_only: bool,
}

impl Pages {
    /// Makes a code for a listener.
    fn code(&self, listener: &PageListener, read_only: bool) -> Result<String, HttpProblem> {
        let (code, now) = (secret()?, Instant::now());
        let mut codes = lock(&self.codes);
        codes.retain(|code| code.until > now);
        if codes.len() == CODES {
            codes.remove(0);
        }
        let (digest, token) = (blake3::hash(code.as_bytes()), listener.token.clone());
        codes.push(PageCode { digest, until: now + GOOD, token, read_only });
        Ok(code)
    }

    /// Takes a code and returns the token for it, if the code belongs to this listener and is still valid.
    fn exchange(&self, code: &str, access: &Access) -> Option<SignedIn> {
        let Access::Token { token, .. } = access else { return None };
        let (digest, mut codes) = (blake3::hash(code.as_bytes()), lock(&self.codes));
        let at = codes.iter().position(|code| code.digest == digest && token.is(&code.token))?;
        let code = codes.remove(at);
        (code.until > Instant::now()).then_some(SignedIn { token: code.token, read_only: code.read_only })
    }
}

/// Opens a listener for pages in a browser on this machine, unless it is open already, and makes a code for a page to
/// get its token with: valid once, for 60 seconds. Only for clients on the unix socket.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenPage {
    /// True for a listener that refuses requests that change anything.
    #[serde(default)]
    read_only: bool,
}

/// The address of the page, with a code.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PageAddress {
    /// The address, without the code: `http://127.0.0.1:PORT/`.
    pub address: String,
    /// The code, to append to the address after `#code=`.
    pub code: String,
}

impl HttpVerb for OpenPage {
    const NAME: &'static str = "open_page";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "server", "/v1/ui", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<PageAddress>))];
    const NEEDS_BODY: bool = false;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        local_only(&head)?;
        let pages = &face.shared.pages;
        let mut listeners = pages.listeners.lock().await;
        let known = &mut listeners[usize::from(self.read_only)];
        let listener = match known {
            Some(listener) => listener.clone(),
            None => known.insert(listen(&face, self.read_only).await?).clone(),
        };
        drop(listeners);
        face.shared.open_pages.touch();
        let code = pages.code(&listener, self.read_only)?;
        Ok(axum::Json(PageAddress { address: listener.address, code }).into_response())
    }
}

async fn listen(face: &HttpFace, read_only: bool) -> Result<PageListener, HttpProblem> {
    let failed = |error| HttpProblem::new(ProblemKind::Broken, format!("failed to listen on a port: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let address = format!("http://{}/", listener.local_addr().map_err(failed)?);
    let token = secret()?;
    let known = Token::new(&token).map_err(|error| HttpProblem::new(ProblemKind::Broken, error.to_string()))?;
    let access = Access::Token { token: known, names: Vec::new() };
    let router = face.routed(HttpOptions { access, read_only, ..HttpOptions::default() }, Router::new(), true);
    let server = HttpServer::new(ServerLimits::default());
    tokio::spawn(async move { server.serve_tcp(listener, router).await });
    Ok(PageListener { address, token })
}

/// Exchanges the code in a page's address for its token. It needs no token.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// The code.
    code: String,
}

/// The token of a page. It does not implement `Debug`, so that it never reaches a log.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct SignedIn {
    /// The token, for `Authorization: Bearer`.
    pub token: String,
    /// True if this listener refuses requests that change anything.
    pub read_only: bool,
}

impl HttpVerb for SignIn {
    const NAME: &'static str = "sign_in";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "server", SIGN_IN, 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<SignedIn>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let pages = &face.shared.pages;
        let signed_in = pages.exchange(&self.code, &head.options.access).ok_or_else(|| {
            HttpProblem::new(ProblemKind::Unauthorized, "the code was used, is over 60 s old, or is for another server")
                .with_hint("`foldspace ui` makes a new one")
        })?;
        face.shared.open_pages.touch();
        Ok(([(axum::http::header::CACHE_CONTROL, "no-store")], axum::Json(signed_in)).into_response())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(token: &str) -> (PageListener, Access) {
        let access = Access::Token { token: Token::new(token).unwrap(), names: Vec::new() };
        (PageListener { address: String::new(), token: token.to_owned() }, access)
    }

    #[test]
    fn page_code_is_good_once_in_time_at_its_listener() {
        let (pages, (one, here)) = (Pages::default(), listener("0123456789abcdef"));
        let (_, elsewhere) = listener("fedcba9876543210");
        let code = pages.code(&one, true).unwrap();
        assert!(pages.exchange(&code, &elsewhere).is_none() && pages.exchange(&code, &Access::Owner).is_none());
        let signed_in = pages.exchange(&code, &here).unwrap();
        assert_eq!((&*signed_in.token, signed_in.read_only), ("0123456789abcdef", true));
        assert!(pages.exchange(&code, &here).is_none(), "once");
        let late = pages.code(&one, false).unwrap();
        lock(&pages.codes)[0].until = Instant::now();
        assert!(pages.exchange(&late, &here).is_none(), "too late");
        for _ in 0..2 * CODES {
            pages.code(&one, false).unwrap();
        }
        assert_eq!(lock(&pages.codes).len(), CODES);
    }
}
