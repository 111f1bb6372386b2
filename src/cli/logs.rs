//! What the library tells of itself, for who wants to know.

use clap::ValueEnum;
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
    // Nobody else has set one.
    drop(subscriber.with_ansi(ansi()).finish().try_init());
}

/// The layer of a server's traces, where it has any.
pub(super) type TraceLayer = Option<Box<dyn Layer<Registry> + Send + Sync>>;

/// The same for a server, which tells of each call.
pub(super) fn serving(format: LogFormat, verbose: u8, traces: TraceLayer) {
    let usual = match verbose {
        0 => "foldspace=info",
        1 => "foldspace=debug",
        _ => "trace",
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().with_ansi(false).boxed(),
    };
    // Nobody else has set one.
    drop(tracing_subscriber::registry().with(traces).with(lines.with_filter(filter(usual))).try_init());
}
