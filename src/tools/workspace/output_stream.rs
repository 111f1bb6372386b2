//! Output of running commands: sent to subscribers, not recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use tokio::sync::Notify;

use crate::backends::OutputStream;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::aside::aside;

const WAITING_MAX: usize = 1024;
/// Maximum pieces that wait for a lossless subscriber: the rest waits in the command's pipes.
const HELD_MAX: usize = 64;
const LOOK: Duration = Duration::from_millis(20);

/// Piece of a running command's output. The command's result has the digest of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// Tool call that runs the command.
    pub call: Seq,
    /// Stream of the output.
    pub stream: OutputStream,
    /// Bytes of the piece.
    pub bytes: Bytes,
}

/// Choice of the output that a subscriber receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Only this call's output; the output of other calls then takes none of its room.
    pub call: Option<Seq>,
    /// True to miss nothing: commands wait while the subscriber is behind, until it is dropped or
    /// [stops that](OutputSubscription::let_go). If false, a slow subscriber misses output, and learns how much.
    pub whole: bool,
}

#[derive(Default)]
#[doc(hidden)]
pub struct Outputs {
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Clone)]
struct Subscriber {
    call: Option<Seq>,
    sender: Sender<CommandOutput>,
    reader: Arc<OutputReader>,
}

struct OutputReader {
    missed: AtomicU64,
    /// True while commands wait for it.
    waited_for: AtomicBool,
    woken: Notify,
}

/// Subscription to the output of a session's commands.
pub struct OutputSubscription {
    receiver: Receiver<CommandOutput>,
    reader: Arc<OutputReader>,
}

impl Outputs {
    #[doc(hidden)]
    pub fn subscribe(&self, options: OutputOptions) -> OutputSubscription {
        let OutputOptions { call, whole } = options;
        let (sender, receiver) = bounded(if whole { HELD_MAX } else { WAITING_MAX });
        let waited_for = AtomicBool::new(whole);
        let reader = Arc::new(OutputReader { missed: AtomicU64::new(0), waited_for, woken: Notify::new() });
        lock(&self.subscribers).push(Subscriber { call, sender, reader: Arc::clone(&reader) });
        OutputSubscription { receiver, reader }
    }

    /// Blocks while a lossless subscriber is behind.
    pub fn show(&self, output: impl FnOnce() -> CommandOutput) {
        let mut behind = Vec::new();
        let output = {
            let mut subscribers = lock(&self.subscribers);
            if subscribers.is_empty() {
                return;
            }
            let output = output();
            subscribers.retain(|subscriber| {
                if subscriber.call.is_some_and(|call| call != output.call) {
                    // A dropped subscriber is removed, though no send can reveal it.
                    return Arc::strong_count(&subscriber.reader) > 1;
                }
                match subscriber.sender.try_send(output.clone()) {
                    Ok(()) => {
                        subscriber.reader.woken.notify_one();
                        true
                    }
                    Err(TrySendError::Full(_)) => {
                        behind.push(subscriber.clone());
                        true
                    }
                    Err(TrySendError::Disconnected(_)) => false,
                }
            });
            output
        };
        if !behind.is_empty() {
            // After the list's lock is released.
            aside(|| behind.iter().for_each(|subscriber| subscriber.wait(output.clone())));
        }
    }
}

impl Subscriber {
    fn wait(&self, mut output: CommandOutput) {
        while self.reader.waited_for.load(Ordering::Acquire) {
            match self.sender.send_timeout(output, LOOK) {
                Ok(()) | Err(SendTimeoutError::Disconnected(_)) => return self.reader.woken.notify_one(),
                Err(SendTimeoutError::Timeout(still)) => output = still,
            }
        }
        self.reader.missed.fetch_add(output.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl OutputSubscription {
    /// Returns the next piece, if there is one now.
    pub fn try_next(&self) -> Option<CommandOutput> {
        self.receiver.try_recv().ok()
    }

    /// Returns the next piece; `None` if `patience` passes or the session is closed.
    pub fn next_within(&self, patience: Duration) -> Option<CommandOutput> {
        self.receiver.recv_timeout(patience).ok()
    }

    /// Waits asynchronously for the next piece.
    pub async fn next(&self) -> CommandOutput {
        loop {
            if let Ok(output) = self.receiver.try_recv() {
                return output;
            }
            self.reader.woken.notified().await;
        }
    }

    /// Stops commands from waiting for this subscriber; from now on it misses output that it does not read in time.
    pub fn let_go(&self) {
        self.reader.waited_for.store(false, Ordering::Release);
    }

    /// Returns the number of bytes missed because they were not read in time.
    pub fn missed_bytes(&self) -> u64 {
        self.reader.missed.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for OutputSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSubscription").field("missed_bytes", &self.missed_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(text: &str) -> CommandOutput {
        CommandOutput { call: 1, stream: OutputStream::Stdout, bytes: Bytes::copy_from_slice(text.as_bytes()) }
    }

    #[test]
    fn output_blocks_only_for_lossless_subscriber() {
        let outputs = Outputs::default();
        let (some, all) =
            (outputs.subscribe(OutputOptions::default()), outputs.subscribe(OutputOptions { call: None, whole: true }));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..WAITING_MAX + 10).for_each(|n| outputs.show(|| piece(&n.to_string()))));
            for n in 0..WAITING_MAX + 10 {
                let found = all.next_within(Duration::from_secs(60)).unwrap();
                assert_eq!(found, piece(&n.to_string()));
            }
        });
        assert_eq!(all.missed_bytes(), 0);
        assert_eq!((some.receiver.len(), some.missed_bytes()), (WAITING_MAX, 10 * 4));
    }

    #[test]
    fn output_of_one_call_displaces_no_other() {
        let outputs = Outputs::default();
        let (of_one, of_other) = (
            outputs.subscribe(OutputOptions { call: Some(1), whole: false }),
            outputs.subscribe(OutputOptions { call: Some(2), whole: true }),
        );
        (0..WAITING_MAX * 2).for_each(|_| outputs.show(|| CommandOutput { call: 7, ..piece("noise") }));
        outputs.show(|| piece("mine"));
        assert_eq!((of_one.try_next(), of_one.try_next()), (Some(piece("mine")), None));
        assert_eq!((of_other.try_next(), of_one.missed_bytes(), of_other.missed_bytes()), (None, 0, 0));
        drop((of_one, of_other));
        outputs.show(|| piece("x"));
        assert!(outputs.subscribers.lock().unwrap().is_empty());
    }

    #[test]
    fn output_dropped_subscriber_is_not_awaited() {
        let outputs = Outputs::default();
        let all = outputs.subscribe(OutputOptions { call: None, whole: true });
        std::thread::scope(|scope| {
            let shown = scope.spawn(|| (0..=HELD_MAX).for_each(|_| outputs.show(|| piece("x"))));
            while all.receiver.len() < HELD_MAX {
                std::thread::yield_now();
            }
            all.let_go();
            shown.join().unwrap();
        });
        assert_eq!(all.missed_bytes(), 1);
        drop(all);
        let gone = outputs.subscribe(OutputOptions { call: None, whole: true });
        std::thread::scope(|scope| {
            let shown = scope.spawn(|| (0..=HELD_MAX).for_each(|_| outputs.show(|| piece("x"))));
            while gone.receiver.len() < HELD_MAX {
                std::thread::yield_now();
            }
            drop(gone);
            shown.join().unwrap();
        });
    }
}
