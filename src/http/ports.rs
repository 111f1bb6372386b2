//! Ports of a session's container: web servers, and other listeners, that its commands have started.
//!
//! A request whose host is `PORT-SESSION.NAME`, where `NAME` is a name of this server, is passed on to the port. On the
//! unix socket a connection can be upgraded to one to the port, byte for byte.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, COOKIE, HOST, HeaderName, LOCATION, SET_COOKIE, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{AppendHeaders, IntoResponse, Response};
use futures_util::FutureExt;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::client::{ClientError, HttpClient};
use super::forward::join;
use super::guard::{Guard, check_head, is_known, name_of, note_known};
use super::problem::{HttpProblem, ProblemKind};
use super::upgrade::{UpgradedStream, upgrade_route};
use super::{Access, HttpFace, Token};
use crate::backends::WorkspaceSpec;
use crate::engine::error::Diagnostic;
use crate::engine::session::Session;
use crate::hub::PortError;
use crate::hub::operations::OperationError;

/// The path and the protocol of connections to a port.
const TUNNEL: (&str, &str) = ("/v1/port", "foldspace-port");
/// The header with the server's token, and the cookie and query parameter with the port's. The port does not receive them.
const TOKEN: &str = "foldspace-token";
/// The same cookie for the page's frame, which is on another site.
const FRAME: &str = "foldspace-frame";
const TOKEN_HEADER: HeaderName = HeaderName::from_static(TOKEN);

/// A port of a session, as the host of a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortHost {
    pub(super) session: String,
    pub(super) port: u16,
}

impl PortHost {
    /// Returns the port that the host of a request names; `None` if the request is for the server itself.
    pub(super) fn of(headers: &HeaderMap, names: &[String]) -> Option<Self> {
        let (first, rest) = name_of(headers.get(HOST)?.to_str().ok()?).split_once('.')?;
        let (port, session) = first.split_once('-')?;
        let is_below_own = rest.parse::<std::net::IpAddr>().is_err() && is_known(rest, names);
        let port = port.parse().ok().filter(|port| *port != 0 && is_below_own)?;
        Some(Self { session: session.to_owned(), port })
    }
}

/// The parameters of a connection to a port.
#[derive(Deserialize)]
struct TunnelParams {
    session: String,
    port: u16,
}

/// Returns the route for connections to a port, for clients on the unix socket.
pub(super) fn tunnel_route(face: &HttpFace) -> Router {
    let of = face.clone();
    upgrade_route(face, TUNNEL.0, TUNNEL.1, move |request| {
        let params = serde_json::from_value(request.params).map_err(OperationError::Parameters)?;
        let TunnelParams { session, port } = params;
        let open = Handle::current().block_on(of.open(&session))?;
        let connected = Handle::current().block_on(open.open_port(port))?;
        Ok(Box::new(move |mut stream: UpgradedStream| {
            async move {
                match asynchronous(connected) {
                    Ok(mut port) => tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut stream, &mut port) => {}
                        () = request.end.cancelled() => {}
                    },
                    Err(error) => tracing::debug!(%error, "failed to use a connection to a port"),
                }
            }
            .boxed()
        }))
    })
}

impl HttpClient {
    /// Connects to a port of a session's container.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if nothing listens there, or the session has no container.
    pub async fn open_port(&self, session: &str, port: u16) -> Result<UpgradedStream, ClientError> {
        self.upgrade(TUNNEL.0, TUNNEL.1, &serde_json::json!({ "session": session, "port": port })).await
    }
}

fn asynchronous(stream: std::net::TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

/// Answers requests for the ports of sessions, before the guard of the API: a port's answer is not the server's.
pub(super) async fn pass(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Access::Token { token, names } = &guard.options.access else { return next.run(request).await };
    let Some(at) = PortHost::of(request.headers(), names) else { return next.run(request).await };
    let checked = check_head(&request).and_then(|()| match guard.options.read_only {
        true => Err(HttpProblem::new(ProblemKind::Forbidden, "this server is read-only: its ports are closed")
            .with_hint("start it without --read-only")),
        false => Ok(()),
    });
    let response = match checked {
        Ok(()) => answer(&guard.face, token, at, request).await,
        Err(problem) => problem.into_response(),
    };
    guard.face.metrics().answered(response.status());
    response
}

/// Returns the answer of a port to a request that shows the server's token in a header, or the port's in a cookie, or
/// needs none. A request with the port's token in its query gets it as a cookie, so that a browser can follow links.
async fn answer(face: &HttpFace, token: &Token, at: PortHost, mut request: Request) -> Response {
    let session = face.session(&at.session).await.ok();
    let opens = |shown: &str| session.as_ref().is_some_and(|known| token.is_of_port(known.id(), at.port, shown));
    let unauthorized = |what: &str| {
        let hint =
            format!("send the header {TOKEN}, or open the port with the token of GET /v1/sessions/SESSION/ports/PORT");
        HttpProblem::new(ProblemKind::Unauthorized, what).with_hint(hint).into_response()
    };
    if let Some(shown) = of_query(request.uri()) {
        return match () {
            () if opens(&shown) => signed_in(request.uri(), &shown),
            // The page of the port could read it.
            () if token.is(&shown) => unauthorized("the server's token must not be in the address of a port"),
            () => unauthorized("wrong token"),
        };
    }
    let headers = request.headers_mut();
    let of_header = headers.remove(TOKEN_HEADER);
    let is_trusted = of_header.and_then(|shown| Some(token.is(shown.to_str().ok()?))).unwrap_or_default();
    let is_signed_in = take_cookies(headers).iter().any(|shown| opens(shown));
    if !is_trusted && !is_signed_in && !session.as_ref().is_some_and(|session| is_public(session, at.port)) {
        return unauthorized("missing token");
    }
    note_known(&request);
    pass_on(face, at, request).await.unwrap_or_else(|wrong| wrong.problem().into_response())
}

/// Returns true if the session's options open a port to everyone.
fn is_public(session: &Session, port: u16) -> bool {
    let spec = session.started().map(WorkspaceSpec::of_session);
    matches!(spec, Some(Ok(WorkspaceSpec::Podman(options))) if options.public_ports.contains(&port))
}

/// An error between this server and a port.
pub(super) enum Unanswered {
    NotOpen(HttpProblem),
    Port(PortError),
    /// The port's answer is not HTTP.
    Odd(hyper::Error),
}

impl Unanswered {
    pub(super) fn problem(self) -> HttpProblem {
        match self {
            Self::NotOpen(problem) => problem,
            Self::Port(error) => {
                let problem = HttpProblem::new(ProblemKind::Backend, error.to_string());
                HttpProblem { hint: error.advice().map(|advice| advice.to_string()), ..problem }
            }
            Self::Odd(error) => {
                HttpProblem::new(ProblemKind::Backend, format!("the port does not answer in HTTP: {error}"))
            }
        }
    }
}

/// Passes a request on to a port, and its answer back.
pub(super) async fn pass_on(face: &HttpFace, at: PortHost, mut request: Request) -> Result<Response, Unanswered> {
    let open = face.open(&at.session).await.map_err(|error| Unanswered::NotOpen(error.into()))?;
    let stream = open.open_port(at.port).await.map_err(Unanswered::Port)?;
    let stream = asynchronous(stream)
        .map_err(|source| Unanswered::Port(PortError::Unreachable { session: at.session, port: at.port, source }))?;
    // Some small servers compare names of headers as browsers write them.
    let client = http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = client.map_err(Unanswered::Odd)?;
    tokio::spawn(async move {
        // `send_request` reports its error.
        drop(connection.with_upgrades().await);
    });
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().filter(|_| request.headers().contains_key(UPGRADE));
    if upgrade.is_none() {
        request.headers_mut().remove(CONNECTION);
    }
    // A server reads the path alone.
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    let mut response = sender.send_request(request).await.map_err(Unanswered::Odd)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            if let Some(client) = upgrade {
                tokio::spawn(join(client, hyper::upgrade::on(&mut response)));
            }
        }
        _ => drop(response.headers_mut().remove(CONNECTION)),
    }
    Ok(response.map(Body::new))
}

fn of_query(uri: &Uri) -> Option<String> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(TOKEN)?.strip_prefix('=')).map(str::to_owned)
}

/// Sends a browser to the same page without the token, which it gets as a cookie.
fn signed_in(uri: &Uri, token: &str) -> Response {
    let pairs = uri.query().unwrap_or_default().split('&');
    let others: Vec<&str> = pairs.filter(|pair| !pair.starts_with(&format!("{TOKEN}="))).collect();
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    let location = HeaderValue::from_str(&format!("{}{query}", uri.path()));
    let cookie = HeaderValue::from_str(&format!("{TOKEN}={token}; Path=/; HttpOnly; SameSite=Lax"));
    let partitioned = "Path=/; HttpOnly; SameSite=None; Secure; Partitioned";
    let of_frame = HeaderValue::from_str(&format!("{FRAME}={token}; {partitioned}"));
    match (location, cookie, of_frame) {
        (Ok(location), Ok(cookie), Ok(of_frame)) => {
            let cookies = AppendHeaders([(SET_COOKIE, cookie), (SET_COOKIE, of_frame)]);
            (StatusCode::SEE_OTHER, [(LOCATION, location)], cookies).into_response()
        }
        _ => HttpProblem::new(ProblemKind::BadRequest, "the path or the token can't be in a header").into_response(),
    }
}

/// Takes the token's cookie out of the headers.
fn take_cookies(headers: &mut HeaderMap) -> Vec<String> {
    let all: Vec<String> =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok().map(str::to_owned)).collect();
    let pairs = all.iter().flat_map(|line| line.split(';').map(str::trim));
    let is_own = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| [TOKEN, FRAME].contains(&name));
    let (own, others): (Vec<&str>, Vec<&str>) = pairs.partition(is_own);
    headers.remove(COOKIE);
    if let Ok(others) = HeaderValue::from_str(&others.join("; "))
        && !others.is_empty()
    {
        headers.insert(COOKIE, others);
    }
    own.iter().filter_map(|pair| Some(pair.split_once('=')?.1.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_a_port_of_a_session() {
        let names = vec!["box.example".to_owned()];
        let port = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
            PortHost::of(&headers, &names).map(|at| (at.port, at.session))
        };
        for host in ["8000-work.localhost", "8000-work.localhost:8080", "8000-work.BOX.example"] {
            assert_eq!(port(host), Some((8000, "work".to_owned())), "{host}");
        }
        assert_eq!(port("80-my-own.localhost"), Some((80, "my-own".to_owned())));
        let others = [
            "localhost",
            "work.localhost",
            "0-work.localhost",
            "65536-work.localhost",
            "8000-work.evil.example",
            "8000-work.127.0.0.1",
            "8000-work",
            "8000-work.localhost.evil.example",
        ];
        for host in others {
            assert_eq!(port(host), None, "{host}");
        }
    }

    #[test]
    fn token_does_not_reach_the_port() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; foldspace-token=secret; b=2"));
        headers.append(COOKIE, HeaderValue::from_static("foldspace-tokens=3"));
        headers.append(COOKIE, HeaderValue::from_static("foldspace-frame=other"));
        assert_eq!(take_cookies(&mut headers), ["secret", "other"]);
        assert_eq!(headers[COOKIE], "a=1; b=2; foldspace-tokens=3");
        headers.insert(COOKIE, HeaderValue::from_static("foldspace-token=secret"));
        take_cookies(&mut headers);
        assert!(!headers.contains_key(COOKIE));
        let response = signed_in(&"/a?x=1&foldspace-token=secret&y=2".parse().unwrap(), "secret");
        assert_eq!(response.headers()[LOCATION], "/a?x=1&y=2");
    }
}
