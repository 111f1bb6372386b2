//! What commands print while they run: shown to whoever watches, and forgotten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use serde::{Deserialize, Serialize};

use super::recorded::Seq;

/// Pieces that wait for one subscriber.
const WAITING_MAX: usize = 1024;

/// A piece of what a command prints, while it runs. The command's result has the digest of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The tool call that runs the command.
    pub call: Seq,
    /// Which stream.
    pub stream: OutputStream,
    /// The bytes, as they came.
    pub bytes: Bytes,
}

/// The streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Its output.
    Stdout,
    /// Its complaints.
    Stderr,
}

/// The subscribers of one session.
#[derive(Default)]
pub(super) struct Outputs {
    subscribers: Mutex<Vec<Subscriber>>,
}

struct Subscriber {
    sender: Sender<CommandOutput>,
    missed: Arc<AtomicU64>,
}

/// Shows what a session's commands print, as it comes.
///
/// ```
/// use foldspace::{NewSession, Registry, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let output = session.watch_output();
/// assert!(output.try_next().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OutputSubscription {
    receiver: Receiver<CommandOutput>,
    missed: Arc<AtomicU64>,
}

impl Outputs {
    pub(super) fn subscribe(&self) -> OutputSubscription {
        let (sender, receiver) = bounded(WAITING_MAX);
        let missed = Arc::new(AtomicU64::new(0));
        let subscriber = Subscriber { sender, missed: Arc::clone(&missed) };
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
        OutputSubscription { receiver, missed }
    }

    /// A command never waits for a subscriber.
    pub(super) fn show(&self, output: impl FnOnce() -> CommandOutput) {
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        if subscribers.is_empty() {
            return;
        }
        let output = output();
        subscribers.retain(|subscriber| match subscriber.sender.try_send(output.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(output)) => {
                subscriber.missed.fetch_add(output.bytes.len() as u64, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}

impl OutputSubscription {
    /// The next piece; none when there is none now.
    pub fn try_next(&self) -> Option<CommandOutput> {
        self.receiver.try_recv().ok()
    }

    /// The next piece; none when none comes in that time, or the session is closed.
    pub fn next_within(&self, patience: Duration) -> Option<CommandOutput> {
        self.receiver.recv_timeout(patience).ok()
    }

    /// Bytes that came faster than they were taken, and were not shown.
    pub fn missed_bytes(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for OutputSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSubscription").field("missed_bytes", &self.missed_bytes()).finish_non_exhaustive()
    }
}
