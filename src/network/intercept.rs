//! Interception of recorded connections: the first bytes identify the protocol, and TLS is decrypted.

use std::io::{self, Cursor};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Mutex;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use super::certificates::Authority;
use super::connection::{Destination, Outside, join};
use super::exchange::{Exchange, HEAD, HEADERS_MAX, ProxyBody, answer, chain, send, told};
use super::recording::HttpAnswers;
use super::state::Proxy;

/// The usual port of HTTPS.
const HTTPS: u16 = 443;
const METHODS: [&[u8]; 8] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"TRACE "];
/// The first byte of TLS: a handshake.
const HANDSHAKE: u8 = 22;
/// Time limit for the first byte of a client to a recording, which can't speak first.
const GREETING_TIME: Duration = Duration::from_secs(3);
/// The most bytes of a client's greeting.
const GREETING_MAX: usize = 64 << 10;
const HTTP1: &[u8] = b"http/1.1";

/// The protocol of a connection.
enum SpokenProtocol {
    Http,
    /// HTTP in TLS, to the host that the client named.
    Https(Option<String>),
    Other,
}

/// The source of responses.
enum Source {
    /// A connection to the host, and its end.
    Host(Mutex<SendRequest<ProxyBody>>, CancellationToken),
    Recording(HttpAnswers),
    /// The handshake of TLS or HTTP with the host failed, for this reason.
    Nothing(String),
}

/// A host, as a client asked for it.
struct RequestedHost<'a> {
    host: &'a str,
    port: u16,
    scheme: &'static str,
}

/// Passes a connection on to what was reached for it, and records its requests if the rules say so.
pub(crate) async fn relay(
    proxy: &Arc<Proxy>,
    inside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    reached: Destination,
    host: &str,
    port: u16,
) {
    let Some(authority) = proxy.authority.as_ref().filter(|_| proxy.records(host, port)) else {
        return match reached {
            Destination::Outside(outside) => join(inside, outside).await,
            Destination::Recording(_) => proxy.refuse_offline(host, port, "its requests are not recorded"),
        };
    };
    let (mut read, write) = tokio::io::split(inside);
    let mut seen = Vec::new();
    let outside = if let Destination::Outside(outside) = &reached { Some(&**outside) } else { None };
    let is_https = port == HTTPS || proxy.rules().record_http.iter().any(|pattern| pattern.port() == Some(port));
    let spoken = protocol(&mut read, outside, is_https, &mut seen).await;
    let inside = tokio::io::join(Cursor::new(seen).chain(read), write);
    let done = match (spoken, reached) {
        (Ok(SpokenProtocol::Other) | Err(_), Destination::Outside(outside)) => return join(inside, outside).await,
        (Ok(SpokenProtocol::Other) | Err(_), Destination::Recording(_)) => {
            return proxy.refuse_offline(host, port, "only requests of HTTP are recorded");
        }
        (Ok(SpokenProtocol::Http), reached) => {
            let source = match reached {
                Destination::Outside(outside) => source(proxy, outside).await,
                Destination::Recording(answers) => Source::Recording(answers),
            };
            serve(proxy, inside, source, &RequestedHost { host, port, scheme: "http" }).await
        }
        (Ok(SpokenProtocol::Https(name)), reached) => {
            // The rules were asked about the host, not about the name in TLS.
            let name = name.filter(|_| host.parse::<IpAddr>().is_ok()).unwrap_or_else(|| host.to_owned());
            encrypted(proxy, authority, inside, reached, &RequestedHost { host: &name, port, scheme: "https" }).await
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, host, "a recorded connection broke");
    }
}

/// Reads the first bytes of a client, until the protocol is known.
async fn protocol(
    read: &mut (impl AsyncRead + Unpin),
    outside: Option<&Outside>,
    is_https: bool,
    seen: &mut Vec<u8>,
) -> io::Result<SpokenProtocol> {
    let host_speaks = async {
        match outside {
            Some(outside) => outside.speaks().await,
            None => tokio::time::sleep(GREETING_TIME).await,
        }
    };
    let mut host_speaks = pin!(host_speaks);
    loop {
        let count = tokio::select! {
            count = read.read_buf(seen) => count?,
            // A server that speaks first does not speak HTTP.
            () = &mut host_speaks => return Ok(SpokenProtocol::Other),
        };
        match recognised(seen, is_https) {
            Some(speech) => return Ok(speech),
            None if count == 0 || seen.len() > GREETING_MAX => return Ok(SpokenProtocol::Other),
            None => {}
        }
    }
}

/// Returns the protocol; `None` if more bytes decide. With `is_https`, TLS without a named protocol is HTTPS.
fn recognised(seen: &[u8], is_https: bool) -> Option<SpokenProtocol> {
    if seen.first() != Some(&HANDSHAKE) {
        let is_method = |method: &&[u8]| seen.starts_with(method);
        let may_be = |method: &&[u8]| method.starts_with(seen);
        return match METHODS.iter().any(is_method) {
            true => Some(SpokenProtocol::Http),
            false => (!METHODS.iter().any(may_be)).then_some(SpokenProtocol::Other),
        };
    }
    let (mut rest, mut acceptor) = (seen, Acceptor::default());
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return Some(SpokenProtocol::Other);
        }
        match acceptor.accept() {
            Ok(None) => {}
            Err(_) => return Some(SpokenProtocol::Other),
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let is_http = match hello.alpn() {
                    Some(mut offered) => offered.any(|name| name == HTTP1),
                    None => is_https,
                };
                let name = hello.server_name().map(str::to_owned);
                return Some(if is_http { SpokenProtocol::Https(name) } else { SpokenProtocol::Other });
            }
        }
    }
    None
}

/// Terminates the client's TLS, and connects to the host over TLS.
async fn encrypted(
    proxy: &Arc<Proxy>,
    authority: &Authority,
    inside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    reached: Destination,
    asked: &RequestedHost<'_>,
) -> io::Result<()> {
    let config = authority.server(asked.host).map_err(io::Error::other)?;
    let inside = TlsAcceptor::from(config).accept(inside).await?;
    let outside = match reached {
        Destination::Outside(outside) => outside,
        Destination::Recording(answers) => return serve(proxy, inside, Source::Recording(answers), asked).await,
    };
    let name = ServerName::try_from(asked.host.to_owned()).map_err(io::Error::other)?;
    let source = match TlsConnector::from(authority.client()).connect(name, outside).await {
        Ok(outside) => source(proxy, outside).await,
        Err(error) => Source::Nothing(error.to_string()),
    };
    serve(proxy, inside, source, asked).await
}

/// Begins HTTP with a host.
async fn source(proxy: &Proxy, outside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Source {
    let builder = hyper::client::conn::http1::Builder::new();
    match { builder }.preserve_header_case(true).max_headers(HEADERS_MAX).handshake(TokioIo::new(outside)).await {
        Ok((sender, connection)) => {
            let ended = CancellationToken::new();
            let end = ended.clone().drop_guard();
            proxy.spawn(async move {
                // `send_request` reports its error.
                drop(connection.with_upgrades().await);
                drop(end);
            });
            Source::Host(Mutex::new(sender), ended)
        }
        Err(error) => Source::Nothing(error.to_string()),
    }
}

/// Serves the requests of a connection.
async fn serve(
    proxy: &Arc<Proxy>,
    inside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    source: Source,
    asked: &RequestedHost<'_>,
) -> io::Result<()> {
    let service = service_fn(async |request| respond(proxy, &source, asked, request).await);
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).preserve_header_case(true).max_headers(HEADERS_MAX);
    let mut serving = pin!(http.serve_connection(TokioIo::new(inside), service).with_upgrades());
    let host_ends = async {
        match &source {
            Source::Host(_, ended) => ended.cancelled().await,
            Source::Recording(_) | Source::Nothing(_) => std::future::pending().await,
        }
    };
    let served = tokio::select! {
        served = &mut serving => served,
        () = host_ends => {
            // The client then sends its next request on a new connection.
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    served.map_err(io::Error::other)
}

/// Returns the answer to a request. If the host has closed the connection since the last one, the client's is closed,
/// too, so that the client tries again.
async fn respond(
    proxy: &Proxy,
    source: &Source,
    asked: &RequestedHost<'_>,
    request: Request<Incoming>,
) -> io::Result<Response<ProxyBody>> {
    let RequestedHost { host, port, scheme } = asked;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let bracketed = if host.contains(':') { format!("[{host}]") } else { (*host).to_owned() };
    let is_usual = matches!((*scheme, *port), ("http", 80) | ("https", HTTPS));
    let shown = if is_usual { String::new() } else { format!(":{port}") };
    let url = format!("{scheme}://{bracketed}{shown}/{}", path.strip_prefix('/').unwrap_or(path));
    Ok(match source {
        Source::Recording(answers) => answer(proxy, Arc::clone(answers), (host, *port), url, request).await,
        Source::Nothing(why) => {
            Exchange::begin(proxy, url, &request).fail(why);
            told(StatusCode::BAD_GATEWAY, &format!("{host}:{port} was not reached: {why}"))
        }
        Source::Host(sender, _) => {
            let mut sender = sender.lock().await;
            sender.ready().await.map_err(io::Error::other)?;
            let exchange = Exchange::begin(proxy, url, &request);
            match send(proxy, &mut sender, request, Some(exchange)).await {
                Ok(response) => response,
                Err(error) => {
                    told(StatusCode::BAD_GATEWAY, &format!("{host}:{port} did not answer: {}", chain(&error)))
                }
            }
        }
    })
}
