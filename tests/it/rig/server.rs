//! The HTTP API of a store, and requests to it through real sockets.

use std::path::PathBuf;

use bytes::Bytes;
use foldspace::http::{Access, HttpClient, HttpFace, HttpOptions, HttpServer, ServerLimits, Token, bind_unix};
use foldspace::hub::HubOptions;
use foldspace::tools::AllowedRoots;
use foldspace::{Hub, Sessions};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::WAIT_LIMIT;

/// The token of the tests' servers.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server with a unix socket and a TCP socket.
pub(crate) struct Server {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) face: HttpFace,
    pub(crate) server: HttpServer,
    pub(crate) socket: PathBuf,
    pub(crate) address: std::net::SocketAddr,
}

/// Answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let said = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Server {
    pub(crate) async fn begin() -> Self {
        Self::with(ServerLimits::default()).await
    }

    pub(crate) async fn with(limits: ServerLimits) -> Self {
        Self::made(tempfile::tempdir().unwrap(), limits, HttpOptions::default()).await
    }

    /// Over the store of a directory; the options are the unix socket's.
    pub(crate) async fn made(directory: tempfile::TempDir, limits: ServerLimits, options: HttpOptions) -> Self {
        let sessions = super::store::sessions(&directory.path().join("data"));
        Self::over(directory, sessions, limits, options).await
    }

    /// Over these sessions, with the workspaces in a directory.
    pub(crate) async fn over(
        directory: tempfile::TempDir,
        sessions: Sessions,
        limits: ServerLimits,
        options: HttpOptions,
    ) -> Self {
        let roots = AllowedRoots::new([directory.path()]).unwrap();
        let hub = Hub::new(sessions, HubOptions { roots, ..HubOptions::new(directory.path().join("data")) });
        let (face, server) = (HttpFace::new(hub), HttpServer::new(limits));
        let socket = directory.path().join("http.sock");
        let (unix, router) = (bind_unix(&socket).unwrap(), face.router(options));
        let serving = server.clone();
        tokio::spawn(async move { serving.serve_unix(unix, router).await });
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let access = Access::Token { token: Token::new(TOKEN).unwrap(), names: vec!["box.example".to_owned()] };
        let (serving, router) = (server.clone(), face.router(HttpOptions { access, ..HttpOptions::default() }));
        tokio::spawn(async move { serving.serve_tcp(tcp, router).await });
        Self { directory, face, server, socket, address }
    }

    pub(crate) fn client(&self) -> HttpClient {
        HttpClient::at(&self.socket)
    }

    /// A request on the unix socket.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_with(method, path, body, &[]).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let json = body.map(|_| ("content-type", "application/json"));
        let headers: Vec<_> = headers.iter().copied().chain(json).collect();
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        taken(sent(TokioIo::new(stream), method, path, bytes.into(), &headers).await).await
    }

    /// A request on the TCP socket, with no headers but these.
    pub(crate) async fn ask_tcp(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        taken(sent(TokioIo::new(stream), "GET", path, Bytes::new(), headers).await).await
    }

    /// The beginning of a stream.
    pub(crate) async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> EventLines {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let response = sent(TokioIo::new(stream), "GET", path, Bytes::new(), headers).await;
        assert_eq!(response.status().as_u16(), 200);
        EventLines { body: response.into_body(), read: String::new() }
    }

    pub(crate) async fn session(&self, name: &str) {
        let begun = self.ask("POST", "/v1/sessions", Some(&json!({ "name": name }))).await;
        assert_eq!(begun.status, 201, "{begun:?}");
    }

    pub(crate) async fn write(&self, session: &str, path: &str) -> Value {
        let call = json!({ "tool": "write_file", "params": { "file_path": path, "content": "one\n" } });
        let answer = self.ask("POST", &format!("/v1/sessions/{session}/calls"), Some(&call)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

pub(crate) async fn sent<S>(
    io: TokioIo<S>,
    method: &str,
    path: &str,
    body: Bytes,
    headers: &[(&str, &str)],
) -> Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
}

pub(crate) async fn taken(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// Events as they come.
pub(crate) struct EventLines {
    pub(crate) body: Incoming,
    pub(crate) read: String,
}

impl EventLines {
    /// The next event's id, name and data; none at the end.
    pub(crate) async fn next(&mut self) -> Option<(Option<u64>, String, Value)> {
        loop {
            while let Some(end) = self.read.find("\n\n") {
                let text: String = self.read.drain(..end + 2).collect();
                let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                if let Some(data) = field("data:") {
                    let id = field("id:").map(|id| id.parse().unwrap());
                    let name = field("event:").unwrap_or_default().to_owned();
                    return Some((id, name, serde_json::from_str(data).unwrap()));
                }
            }
            let frame = tokio::time::timeout(WAIT_LIMIT, self.body.frame()).await.unwrap()?;
            self.read.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
        }
    }
}
