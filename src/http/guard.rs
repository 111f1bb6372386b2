//! Who may come in: the token, and what a page in a browser can't do.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::problem::{Kind, Problem};
use super::{HttpFace, Token};

/// Who may use the API.
#[derive(Debug, Clone)]
pub enum Access {
    /// Whoever can connect, as to a unix socket that only its owner can open.
    Owner,
    /// Who shows the token.
    Token {
        /// What has to be shown.
        token: Token,
        /// Names of this machine under which clients come, beside `localhost` and its addresses.
        names: Vec<String>,
    },
}

/// Lets requests in, or not.
#[derive(Clone)]
pub struct Guard {
    face: HttpFace,
    access: Arc<Access>,
}

impl Guard {
    pub(super) fn new(face: &HttpFace, access: Access) -> Self {
        Self { face: face.clone(), access: Arc::new(access) }
    }

    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let Access::Token { token, names } = &*self.access else { return Ok(()) };
        check_host(headers, names)?;
        // It says nothing of what is here, and who looks after the server needs no token for it.
        if path == "/healthz" {
            return Ok(());
        }
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        match shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
            Some((_, shown)) if token.is(shown.trim()) => Ok(()),
            Some(_) => Err(Problem::new(Kind::Unauthorized, "the token is not the server's").with_hint(TOKEN)),
            None => Err(Problem::new(Kind::Unauthorized, "no token was shown").with_hint(TOKEN)),
        }
    }
}

const TOKEN: &str = "send `Authorization: Bearer TOKEN`; `foldspace serve` says where its token is";

/// A page that was given this machine's address for its own name (DNS rebinding) sends that name, and a page from
/// elsewhere sends where it is from.
fn check_host(headers: &HeaderMap, names: &[String]) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::new(Kind::BadRequest, "there must be one Host header"));
    };
    let host = host.to_str().unwrap_or_default();
    if !is_known(name_of(host), names) {
        let detail = format!("the host {:?} is not a name of this server", host.chars().take(100).collect::<String>());
        return Err(
            Problem::new(Kind::Forbidden, detail).with_hint("use its address, or start it with --host-name NAME")
        );
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    match authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => {
            let shown: String = origin.chars().take(100).collect();
            Err(Problem::new(Kind::Forbidden, format!("pages from {shown:?} may not use this server")))
        }
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// An address is nobody's name, so nobody can have given it another meaning.
fn is_known(name: &str, names: &[String]) -> bool {
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Lets a request in if it may, counts it, and outlives its panic.
pub(super) async fn pass(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let checked = guard.check(request.uri().path(), request.headers());
    let mut response = match checked {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            answered.unwrap_or_else(|_| Problem::new(Kind::Broken, "the request's handler panicked").into_response())
        }
    };
    guard.face.metrics().answered(response.status());
    response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_localhost_or_named() {
        let names = vec!["box.example".to_owned()];
        for host in ["127.0.0.1:80", "[::1]:8080", "[::1]", "localhost", "LOCALHOST:1", "Box.Example:7", "10.1.2.3:4"] {
            assert!(is_known(name_of(host), &names), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[::1", "box.example."]
        {
            assert_eq!(is_known(name_of(host), &names), host == "[::1", "{host}");
        }
    }
}
