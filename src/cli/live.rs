//! What commands print, passed on while they run.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foldspace::{CommandOutput, OutputStream, OutputSubscription, Session};

use super::output;

/// How often the thread looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Passes on what a session's commands print, until it is dropped.
pub(super) struct Live {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    pub(super) fn begin(session: &Session) -> Self {
        let (subscription, done) = (session.watch_output(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&done);
        let thread = std::thread::Builder::new().name("foldspace-output".to_owned());
        let thread = thread.spawn(move || pass_on(&subscription, &ended)).ok();
        Self { done, thread }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            drop(thread.join());
        }
    }
}

fn pass_on(subscription: &OutputSubscription, done: &AtomicBool) {
    loop {
        // Looked at first: what was printed before the end is there by then.
        let last = done.load(Ordering::Acquire);
        match subscription.next_within(if last { Duration::ZERO } else { PATIENCE }) {
            Some(output) => show(&output),
            None if last => break,
            None => {}
        }
    }
    if subscription.missed_bytes() > 0 {
        let missed = super::text::size(subscription.missed_bytes());
        output::note(&format!("{missed} came faster than they could be shown; `foldspace show` has what was kept"));
    }
}

/// As it is: the command was asked for by the person who looks.
fn show(output: &CommandOutput) {
    let written = match output.stream {
        OutputStream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&output.bytes).and_then(|()| stdout.flush())
        }
        OutputStream::Stderr => std::io::stderr().lock().write_all(&output.bytes),
    };
    // Nobody may read any more; the command goes on all the same.
    drop(written);
}
