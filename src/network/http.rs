//! The proxy for HTTP: `CONNECT`, and requests with a whole address.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::connection::Destination;
use super::exchange::{Exchange, HEAD, HEADERS_MAX, ProxyBody, answer, chain, full, send, told};
use super::intercept::relay;
use super::report::ConnectionOutcome;
use super::state::{ClientPlace, Proxy};

/// Headers between a client and its proxy.
const OWN: [HeaderName; 2] =
    [HeaderName::from_static("proxy-connection"), HeaderName::from_static("proxy-authorization")];

pub(crate) async fn serve(stream: TcpStream, proxy: Arc<Proxy>, place: ClientPlace) {
    let service = service_fn(move |request| {
        let (proxy, place) = (Arc::clone(&proxy), place.clone());
        async move { Ok::<_, Infallible>(respond(&proxy, &place, request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).preserve_header_case(true).max_headers(HEADERS_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a client of the proxy sent an invalid request");
    }
}

async fn respond(proxy: &Arc<Proxy>, place: &ClientPlace, request: Request<Incoming>) -> Response<ProxyBody> {
    let is_connect = request.method() == Method::CONNECT;
    let uri = request.uri();
    let port = uri.port_u16().or_else(|| (uri.scheme_str() == Some("http") && !is_connect).then_some(80));
    let (Some(host), Some(port)) = (uri.host().map(str::to_owned), port.filter(|port| *port != 0)) else {
        let text = "this is a proxy: ask by CONNECT host:port, or for http://host/path";
        return told(StatusCode::BAD_REQUEST, text);
    };
    let done = match is_connect {
        true => tunnel(proxy, place, (&host, port), request).await,
        false => pass_on(proxy, place, (&host, port), request).await,
    };
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
    proxy: &Arc<Proxy>,
    place: &ClientPlace,
    (host, port): (&str, u16),
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, ConnectionOutcome> {
    let reached = proxy.reach(host, port, "connect").await?;
    place.leave();
    let (relaying, host) = (Arc::clone(proxy), host.to_owned());
    proxy.spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(inside) => relay(&relaying, TokioIo::new(inside), reached, &host, port).await,
            Err(error) => tracing::debug!(%error, "a client of the proxy left"),
        }
    });
    Ok(Response::new(full(Bytes::new())))
}

/// Sends a request to its host on a separate connection.
async fn pass_on(
    proxy: &Proxy,
    place: &ClientPlace,
    (host, port): (&str, u16),
    mut request: Request<Incoming>,
) -> Result<Response<ProxyBody>, ConnectionOutcome> {
    let failed = |error: hyper::Error| ConnectionOutcome::Failed(chain(&error));
    let url = without_user(request.uri());
    let reached = proxy.reach(host, port, "http").await?;
    place.leave();
    let outside = match reached {
        Destination::Outside(outside) => outside,
        Destination::Recording(answers) => return Ok(answer(proxy, answers, (host, port), url, request).await),
    };
    let exchange = proxy.records(host, port).then(|| Exchange::begin(proxy, url, &request));
    let builder = hyper::client::conn::http1::Builder::new();
    let (mut sender, connection) = { builder }
        .preserve_header_case(true)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(outside))
        .await
        .map_err(failed)?;
    proxy.spawn(async move {
        // `send_request` reports its error.
        drop(connection.with_upgrades().await);
    });
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(host_of(authority.as_str())));
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    let is_upgrade = request.headers().contains_key(UPGRADE);
    let headers = request.headers_mut();
    OWN.iter().for_each(|own| drop(headers.remove(own)));
    if !is_upgrade {
        headers.remove(CONNECTION);
    }
    // The server must see the host that was checked.
    if let Some(Ok(authority)) = authority {
        headers.insert(HOST, authority);
    }
    send(proxy, &mut sender, request, exchange).await.map_err(failed)
}

fn without_user(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| host_of(authority.as_str()));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("http://{authority}{path}")
}

/// Returns an authority without the user that may stand before its host.
fn host_of(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}
