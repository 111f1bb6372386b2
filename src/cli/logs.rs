//! Log lines on the error stream.

use clap::ValueEnum;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

fn filter(verbose: u8, usual: &str) -> EnvFilter {
    let wanted = match verbose {
        0 => usual,
        1 => "foldspace=debug",
        _ => "trace",
    };
    EnvFilter::try_from_env("FOLDSPACE_LOG").unwrap_or_else(|_| EnvFilter::new(wanted))
}

fn ansi() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

pub(super) fn begin(verbose: u8) {
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter(verbose, "off")).with_writer(std::io::stderr);
    // It would report a broken error stream on the error stream, and panic.
    let subscriber = subscriber.log_internal_errors(false);
    // No other subscriber is set.
    drop(subscriber.with_ansi(ansi()).finish().try_init());
}

/// Sends the remaining traces.
pub(super) type EndTraces = Box<dyn FnOnce()>;

pub(super) type TraceLayer = Option<Box<dyn Layer<Registry> + Send + Sync>>;

const WAITING_MAX: usize = 4096;

/// Starts the log of a server, which never waits for the reader of the error stream. Dropping the guard flushes the log
/// for at most a second.
pub(super) fn serving(format: LogFormat, verbose: u8, traces: TraceLayer) -> WorkerGuard {
    let writer = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_MAX);
    let (writer, guard) = writer.thread_name("foldspace-log").finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi()).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().with_ansi(false).boxed(),
    };
    // No other subscriber is set.
    let lines = lines.with_filter(filter(verbose, "foldspace=info"));
    drop(tracing_subscriber::registry().with(traces).with(lines).try_init());
    guard
}
