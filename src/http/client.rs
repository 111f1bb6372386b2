//! A client of the API on a unix socket.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::frames::EVENTS;
use super::server::connect_unix;
use super::{CallRequest, HttpProblem};
use crate::engine::session::output_stream::OutputStream;
use crate::tools::{ToolOutcome, TraceContext};

/// Bytes of an answer that is taken whole, and of one event.
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
    /// The server says no.
    #[error(transparent)]
    Refused(#[from] Box<HttpProblem>),
    /// The server says something that is none of its answers.
    #[error("the server's answer can't be understood: {0}")]
    Odd(String),
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// An event of a call in flight.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// It has begun, under that name.
    Begun(u64),
    /// Its command has printed something.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The bytes.
        bytes: Bytes,
    },
    /// Its command needs an approval: [`HttpClient::answer`] gives it.
    Question(Value),
    /// Bytes of output came faster than they were read, and were not shown.
    Missed(u64),
}

/// Talks to the server at a unix socket, with a connection for each request. Dropping a request cancels it.
#[derive(Debug, Clone)]
pub struct HttpClient {
    path: PathBuf,
    trace: Option<TraceContext>,
}

impl HttpClient {
    /// A client of the server at that socket.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), trace: None }
    }

    /// Returns a client whose requests belong to that trace.
    #[must_use]
    pub fn in_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Makes a call in a session, by its name or the beginning of its id; `seen` is given what comes of it meanwhile.
    pub async fn call(
        &self,
        session: &str,
        request: &CallRequest,
        mut seen: impl FnMut(CallEvent) + Send,
    ) -> Result<ToolOutcome, ClientError> {
        let path = format!("/v1/sessions/{}/calls", encoded(session));
        let response = self.send(Method::POST, &path, Some(request), Some(EVENTS)).await?;
        let mut stream = ResponseStream { body: response.into_body(), read: BytesMut::new(), searched: 0 };
        while let Some(event) = stream.next().await? {
            match event.name.as_str() {
                "outcome" => return event.value(),
                "problem" => return Err(ClientError::Refused(Box::new(event.value()?))),
                name => {
                    if let Some(known) = call_event(name, &event)? {
                        seen(known);
                    }
                }
            }
        }
        Err(ClientError::Broken("the call's outcome never came".to_owned()))
    }

    /// Answers a call's question: `once`, `session` or `refuse`.
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
        let path = format!("/v1/sessions/{}/calls/{call}", encoded(session));
        self.send(Method::DELETE, &path, None::<&()>, None).await.map(drop)
    }

    /// Asks for a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// Sends a document, and gives the one that comes back.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let response = self.send(method, path, body, Some("application/json")).await?;
        let bytes = whole(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Odd(error.to_string()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        accept: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { path: self.path.clone(), source };
        let stream = connect_unix(&self.path).await.map_err(unreachable)?;
        let odd = |error: &dyn std::fmt::Display| ClientError::Odd(error.to_string());
        let bytes = body.map(serde_json::to_vec).transpose().map_err(|error| odd(&error))?.unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
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
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(bytes)));
        let response = exchange(stream, request.map_err(|error| odd(&error))?).await?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(refusal(status, &whole(response).await?)),
        }
    }
}

/// Sends a request on a connection that is for it alone, within a runtime; gives the answer, whose body is still to come.
pub async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Its error comes with the answer.
        drop(connection.await);
    });
    sender.send_request(request).await
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<HttpProblem>(body) {
        Ok(problem) => ClientError::Refused(Box::new(problem)),
        Err(_) => ClientError::Odd(format!("status {status}")),
    }
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    Ok(body.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes())
}

fn encoded(part: &str) -> impl std::fmt::Display {
    utf8_percent_encode(part, NON_ALPHANUMERIC)
}

struct ResponseStream {
    body: Incoming,
    read: BytesMut,
    /// No event ends before this index.
    searched: usize,
}

struct Sent {
    name: String,
    data: String,
}

impl Sent {
    fn value<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.data).map_err(|error| ClientError::Odd(error.to_string()))
    }

    fn number(&self, field: &str) -> Result<u64, ClientError> {
        self.value::<Value>()?[field].as_u64().ok_or_else(|| ClientError::Odd(format!("there is no {field}")))
    }
}

impl ResponseStream {
    async fn next(&mut self) -> Result<Option<Sent>, ClientError> {
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
                return Err(ClientError::Odd("an event that does not end".to_owned()));
            }
            match self.body.frame().await.transpose()? {
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

fn parse(text: &str) -> Option<Sent> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let data = field("data:")?.to_owned();
    Some(Sent { name: field("event:").unwrap_or("message").to_owned(), data })
}

#[derive(Deserialize)]
struct OutputSent {
    stream: OutputStream,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
}

/// Reads an event of a call; `None` for events of newer servers.
fn call_event(name: &str, event: &Sent) -> Result<Option<CallEvent>, ClientError> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    Ok(match name {
        "begun" => Some(CallEvent::Begun(event.number("call")?)),
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
