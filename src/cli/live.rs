//! Passes on the output of commands while they run.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldspace::session::{OutputOptions, OutputStream, OutputSubscription};
use foldspace::{Seq, Session};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Exit, Failure, output};

const PATIENCE: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(1);

/// Passes on all output of a call's command. A slow reader holds it up until the call is cancelled.
pub(super) struct LiveOutput {
    subscription: Arc<OutputSubscription>,
    done: Arc<AtomicBool>,
    passed: oneshot::Receiver<io::Result<()>>,
    cancel: CancellationToken,
    _watched: DropGuard,
}

impl LiveOutput {
    /// Watches a call that has just begun. Needs a runtime.
    pub(super) fn begin(session: &Session, call: Seq, cancel: &CancellationToken) -> Result<Self, Failure> {
        let (subscription, done) = (
            Arc::new(session.output(OutputOptions { call: Some(call), whole: true })),
            Arc::new(AtomicBool::new(false)),
        );
        let (tell, passed) = oneshot::channel();
        let (printed, ended) = (Arc::clone(&subscription), Arc::clone(&done));
        let thread = std::thread::Builder::new().name("foldspace-output".to_owned());
        let thread = thread.spawn(move || {
            // The receiver may be gone.
            drop(tell.send(pass_on(&printed, &ended)));
        });
        thread.map_err(|error| Failure::io("start", "the thread that shows output", &error))?;
        let (watched, waiting, taken_back) = (CancellationToken::new(), Arc::clone(&subscription), cancel.clone());
        let over = watched.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = taken_back.cancelled() => waiting.let_go(),
                () = over.cancelled() => {}
            }
        });
        Ok(Self { subscription, done, passed, cancel: cancel.clone(), _watched: watched.drop_guard() })
    }

    /// Waits until everything is passed on; for a moment only after the call was cancelled.
    pub(super) async fn end(mut self) -> Result<(), Failure> {
        self.done.store(true, Ordering::Release);
        let taken_back = async {
            self.cancel.cancelled().await;
            tokio::time::sleep(LAST).await;
        };
        let passed = tokio::select! {
            passed = &mut self.passed => passed.unwrap_or_else(|_| Err(io::Error::other("its thread ended"))),
            () = taken_back => Ok(()),
        };
        if self.subscription.missed_bytes() > 0 {
            let missed = super::text::size(self.subscription.missed_bytes());
            output::note(&format!("{missed} of what it printed were not shown; `foldspace show` has what was kept"));
        }
        passed.map_err(|error| {
            Failure::new(Exit::Io, format!("can't write what the command printed: {error}"))
                .with_hint("the command has run and is recorded; `foldspace show` has what was kept of its output")
        })
    }
}

impl Drop for LiveOutput {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        self.subscription.let_go();
    }
}

/// Returns the first write error, and reads on after it, so that no command waits.
fn pass_on(subscription: &OutputSubscription, done: &AtomicBool) -> io::Result<()> {
    let mut passed = Ok(());
    loop {
        // Looked at first: what was printed before the end is there by then.
        let last = done.load(Ordering::Acquire);
        match subscription.next_within(if last { Duration::ZERO } else { PATIENCE }) {
            Some(output) if passed.is_ok() => passed = write(output.stream, &output.bytes),
            Some(_) => {}
            None if last => break,
            None => {}
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
