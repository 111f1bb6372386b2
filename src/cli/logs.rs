//! What the library tells of itself, for who wants to know.

use clap::ValueEnum;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// How what happens is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON object a line
    Json,
}

/// What FOLDSPACE_LOG says, else what is usual.
fn filter(usual: &str) -> EnvFilter {
    match EnvFilter::try_from_env("FOLDSPACE_LOG") {
        Ok(filter) => filter,
        Err(_) => EnvFilter::new(usual),
    }
}

fn ansi() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Tells what happens on the error stream, when somebody wants it.
pub(super) fn begin(verbose: u8) {
    let usual = match verbose {
        0 => "off",
        1 => "foldspace=debug",
        _ => "trace",
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter(usual)).with_writer(std::io::stderr);
    // It would say on the error stream that the error stream takes nothing, and panic.
    let subscriber = subscriber.log_internal_errors(false);
    // Nobody else has set one.
    drop(subscriber.with_ansi(ansi()).finish().try_init());
}

/// The layer of a server's traces, where it has any.
pub(super) type TraceLayer = Option<Box<dyn Layer<Registry> + Send + Sync>>;

/// Lines that wait for who reads a server's error stream; more are lost.
const WAITING_MAX: usize = 4096;

/// The same for a server. It never waits for who reads the error stream; what is still to be written at the end is given
/// a second, when the guard is dropped.
pub(super) fn serving(format: LogFormat, verbose: u8, traces: TraceLayer) -> WorkerGuard {
    let usual = match verbose {
        0 => "foldspace=info",
        1 => "foldspace=debug",
        _ => "trace",
    };
    let writer = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_MAX);
    let (writer, guard) = writer.thread_name("foldspace-log").finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi()).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().with_ansi(false).boxed(),
    };
    // Nobody else has set one.
    drop(tracing_subscriber::registry().with(traces).with(lines.with_filter(filter(usual))).try_init());
    guard
}
