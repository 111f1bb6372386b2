//! A client of the API on a unix socket.

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::request::Builder;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::frames::EVENTS;
use super::guard::VERSION_HEADER;
use super::path_names::{check_names, encoded};
use super::problem::ProblemKind;
use super::server::{HttpServer, connect_unix};
use super::upgrade::{ATTEND, UpgradedStream};
use super::{CallRequest, HttpProblem, VERSION};
use crate::backends::{HostCaller, OutputStream};
use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::hub::operations::SessionDocument;
use crate::tools::{ToolOutcome, TraceContext};

/// The most bytes of an answer that is read whole, and of one event.
const ANSWER_MAX: usize = 256 << 20;

/// Errors between a client and a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server answers at the socket.
    #[error("no server answers at {}: {source}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The connection broke. The fate of the request is unknown.
    #[error("the connection to the server broke: {0}")]
    Broken(String),
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] Box<HttpProblem>),
    /// The server's answer is not of the expected form.
    #[error("unexpected answer from the server: {0}")]
    Odd(String),
}

impl ClientError {
    /// Returns true if the request came too late: its call has ended or no longer waits for an answer.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Refused(problem) if matches!(&*problem.kind, "not_found" | "conflict"))
    }
}

impl Diagnostic for ClientError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) | Self::Odd(_) => ErrorKind::Broken,
            Self::Refused(problem) => ProblemKind::of(&problem.kind).into(),
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Refused(problem) => problem.more.advice.clone().or_else(|| problem.hint.clone().map(Advice::text)),
            Self::Broken(_) => Some(Advice::ReadLog),
            Self::Unreachable { .. } | Self::Odd(_) => None,
        }
    }
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// An event of a call in flight.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// It has begun, with this call id.
    Begun(u64),
    /// Its command has printed something.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The bytes.
        bytes: Bytes,
    },
    /// A progress message while its workspace is prepared.
    Progress(String),
    /// Its command needs an approval: answer with [`HttpClient::answer`].
    Question(Value),
    /// The number of bytes of output that were dropped because they were not read in time.
    Missed(u64),
    /// It has ended.
    Ended(Box<ToolOutcome>),
}

/// The live events of a call.
pub struct CallStream(CallSource);

enum CallSource {
    Events(ResponseStream),
    Terminal(BoxStream<'static, Result<CallEvent, ClientError>>),
}

impl CallStream {
    pub(super) fn of_terminal(events: BoxStream<'static, Result<CallEvent, ClientError>>) -> Self {
        Self(CallSource::Terminal(events))
    }

    /// Waits for the next event. [`CallEvent::Ended`] is the last.
    ///
    /// # Errors
    /// The server's problems, which end the call; and [`ClientError::Broken`].
    pub async fn next(&mut self) -> Result<CallEvent, ClientError> {
        let broken = || ClientError::Broken("the call's outcome never arrived".to_owned());
        let events = match &mut self.0 {
            CallSource::Events(events) => events,
            CallSource::Terminal(events) => return events.next().await.unwrap_or_else(|| Err(broken())),
        };
        loop {
            let event = events.next().await?.ok_or_else(broken)?;
            if let Some(known) = call_event(&event)? {
                return Ok(known);
            }
        }
    }
}

/// A connection that keeps a server from exiting for lack of clients until it is dropped.
pub struct Attended {
    _stream: UpgradedStream,
}

/// Sends requests to the server at a unix socket, each on its own connection, or to a server in this process. Dropping
/// a request cancels it.
#[derive(Debug, Clone)]
pub struct HttpClient {
    server: ServerPlace,
    trace: Option<TraceContext>,
}

#[derive(Debug, Clone)]
enum ServerPlace {
    Socket(PathBuf),
    Here(HttpServer, Router),
}

impl HttpClient {
    /// Creates a client of the server at a socket.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { server: ServerPlace::Socket(path.into()), trace: None }
    }

    /// Creates a client of a router in this process, such as [`HttpFace::router`](super::HttpFace::router) returns.
    pub fn within(router: Router) -> Self {
        Self { server: ServerPlace::Here(HttpServer::default(), router), trace: None }
    }

    /// Returns a client that sends its requests within a trace.
    #[must_use]
    pub fn in_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Makes a call in a session, by its name or the beginning of its id; `seen` receives the call's events.
    pub async fn call(
        &self,
        session: &str,
        request: &CallRequest,
        mut seen: impl FnMut(CallEvent) + Send,
    ) -> Result<ToolOutcome, ClientError> {
        let mut stream = self.begin_call(session, request).await?;
        loop {
            match stream.next().await? {
                CallEvent::Ended(outcome) => return Ok(*outcome),
                event => seen(event),
            }
        }
    }

    /// Begins a call and returns its events. Dropping the stream cancels the call.
    pub async fn begin_call(&self, session: &str, request: &CallRequest) -> Result<CallStream, ClientError> {
        let path = format!("/v1/sessions/{}/calls", encoded(session));
        let response = self.send(Method::POST, &path, Some(request), Some(EVENTS)).await?;
        Ok(CallStream(CallSource::Events(ResponseStream::of(response))))
    }

    /// Gets a stream of events.
    pub(super) async fn events(&self, path: &str) -> Result<ResponseStream, ClientError> {
        Ok(ResponseStream::of(self.send(Method::GET, path, None::<&()>, Some(EVENTS)).await?))
    }

    /// Answers a call's question: `once`, `session`, `everything` or `refuse`.
    pub async fn answer(
        &self,
        session: &str,
        call: u64,
        answer: &str,
        reason: Option<&str>,
    ) -> Result<(), ClientError> {
        let path = format!("/v1/sessions/{}/calls/{call}/answer", encoded(session));
        let body = serde_json::json!({ "answer": answer, "reason": reason });
        self.send(Method::POST, &path, Some(&body), None).await.map(drop)
    }

    /// Cancels a call.
    pub async fn cancel(&self, session: &str, call: u64) -> Result<(), ClientError> {
        self.delete(&format!("/v1/sessions/{}/calls/{call}", encoded(session))).await
    }

    /// Runs a long operation and returns its result; `seen` receives progress messages.
    pub async fn work<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        mut seen: impl FnMut(&str) + Send,
    ) -> Result<T, ClientError> {
        let response = self.send(Method::POST, path, Some(body), Some(EVENTS)).await?;
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        if media != Some(EVENTS) {
            return document(response).await;
        }
        let mut stream = ResponseStream::of(response);
        while let Some(event) = stream.next().await? {
            match event.name.as_str() {
                "outcome" => return event.value(),
                "problem" => return Err(ClientError::Refused(Box::new(event.value()?))),
                "progress" => seen(&event.text()?),
                _ => {}
            }
        }
        Err(ClientError::Broken("the answer never arrived".to_owned()))
    }

    /// Stays connected until the result is dropped, so that the server does not exit for lack of clients.
    pub async fn attend(&self) -> Result<Attended, ClientError> {
        Ok(Attended { _stream: self.upgrade(ATTEND.0, ATTEND.1, &serde_json::json!({})).await? })
    }

    /// Sends a request that upgrades its connection to another protocol.
    pub async fn upgrade(
        &self,
        path: &str,
        protocol: &'static str,
        body: &impl Serialize,
    ) -> Result<UpgradedStream, ClientError> {
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, protocol);
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Odd(error.to_string()))?;
        let response = self.answered(request, body).await?;
        Ok(TokioIo::new(hyper::upgrade::on(response).await?))
    }

    /// Returns the document of a session, by its name or the beginning of its id.
    #[doc(hidden)]
    pub async fn session(&self, session: &str) -> Result<SessionDocument, ClientError> {
        self.get(&format!("/v1/sessions/{}", encoded(session))).await
    }

    /// Sends `DELETE` for a path.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, None::<&()>, None).await.map(drop)
    }

    /// Gets a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// Posts a document and returns the answer.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Puts a document and returns the answer.
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.ask(Method::PUT, path, Some(body)).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        document(self.send(method, path, body, Some("application/json")).await?).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        accept: Option<&str>,
    ) -> Result<Response<Body>, ClientError> {
        let odd = |error: &dyn std::fmt::Display| ClientError::Odd(error.to_string());
        let bytes = body.map(serde_json::to_vec).transpose().map_err(|error| odd(&error))?.unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        if let Some(trace) = &self.trace {
            request = request.header("traceparent", trace.traceparent());
            let state = trace.tracestate();
            if !state.is_empty() {
                request = request.header("tracestate", state);
            }
        }
        self.answered(request, bytes).await
    }

    pub(super) async fn answered(&self, request: Builder, body: Vec<u8>) -> Result<Response<Body>, ClientError> {
        request.uri_ref().map_or(Ok(()), |uri| check_names(uri.path())).map_err(Box::new)?;
        let request = request.header(header::HOST, "localhost").header(VERSION_HEADER, VERSION);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)));
        let response = self.exchange(request.map_err(|error| ClientError::Odd(error.to_string()))?).await?;
        match response.status() {
            status if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS => Ok(response),
            status => Err(refusal(status, &whole(response).await?)),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, ClientError> {
        match &self.server {
            ServerPlace::Socket(path) => {
                let unreachable = |source| ClientError::Unreachable { path: path.clone(), source };
                let stream = connect_unix(path).await.map_err(unreachable)?;
                Ok(exchange(stream, request).await?.map(Body::new))
            }
            ServerPlace::Here(server, router) if request.headers().contains_key(header::UPGRADE) => {
                let (ours, theirs) = tokio::io::duplex(BUFFER);
                server.serve_stream(theirs, router.clone());
                Ok(exchange(ours, request).await?.map(Body::new))
            }
            ServerPlace::Here(_, router) => {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(HostCaller::of(std::process::id(), None));
                // A router never fails.
                let Ok(response) = TowerToHyperService::new(router.clone()).call(request).await;
                Ok(response)
            }
        }
    }
}

/// Buffer size between a client and a server in one process.
const BUFFER: usize = 64 << 10;

/// Sends a request on its own connection, within a runtime; returns the answer once its head has arrived.
pub async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // `send_request` reports its error.
        drop(connection.with_upgrades().await);
    });
    sender.send_request(request).await
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<HttpProblem>(body) {
        Ok(problem) => ClientError::Refused(Box::new(problem)),
        Err(_) => ClientError::Odd(format!("status {status}")),
    }
}

async fn document<T: DeserializeOwned>(response: Response<Body>) -> Result<T, ClientError> {
    let bytes = whole(response).await?;
    // An empty answer reads as `null`.
    let bytes = if bytes.is_empty() { Bytes::from_static(b"null") } else { bytes };
    serde_json::from_slice(&bytes).map_err(|error| ClientError::Odd(error.to_string()))
}

async fn whole(response: Response<Body>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    Ok(body.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes())
}

pub(super) struct ResponseStream {
    body: Body,
    read: BytesMut,
    /// No event ends before this index.
    searched: usize,
}

pub(super) struct SentEvent {
    pub(super) name: String,
    pub(super) data: String,
}

impl SentEvent {
    fn value<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.data).map_err(|error| ClientError::Odd(error.to_string()))
    }

    fn text(&self) -> Result<String, ClientError> {
        let value: Value = self.value()?;
        value["text"].as_str().map(str::to_owned).ok_or_else(|| ClientError::Odd("`text` is missing".to_owned()))
    }

    fn number(&self, field: &str) -> Result<u64, ClientError> {
        self.value::<Value>()?[field].as_u64().ok_or_else(|| ClientError::Odd(format!("`{field}` is missing")))
    }
}

impl ResponseStream {
    fn of(response: Response<Body>) -> Self {
        Self { body: response.into_body(), read: BytesMut::new(), searched: 0 }
    }

    pub(super) async fn next(&mut self) -> Result<Option<SentEvent>, ClientError> {
        loop {
            while let Some(end) = self.read[self.searched..].windows(2).position(|pair| pair == b"\n\n") {
                let text = self.read.split_to(self.searched + end + 2);
                self.searched = 0;
                if let Some(event) = parse(&String::from_utf8_lossy(&text)) {
                    return Ok(Some(event));
                }
            }
            self.searched = self.read.len().saturating_sub(1);
            if self.read.len() > ANSWER_MAX {
                return Err(ClientError::Odd(format!("an event has more than {ANSWER_MAX} bytes")));
            }
            let frame = self.body.frame().await.transpose();
            match frame.map_err(|error| ClientError::Broken(error.to_string()))? {
                None => return Ok(None),
                Some(frame) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.read.extend_from_slice(bytes);
                    }
                }
            }
        }
    }
}

fn parse(text: &str) -> Option<SentEvent> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let data = field("data:")?.to_owned();
    Some(SentEvent { name: field("event:").unwrap_or("message").to_owned(), data })
}

#[derive(Deserialize)]
struct OutputSent {
    stream: OutputStream,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
}

/// Parses an event of a call; `None` for events that only newer servers send.
pub(super) fn call_event(event: &SentEvent) -> Result<Option<CallEvent>, ClientError> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    Ok(match event.name.as_str() {
        "outcome" => Some(CallEvent::Ended(event.value()?)),
        "problem" => return Err(ClientError::Refused(Box::new(event.value()?))),
        "begun" => Some(CallEvent::Begun(event.number("call")?)),
        "progress" => Some(CallEvent::Progress(event.text()?)),
        "missed" => Some(CallEvent::Missed(event.number("bytes")?)),
        "question" => Some(CallEvent::Question(event.value()?)),
        "output" => {
            let OutputSent { stream, text, base64 } = event.value()?;
            let bytes = match (text, base64) {
                (Some(text), _) => text.into_bytes(),
                (None, base64) => {
                    let decoded = STANDARD.decode(base64.unwrap_or_default());
                    decoded.map_err(|error| ClientError::Odd(error.to_string()))?
                }
            };
            Some(CallEvent::Output { stream, bytes: bytes.into() })
        }
        _ => None,
    })
}
