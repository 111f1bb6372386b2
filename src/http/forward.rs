//! Forwarding requests to the host that owns their session.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode, response};
use axum::response::Response;
use futures_util::{FutureExt, StreamExt, stream};
use http::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::peers::{ANSWER, ASK, HostProof};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, Token, blocking, guard};
use crate::engine::id::SessionId;
use crate::engine::store::{StoreError, StoreHost};

/// Names the host that forwarded a request. Such a request is not forwarded again.
const FORWARDED: HeaderName = HeaderName::from_static("foldspace-forwarded");
const CONNECT: Duration = Duration::from_secs(1);
/// The most bytes of a problem that another host reports.
const PROBLEM_MAX: usize = 1 << 20;
/// Interval of checks that the host of a forwarded request is still alive.
const LOOK: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);

/// A connection to another host, authenticated: the host has proved on it that it has the token.
struct PeerConnection {
    /// The host's name and port, as in its URL.
    authority: String,
    sender: SendRequest<Body>,
    proof: HostProof,
}

/// The connection to the host that has to answer a request.
pub(super) struct Forward {
    /// The host's name.
    host: String,
    connection: PeerConnection,
}

impl HttpFace {
    /// Finds the host that has to answer a request for a session; `None` if this host does. Waits for an unreachable
    /// host for up to two leases; a read-only request does not wait, and is answered here.
    pub(super) async fn forward(&self, wanted: &str, parts: &Parts) -> Result<Option<Forward>, HttpProblem> {
        if self.hub().sessions().store().hosts().is_none() || parts.headers.contains_key(FORWARDED) {
            return Ok(None);
        }
        let begun = Instant::now();
        let session = self.session(wanted).await?.id();
        loop {
            let Some((host, own, lease)) = self.other_host(session).await? else { return Ok(None) };
            let problem = match self.connect(&own, &host).await {
                Ok(connection) => return Ok(Some(Forward { host: host.name, connection })),
                Err(problem) => problem,
            };
            if matches!(parts.method, Method::GET | Method::HEAD) && !parts.headers.contains_key(UPGRADE) {
                return Ok(None);
            }
            if begun.elapsed() > lease * 2 {
                return Err(problem);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn other_host(&self, session: SessionId) -> Result<Option<(StoreHost, String, Duration)>, HttpProblem> {
        let sessions = self.hub().sessions().clone();
        let look = move || {
            let Some(hosts) = sessions.store().hosts() else { return Ok(None) };
            let other = hosts.other(session)?;
            Ok::<_, StoreError>(other.map(|other| (other, hosts.own().name.clone(), hosts.lease())))
        };
        Ok(blocking(look).await??)
    }
}

impl HttpFace {
    /// Sends a request to another host for a session that this host has released.
    pub(super) async fn ask_host(&self, host: &StoreHost, path: &str, asked: &Value) -> Result<(), HttpProblem> {
        let own = self.hub().sessions().store().hosts().map(|hosts| hosts.own().name.clone()).unwrap_or_default();
        let connection = self.connect(&own, host).await?;
        let forward = Forward { host: host.name.clone(), connection };
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(());
        let (parts, ()) = request.map_err(|error| broken(&error))?.into_parts();
        let answer = forward.send(self, parts, Body::from(asked.to_string())).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let body = axum::body::to_bytes(answer.into_body(), PROBLEM_MAX).await.map_err(|error| broken(&error))?;
        Err(serde_json::from_slice(&body).map_err(|error| broken(&error))?)
    }

    /// Waits until a host is gone.
    async fn gone(&self, host: &str) {
        loop {
            tokio::time::sleep(LOOK).await;
            let (sessions, host) = (self.hub().sessions().clone(), host.to_owned());
            let find = move || sessions.store().hosts().is_some_and(|hosts| matches!(hosts.find(&host), Ok(None)));
            if blocking(find).await.unwrap_or_default() {
                return;
            }
        }
    }
}

fn broken(error: &dyn std::fmt::Display) -> HttpProblem {
    HttpProblem::new(ProblemKind::OtherHost, format!("the session's host did not answer: {error}"))
        .with_hint("repeat it with the same `call_id`, or check the session's log before you retry")
}

fn unproved(host: &StoreHost, what: &str) -> HttpProblem {
    let detail = format!("host {} at {} is not trusted: {what}", host.name, host.at.as_deref().unwrap_or_default());
    HttpProblem::new(ProblemKind::OtherHost, detail).with_hint(
        "start all hosts in one version with the same --token-file or FOLDSPACE_TOKEN; check who can write to NATS",
    )
}

impl HttpFace {
    /// Connects to a host and has it prove that it has the token. An accepted connection alone proves nothing: the
    /// kernel accepts connections for a stopped process, too.
    async fn connect(&self, own: &str, host: &StoreHost) -> Result<PeerConnection, HttpProblem> {
        let token = self.hub().shared_with_hosts().and_then(|token| Token::new(token).ok());
        let proof = HostProof::ask(token.ok_or_else(|| unproved(host, "this host has no token"))?, own, host)?;
        let asked = tokio::time::timeout(CONNECT, ask(host, &proof)).await.ok().flatten();
        let Some((authority, sender, answer)) = asked else {
            let (name, at) = (&host.name, host.at.as_ref());
            let hint = at.map_or(format!("start it with --at URL, or use its sessions on {name}"), |at| {
                format!("check that {at} is reachable from here")
            });
            let detail = format!("host {name} can't be reached from here");
            return Err(HttpProblem::new(ProblemKind::OtherHost, detail).with_hint(hint));
        };
        let why = match (answer.status, answer.headers.contains_key(ANSWER)) {
            (StatusCode::OK, true) => "its proof is wrong",
            (StatusCode::OK, false) => "it does not prove that it has the token",
            _ => "its token, --host or --at is not what this host expects",
        };
        let proof = proof.answered(&answer.headers).ok_or_else(|| unproved(host, why))?;
        Ok(PeerConnection { authority, sender, proof })
    }
}

/// Asks a host for its proof. Returns `None` if it does not answer.
async fn ask(host: &StoreHost, proof: &HostProof) -> Option<(String, SendRequest<Body>, response::Parts)> {
    let uri: Uri = host.at.as_ref()?.parse().ok()?;
    let place = (uri.host()?.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(80));
    let authority = uri.authority()?.to_string();
    let stream = TcpStream::connect(place).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(async move {
        // `send_request` reports its error.
        drop(connection.with_upgrades().await);
    });
    let request = Request::get("/healthz").header(HOST, &authority).header(ASK, proof.question());
    let answer = sender.send_request(request.body(Body::empty()).ok()?).await.ok()?;
    let (parts, body) = answer.into_parts();
    axum::body::to_bytes(Body::new(body), PROBLEM_MAX).await.ok()?;
    sender.ready().await.ok()?;
    Some((authority, sender, parts))
}

/// Ends a body with an error once its host is gone.
fn until(gone: impl Future<Output = ()> + Send + 'static, body: Incoming) -> Body {
    let pieces = Body::new(body).into_data_stream();
    Body::from_stream(stream::unfold((pieces, Some(gone.boxed())), |(mut pieces, gone)| async move {
        let mut gone = gone?;
        tokio::select! {
            piece = pieces.next() => Some((piece?.map_err(io::Error::other), (pieces, Some(gone)))),
            () = &mut gone => Some((Err(io::Error::other("the session's host is gone")), (pieces, None))),
        }
    }))
}

impl Forward {
    /// Forwards the request and returns the other host's answer.
    pub(super) async fn send(mut self, face: &HttpFace, mut parts: Parts, body: Body) -> Result<Response, HttpProblem> {
        let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| parts.headers.contains_key(UPGRADE));
        let request = self.request(&parts, body).map_err(|error| broken(&error))?;
        let mut response = tokio::select! {
            answered = self.connection.sender.send_request(request) => answered.map_err(|error| broken(&error))?,
            () = face.gone(&self.host) => return Err(broken(&"it is gone")),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            let detail = "the session's host has not accepted this host's proof";
            return Err(HttpProblem::new(ProblemKind::OtherHost, detail)
                .with_hint("a proxy between the hosts must not change methods or paths"));
        }
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().remove(CONNECTION);
            let (face, host) = (face.clone(), self.host);
            return Ok(response.map(|body| until(async move { face.gone(&host).await }, body)));
        }
        if let Some(client) = upgrade {
            let host = hyper::upgrade::on(&mut response);
            tokio::spawn(join(client, host));
        }
        Ok(response.map(Body::new))
    }

    /// Builds the request for the other host, without the client's token.
    fn request(&self, parts: &Parts, body: Body) -> Result<Request<Body>, http::Error> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let PeerConnection { authority, proof, .. } = &self.connection;
        let mut request = Request::builder().method(parts.method.clone()).uri(path);
        let own = [HOST, AUTHORIZATION, ORIGIN, TRANSFER_ENCODING, SEC_WEBSOCKET_PROTOCOL];
        let keeps = parts.headers.contains_key(UPGRADE);
        for (name, value) in &parts.headers {
            if !own.contains(name) && (*name != CONNECTION || keeps) {
                request = request.header(name, value);
            }
        }
        for name in guard::protocols(&parts.headers).filter(|name| !name.starts_with(guard::BEARER_PROTOCOL)) {
            request = request.header(SEC_WEBSOCKET_PROTOCOL, name);
        }
        let credential = proof.credential(&parts.method, path);
        request.header(HOST, authority).header(FORWARDED, &proof.from).header(AUTHORIZATION, credential).body(body)
    }
}

/// Copies bytes between two connections, in both directions.
pub(super) async fn join(client: OnUpgrade, host: OnUpgrade) {
    let (client, host) = match tokio::try_join!(client, host) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "failed to upgrade a connection");
            return;
        }
    };
    let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
    drop(tokio::io::copy_bidirectional(&mut client, &mut host).await);
}
