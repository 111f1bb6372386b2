//! HTTP requests in flight to a host, and their recorded bodies.

use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use super::connection::started;
use super::recording::{BODY_KEPT, HttpAnswers, HttpMessage, HttpReport};
use super::report::{NetworkReport, ReportSink};
use super::state::Proxy;

/// Time limit for the head of a request.
pub(crate) const HEAD: Duration = Duration::from_secs(30);
/// The most headers of a request, and of a response.
pub(crate) const HEADERS_MAX: usize = 512;

pub(crate) type ProxyBody = BoxBody<Bytes, hyper::Error>;

/// A request that is recorded. It reports itself when it is dropped.
pub(crate) struct Exchange {
    sink: ReportSink,
    begun: Instant,
    request: Arc<Mutex<KeptBody>>,
    report: HttpReport,
}

/// The most bytes of recorded bodies in flight, of all proxies together.
const KEPT_MAX: usize = 256 << 20;

/// The bytes of recorded bodies in flight.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// The recorded beginning of a body.
#[derive(Default)]
struct KeptBody {
    kept: Vec<u8>,
    bytes: u64,
}

impl KeptBody {
    fn add(&mut self, data: &Bytes) {
        // Nothing is recorded after a gap.
        let is_whole = self.bytes == self.kept.len() as u64;
        self.bytes += data.len() as u64;
        let room = BODY_KEPT.saturating_sub(self.kept.len());
        let data = data.get(..room).unwrap_or(data);
        if is_whole && KEPT.fetch_add(data.len(), Ordering::Relaxed) + data.len() <= KEPT_MAX {
            self.kept.extend_from_slice(data);
        } else if is_whole {
            KEPT.fetch_sub(data.len(), Ordering::Relaxed);
        }
    }

    /// Returns the recorded bytes, and the size of the whole body.
    fn take(&mut self) -> (Vec<u8>, u64) {
        KEPT.fetch_sub(self.kept.len(), Ordering::Relaxed);
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.bytes))
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Exchange {
    pub(crate) fn begin<B>(proxy: &Proxy, url: String, request: &Request<B>) -> Self {
        let message = HttpMessage { headers: written(request.headers()), ..HttpMessage::default() };
        let (order, method) = (proxy.requests.fetch_add(1, Ordering::Relaxed), request.method().to_string());
        let report = HttpReport { order, method, url, request: message, ..HttpReport::default() };
        Self { sink: Arc::clone(&proxy.sink), begun: started(), request: Arc::default(), report }
    }

    /// Records the reason why there is no response.
    pub(crate) fn fail(mut self, why: &str) {
        why.clone_into(&mut self.report.error);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut report = std::mem::take(&mut self.report);
        (report.request.body, report.request.bytes) = lock(&self.request).take();
        if report.status == 0 && report.error.is_empty() {
            "the client left before the response".clone_into(&mut report.error);
        }
        report.duration = self.begun.elapsed();
        (self.sink)(NetworkReport::Exchange(Box::new(report)));
    }
}

fn written(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// A body that is recorded as it streams through.
struct KeepingBody {
    body: Incoming,
    kept: Arc<Mutex<KeptBody>>,
    /// The exchange that ends with the body.
    answer: Option<RecordedAnswer>,
}

struct RecordedAnswer {
    exchange: Exchange,
    headers: HeaderMap,
    has_ended: bool,
}

impl Body for KeepingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            frame.data_ref().into_iter().for_each(|data| lock(&self.kept).add(data));
        }
        if let (None, Some(answer)) = (&frame, &mut self.answer) {
            answer.has_ended = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for KeepingBody {
    fn drop(&mut self) {
        let Some(RecordedAnswer { mut exchange, headers, has_ended }) = self.answer.take() else { return };
        if !has_ended && !self.body.is_end_stream() {
            "the response was cut off".clone_into(&mut exchange.report.error);
        }
        let (body, bytes) = lock(&self.kept).take();
        exchange.report.response = HttpMessage { headers: written(&headers), body, bytes };
    }
}

/// Sends a request to its host, and returns the response.
pub(crate) async fn send(
    proxy: &Proxy,
    sender: &mut SendRequest<ProxyBody>,
    mut request: Request<Incoming>,
    exchange: Option<Exchange>,
) -> Result<Response<ProxyBody>, hyper::Error> {
    let client = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    if exchange.is_some() {
        // Masks do not look into compressed bodies.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let kept = exchange.as_ref().map(|exchange| Arc::clone(&exchange.request));
    let request = request.map(|body| match kept {
        Some(kept) => KeepingBody { body, kept, answer: None }.boxed(),
        None => body.boxed(),
    });
    let mut response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => {
            exchange.into_iter().for_each(|exchange| exchange.fail(&chain(&error)));
            return Err(error);
        }
    };
    if let (Some(client), StatusCode::SWITCHING_PROTOCOLS) = (client, response.status()) {
        let server = hyper::upgrade::on(&mut response);
        proxy.spawn(async move {
            if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(response.map(|body| match exchange {
        Some(mut exchange) => {
            exchange.report.status = status;
            let answer = Some(RecordedAnswer { exchange, headers, has_ended: false });
            KeepingBody { body, kept: Arc::default(), answer }.boxed()
        }
        None => body.boxed(),
    }))
}

/// Replays the recorded response to a request.
pub(crate) async fn answer(
    proxy: &Proxy,
    answers: HttpAnswers,
    (host, port): (&str, u16),
    url: String,
    request: Request<Incoming>,
) -> Response<ProxyBody> {
    let mut exchange = Exchange::begin(proxy, url, &request);
    exchange.report.is_replayed = true;
    let is_head = request.method() == Method::HEAD;
    let mut body = KeepingBody { body: request.into_body(), kept: Arc::clone(&exchange.request), answer: None };
    while let Some(Ok(_)) = body.frame().await {}
    let mut asked = exchange.report.clone();
    {
        let kept = lock(&exchange.request);
        (asked.request.body, asked.request.bytes) = (kept.kept.clone(), kept.bytes);
    }
    if asked.request.body.len() as u64 != asked.request.bytes {
        let why = format!("not all {} bytes of the request's body could be kept", asked.request.bytes);
        proxy.refuse_offline(host, port, &why);
        exchange.fail(&why);
        return told(StatusCode::PAYLOAD_TOO_LARGE, &format!("foldspace is offline: {why}"));
    }
    let found = tokio::task::spawn_blocking(move || answers(&asked)).await;
    match found.unwrap_or_else(|error| Err(error.to_string())) {
        Ok((status, message)) => {
            exchange.report.status = status;
            exchange.report.response = message.clone();
            replayed(status, message, is_head)
        }
        Err(why) => {
            let text = format!("foldspace is offline: {why}");
            proxy.refuse_offline(host, port, &why);
            exchange.fail(&why);
            told(StatusCode::GATEWAY_TIMEOUT, &text)
        }
    }
}

/// Returns a recorded response. The recorded length counts only without a body, as after `HEAD`.
fn replayed(status: u16, message: HttpMessage, is_head: bool) -> Response<ProxyBody> {
    let mut response = Response::new(full(message.body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in &message.headers {
        let own = [CONNECTION.as_str(), TRANSFER_ENCODING.as_str()];
        let is_length = name == CONTENT_LENGTH.as_str() && !is_head;
        if let (false, Ok(name), Ok(value)) =
            (is_length || own.contains(&name.as_str()), HeaderName::try_from(name), HeaderValue::from_str(value))
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Returns an answer of the proxy itself.
pub(crate) fn told(status: StatusCode, text: &str) -> Response<ProxyBody> {
    let mut response = Response::new(full(format!("{text}\n").into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub(crate) fn full(bytes: Bytes) -> ProxyBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Describes an error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        told = format!("{told}: {source}");
        cause = source.source();
    }
    told
}

fn lock(kept: &Mutex<KeptBody>) -> MutexGuard<'_, KeptBody> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
