//! The proxy for HTTP: `CONNECT`, and requests with a whole address.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::connection::join;
use super::report::ConnectionOutcome;
use super::state::Proxy;

type Body = BoxBody<Bytes, hyper::Error>;

/// Headers between a client and its proxy.
const OWN: [HeaderName; 2] =
    [HeaderName::from_static("proxy-connection"), HeaderName::from_static("proxy-authorization")];
/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(30);

pub(crate) async fn serve(stream: TcpStream, proxy: Arc<Proxy>) {
    let service = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { Ok::<_, Infallible>(answer(&proxy, request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).preserve_header_case(true).half_close(true);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a client of the proxy sent an invalid request");
    }
}

async fn answer(proxy: &Proxy, request: Request<Incoming>) -> Response<Body> {
    let is_connect = request.method() == Method::CONNECT;
    let uri = request.uri();
    let port = uri.port_u16().or_else(|| (uri.scheme_str() == Some("http") && !is_connect).then_some(80));
    let (Some(host), Some(port)) = (uri.host().map(str::to_owned), port.filter(|port| *port != 0)) else {
        let text = "this is a proxy: ask by CONNECT host:port, or for http://host/path";
        return told(StatusCode::BAD_REQUEST, text);
    };
    let done =
        if is_connect { tunnel(proxy, &host, port, request).await } else { pass_on(proxy, &host, port, request).await };
    done.unwrap_or_else(|outcome| match outcome {
        ConnectionOutcome::Refused(why) => {
            told(StatusCode::FORBIDDEN, &format!("foldspace refused a connection to {host}:{port}: {why}"))
        }
        ConnectionOutcome::Failed(why) => {
            told(StatusCode::BAD_GATEWAY, &format!("{host}:{port} was not reached: {why}"))
        }
        ConnectionOutcome::Closed => told(StatusCode::BAD_GATEWAY, &format!("{host}:{port} closed the connection")),
    })
}

async fn tunnel(
    proxy: &Proxy,
    host: &str,
    port: u16,
    request: Request<Incoming>,
) -> Result<Response<Body>, ConnectionOutcome> {
    let outside = proxy.connect(host, port, "connect").await?;
    proxy.spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(inside) => join(TokioIo::new(inside), outside).await,
            Err(error) => tracing::debug!(%error, "a client of the proxy left"),
        }
    });
    Ok(Response::new(empty()))
}

/// Sends a request to its host on a separate connection.
async fn pass_on(
    proxy: &Proxy,
    host: &str,
    port: u16,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, ConnectionOutcome> {
    let failed = |error: hyper::Error| ConnectionOutcome::Failed(error.to_string());
    let outside = proxy.connect(host, port, "http").await?;
    let builder = hyper::client::conn::http1::Builder::new();
    let (mut sender, connection) =
        { builder }.preserve_header_case(true).handshake(TokioIo::new(outside)).await.map_err(failed)?;
    proxy.spawn(async move {
        // `send_request` reports its error.
        drop(connection.with_upgrades().await);
    });
    let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(host_of(authority.as_str())));
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    let headers = request.headers_mut();
    OWN.iter().for_each(|own| drop(headers.remove(own)));
    if upgrade.is_none() {
        headers.remove(CONNECTION);
    }
    // The server must see the host that was checked.
    if let Some(Ok(authority)) = authority {
        headers.insert(HOST, authority);
    }
    let mut response = sender.send_request(request).await.map_err(failed)?;
    if let (Some(client), StatusCode::SWITCHING_PROTOCOLS) = (upgrade, response.status()) {
        let server = hyper::upgrade::on(&mut response);
        proxy.spawn(async move {
            if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
    Ok(response.map(|body| body.boxed()))
}

/// Returns an authority without the user that may stand before its host.
fn host_of(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

fn told(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed()
}
