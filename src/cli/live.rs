//! Streams the output of commands while they run.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use bytes::Bytes;
use foldspace::backends::OutputStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Exit, Failure, output};

const LAST: Duration = Duration::from_secs(1);
/// The number of pieces that may wait to be written.
const WAITING: usize = 8;

/// Streams all output of a call's command. A slow reader blocks the command until the call is cancelled.
pub(super) struct LiveOutput {
    pieces: mpsc::Sender<(OutputStream, Bytes)>,
    passed: oneshot::Receiver<io::Result<()>>,
    cancel: CancellationToken,
    /// The number of bytes that were not shown.
    pub(super) missed: u64,
}

impl LiveOutput {
    /// Starts to stream the output of a call that `cancel` cancels.
    pub(super) fn begin(cancel: &CancellationToken) -> Result<Self, Failure> {
        let (pieces, waiting) = mpsc::channel(WAITING);
        let (tell, passed) = oneshot::channel();
        let thread = std::thread::Builder::new().name("foldspace-output".to_owned());
        let thread = thread.spawn(move || {
            // The receiver may be gone.
            drop(tell.send(pass_on(waiting)));
        });
        thread.map_err(|error| Failure::io("start", "the thread that shows output", &error))?;
        Ok(Self { pieces, passed, cancel: cancel.clone(), missed: 0 })
    }

    /// Streams a piece of output. After the call was cancelled, waits for the reader only briefly.
    pub(super) async fn show(&mut self, stream: OutputStream, bytes: Bytes) {
        let length = bytes.len() as u64;
        let sent = tokio::select! {
            sent = self.pieces.send((stream, bytes)) => sent.is_ok(),
            () = last_moment(&self.cancel) => false,
        };
        if !sent {
            self.missed += length;
        }
    }

    /// Waits until everything is written. After the call was cancelled, waits only briefly.
    pub(super) async fn end(self) -> Result<(), Failure> {
        let Self { pieces, mut passed, cancel, missed } = self;
        drop(pieces);
        let passed = tokio::select! {
            passed = &mut passed => passed.unwrap_or_else(|_| Err(io::Error::other("its thread ended"))),
            () = last_moment(&cancel) => Ok(()),
        };
        if missed > 0 {
            let missed = super::text::size(missed);
            output::note(&format!("{missed} of output were not shown; `foldspace show` has the recorded output"));
        }
        passed.map_err(|error| {
            Failure::new(Exit::Io, format!("failed to write the command's output: {error}"))
                .with_hint("the command has run and is recorded; `foldspace show` has the recorded output")
        })
    }
}

async fn last_moment(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(LAST).await;
}

/// Writes the pieces, and returns the first error. Continues to read after an error, so that no command blocks.
fn pass_on(mut pieces: mpsc::Receiver<(OutputStream, Bytes)>) -> io::Result<()> {
    let mut passed = Ok(());
    while let Some((stream, bytes)) = pieces.blocking_recv() {
        if passed.is_ok() {
            passed = write(stream, &bytes);
        }
    }
    match passed {
        // A closed output does not stop the command.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes output unescaped: the person asked for the command.
pub(super) fn write(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        OutputStream::Stderr => io::stderr().lock().write_all(bytes),
    }
}
