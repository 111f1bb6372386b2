//! The guard of the API: it checks the token, and refuses foreign pages in browsers.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;

use super::admission::Admission;
use super::frames::EVENTS;
use super::problem::{HttpProblem, ProblemKind};
use super::visit::Visit;
use super::{Access, HttpFace, HttpOptions, page};

/// Names the version of a client that is this program: other versions of it are refused.
pub(super) const VERSION_HEADER: &str = "foldspace-version";

/// Authorizes requests.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) face: HttpFace,
    pub(super) options: Arc<HttpOptions>,
    /// True if `foldspace ui` opened the listener: a request shows that a page is open.
    pub(super) is_page: bool,
}

impl Guard {
    fn check(&self, request: &Request) -> Result<(), HttpProblem> {
        let (uri, headers) = (request.uri(), request.headers());
        check_head(request)?;
        self.check_changes_nothing(request)?;
        let Access::Token { token, names } = &self.options.access else {
            // Any version may query the server and stop it.
            let is_about_server = matches!(uri.path(), "/v1/server" | "/v1/server/stop");
            return if is_about_server { Ok(()) } else { self.face.check_version(headers.get(VERSION_HEADER)) };
        };
        check_host(uri, headers, names)?;
        // They reveal nothing: monitoring needs no token, and the page gets one by a code.
        if matches!(uri.path(), "/healthz" | "/readyz") || page::is_open(uri.path()) {
            return Ok(());
        }
        if self.face.is_of_host(request, token) {
            note_known(request);
            return Ok(());
        }
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let shown = shown.map(|(_, shown)| shown.trim().to_owned()).or_else(|| of_websocket(headers));
        match shown {
            Some(shown) if token.is(&shown) => {
                note_known(request);
                Ok(())
            }
            Some(_) => Err(HttpProblem::new(ProblemKind::Unauthorized, "wrong token").with_hint(TOKEN)),
            None => Err(HttpProblem::new(ProblemKind::Unauthorized, "missing token").with_hint(TOKEN)),
        }
    }

    /// Counts a request of a page. On other listeners only streams count: a program that reads metrics is not a page.
    fn visit(&self, request: &Request) -> Option<Visit> {
        let streams = request.headers().get(ACCEPT).is_some_and(|media| media == EVENTS);
        let is_stranger =
            matches!(self.options.access, Access::Owner) || !request.headers().contains_key(AUTHORIZATION);
        (!is_stranger && (self.is_page || streams)).then(|| Visit::begin(&self.face))
    }

    /// Refuses a request that may change a session if the listener is read-only. An upgrade counts as a change.
    fn check_changes_nothing(&self, request: &Request) -> Result<(), HttpProblem> {
        let (method, path) = (request.method(), request.uri().path());
        let looks = matches!(*method, Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
        // A prompt's section opens the workspace, and may start a container.
        let looks = looks && !path.ends_with("/section");
        match looks || path == page::SIGN_IN || !self.options.read_only {
            true => Ok(()),
            false => Err(HttpProblem::new(ProblemKind::Forbidden, "this server is read-only: it changes nothing")
                .with_hint("start it without --read-only")),
        }
    }
}

/// Prefix of the subprotocol that carries a page's token: a script can't set headers on a websocket request.
pub(super) const BEARER_PROTOCOL: &str = "foldspace.bearer.";

/// Returns the token among the subprotocols of a websocket, if there is exactly one and no `Authorization`.
fn of_websocket(headers: &HeaderMap) -> Option<String> {
    let is_websocket = headers.get(UPGRADE).is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let mut tokens = protocols(headers).filter_map(|name| name.strip_prefix(BEARER_PROTOCOL));
    let only =
        tokens.next().filter(|_| is_websocket && !headers.contains_key(AUTHORIZATION) && tokens.next().is_none());
    String::from_utf8(URL_SAFE_NO_PAD.decode(only?).ok()?).ok()
}

/// Returns the subprotocols that a client offers.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',').map(str::trim))
}

/// Marks the client as known: it showed the token.
pub(super) fn note_known(request: &Request) {
    if let Some(admission) = request.extensions().get::<Arc<Admission>>() {
        admission.note_known();
    }
}

pub(super) fn check_head(request: &Request) -> Result<(), HttpProblem> {
    match head_bytes(request) > HEAD_MAX {
        true => {
            let detail = format!("the request's head has more than {HEAD_MAX} bytes");
            Err(HttpProblem::new(ProblemKind::HeadTooLarge, detail))
        }
        false => Ok(()),
    }
}

/// The most bytes of a request's head.
const HEAD_MAX: usize = 64 << 10;

fn head_bytes(request: &Request) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len() + "https://".len());
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    request.method().as_str().len() + authority + target + " HTTP/1.1 \r\n".len() + headers.sum::<usize>()
}

const TOKEN: &str = "send `Authorization: Bearer TOKEN`; `foldspace serve` prints where its token is";

/// Refuses foreign pages in browsers: DNS rebinding shows in the host, and other sites show in the origin.
pub(super) fn check_host(uri: &Uri, headers: &HeaderMap, names: &[String]) -> Result<(), HttpProblem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(HttpProblem::new(ProblemKind::BadRequest, "there must be one Host header"));
    };
    let host = host.to_str().unwrap_or_default();
    if !is_known(name_of(host), names) {
        let detail = format!("the host {:?} is not a name of this server", host.chars().take(100).collect::<String>());
        return Err(HttpProblem::new(ProblemKind::Forbidden, detail)
            .with_hint("use its address, or start it with --host-name NAME"));
    }
    if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
        return Err(HttpProblem::new(
            ProblemKind::BadRequest,
            "the request's target and its Host header name different hosts",
        ));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    match authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => {
            let shown: String = origin.chars().take(100).collect();
            Err(HttpProblem::new(ProblemKind::Forbidden, format!("pages from {shown:?} may not use this server")))
        }
    }
}

/// Returns a host without its port; empty if it is malformed.
pub(super) fn name_of(host: &str) -> &str {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => (name, ""),
            Some((name, port)) if port.starts_with(':') => (name, &port[1..]),
            _ => return "",
        },
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { "" }
}

/// Returns true for names of this server, and for any address: DNS can't rebind addresses.
pub(super) fn is_known(name: &str, names: &[String]) -> bool {
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

pub(super) async fn pass(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let checked = guard.check(&request);
    let mut response = match checked {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            request.extensions_mut().insert(Arc::clone(&guard.options));
            let visit = guard.visit(&request);
            let response = run(request, next).await;
            match visit {
                Some(visit) => visit.during(response),
                None => response,
            }
        }
    };
    seal(&guard.face, &mut response);
    response
}

/// Runs a request's handler. A panic becomes a problem.
pub(super) async fn run(request: Request, next: Next) -> Response {
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answered.unwrap_or_else(|_| HttpProblem::new(ProblemKind::Broken, "the request's handler panicked").into_response())
}

/// Counts an answer, and forbids browsers to guess its type.
pub(super) fn seal(face: &HttpFace, response: &mut Response) {
    face.metrics().answered(response.status());
    response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_guard_accepts_addresses_localhost_and_names() {
        let names = vec!["box.example".to_owned()];
        for host in ["127.0.0.1:80", "[::1]:8080", "[::1]", "localhost", "LOCALHOST:1", "Box.Example:7", "10.1.2.3:4"] {
            assert!(is_known(name_of(host), &names), "{host}");
        }
        let broken =
            ["[::1", "[::1]x", "[::1]:8x", "::1]", "localhost:80x", "localhost:80@evil.example", "[]", "[", ":80"];
        let others = ["", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "box.example."];
        for host in broken.into_iter().chain(others) {
            assert!(!is_known(name_of(host), &names), "{host}");
        }
    }
}
