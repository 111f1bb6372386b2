//! Passes on the output of commands while they run.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use bytes::Bytes;
use foldspace::session::OutputStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Exit, Failure, output};

const LAST: Duration = Duration::from_secs(1);
/// Pieces that wait to be written.
const WAITING: usize = 8;

/// Passes on all output of a call's command. A slow reader holds it up until the call is cancelled.
pub(super) struct LiveOutput {
    pieces: mpsc::Sender<(OutputStream, Bytes)>,
    passed: oneshot::Receiver<io::Result<()>>,
    cancel: CancellationToken,
    /// Bytes that the owner left out.
    pub(super) missed: u64,
}

impl LiveOutput {
    /// Passes on the output of a call that may be cancelled.
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

    /// Passes on a piece; for a moment only after the call was cancelled.
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

    /// Waits until everything is passed on; for a moment only after the call was cancelled.
    pub(super) async fn end(self) -> Result<(), Failure> {
        let Self { pieces, mut passed, cancel, missed } = self;
        drop(pieces);
        let passed = tokio::select! {
            passed = &mut passed => passed.unwrap_or_else(|_| Err(io::Error::other("its thread ended"))),
            () = last_moment(&cancel) => Ok(()),
        };
        if missed > 0 {
            let missed = super::text::size(missed);
            output::note(&format!("{missed} of what it printed were not shown; `foldspace show` has what was kept"));
        }
        passed.map_err(|error| {
            Failure::new(Exit::Io, format!("can't write what the command printed: {error}"))
                .with_hint("the command has run and is recorded; `foldspace show` has what was kept of its output")
        })
    }
}

async fn last_moment(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(LAST).await;
}

/// Returns the first write error, and reads on after it, so that no command waits.
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

/// Writes output as it is: the person asked for the command.
pub(super) fn write(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        OutputStream::Stderr => io::stderr().lock().write_all(bytes),
    }
}
