//! Traces of tool calls, sent to a collector.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use foldspace::http::exchange;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderValue};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;

use super::super::logs::{EndTraces, TraceLayer};
use crate::cli::Failure;

const PATH: &str = "/v1/traces";
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_MAX: usize = 1 << 20;

/// Starts sending traces to the collector that the option or the environment names. The returned function flushes them.
pub(super) fn begin(given: Option<&str>, runtime: &Handle) -> Result<(TraceLayer, EndTraces), Failure> {
    let named = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let base = given.map(str::to_owned).or_else(|| named("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let url = named("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|_| given.is_none());
    let Some(url) = url.or_else(|| base.map(|base| format!("{}{PATH}", base.trim_end_matches('/')))) else {
        return Ok((None, Box::new(|| {})));
    };
    if !url.starts_with("http://") {
        return Err(Failure::usage(format!("cannot send traces to {url:?}"))
            .with_hint("use a URL that begins with http://, and a collector on this machine for TLS"));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Plain { runtime: runtime.clone() })
        .with_endpoint(url)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT_TIMEOUT)
        .build();
    let exporter = exporter.map_err(|error| Failure::usage(format!("--otlp: {error}")))?;
    let resource = Resource::builder().with_service_name("foldspace").build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let calls = filter_fn(|metadata| metadata.is_span() && metadata.name() == "tool_call");
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("foldspace")).with_filter(calls).boxed();
    let end = move || {
        if let Err(error) = provider.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "failed to send the last traces");
        }
    };
    Ok((Some(layer), Box::new(end)))
}

/// HTTP without TLS on the server's runtime: the exporter's thread has no runtime.
#[derive(Debug)]
struct Plain {
    runtime: Handle,
}

impl HttpClient for Plain {
    fn send_bytes<'own, 'sent>(
        &'own self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'own: 'sent,
        Self: 'sent,
    {
        let sent = self.runtime.spawn(async move { tokio::time::timeout(EXPORT_TIMEOUT, send(request)).await });
        Box::pin(async move { sent.await?? })
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let host = request.uri().host().unwrap_or_default();
    let address = (host.trim_matches(['[', ']']), request.uri().port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await?;
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    parts.headers.insert(HOST, HeaderValue::from_str(authority)?);
    parts.uri = parts.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let answer = exchange(stream, Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(parts, body))
}
