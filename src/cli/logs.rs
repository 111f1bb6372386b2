//! Log lines on the error stream.

use std::io::Write;
use std::time::Duration;

use clap::ValueEnum;
use crossbeam_channel::{Receiver, Sender, bounded};
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

/// Limit for writing the last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// Log lines for the thread that writes them; `None` ends it. Lines that find no room are dropped.
#[derive(Clone)]
struct LogSender(Sender<Option<Vec<u8>>>);

impl Write for LogSender {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        // A full queue drops the line.
        let _ = self.0.try_send(Some(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ends the log when dropped: waits at most two seconds until the lines so far are written.
pub(super) struct LogGuard {
    lines: LogSender,
    ended: Receiver<()>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if self.lines.0.send_timeout(None, FLUSH).is_ok() {
            // The thread drops its end.
            let _ = self.ended.recv_timeout(FLUSH);
        }
    }
}

/// Starts the thread that writes log lines, so that no other thread waits for the reader of the error stream.
fn writer() -> (LogSender, LogGuard) {
    let (lines, written) = bounded::<Option<Vec<u8>>>(WAITING_MAX);
    let (end, ended) = bounded(0);
    let write = move || {
        let _end: Sender<()> = end;
        while let Ok(Some(line)) = written.recv() {
            // Without a reader, the error can't be reported.
            let _ = std::io::stderr().write_all(&line);
        }
    };
    // Without a thread the queue fills, and lines are dropped.
    drop(std::thread::Builder::new().name("foldspace-log".to_owned()).spawn(write));
    let lines = LogSender(lines);
    (lines.clone(), LogGuard { lines, ended })
}

/// Logs for a server, and never waits for the reader of the error stream.
pub(super) fn serving(format: LogFormat, verbose: u8, traces: TraceLayer) -> LogGuard {
    let (sender, guard) = writer();
    let lines = tracing_subscriber::fmt::layer().with_writer(move || sender.clone());
    let lines = lines.with_ansi(ansi()).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().with_ansi(false).boxed(),
    };
    // No other subscriber is set.
    let lines = lines.with_filter(filter(verbose, "foldspace=info"));
    drop(tracing_subscriber::registry().with(traces).with(lines).try_init());
    guard
}
