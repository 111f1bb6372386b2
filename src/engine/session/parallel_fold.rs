use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::error::{SessionError, SessionResult};
use super::inner::Core;
use crate::engine::fold::Fold;
use crate::engine::store::{EventBatch, StoreError};
use crate::engine::{Seq, State, lock};

/// Events of a piece: small enough to stay in a processor's cache until both threads have seen them.
const PIECE: u64 = 1024;
const AHEAD: usize = 8;
/// Maximum wait for a piece of the other thread, which may have panicked.
const PAUSE: Duration = Duration::from_millis(10);

/// History that two threads fold. The thread for which no piece waits reads the next one for both.
struct Feed<'a> {
    core: &'a Core,
    until: Seq,
    source: Mutex<FeedSource>,
}

struct FeedSource {
    after: Seq,
    /// Empty once all is read, reading has failed, or a thread has ended early.
    threads: Vec<Sender<Arc<EventBatch>>>,
    outcome: SessionResult<()>,
}

impl Feed<'_> {
    fn fold(&self, mut fold: Fold, pieces: Receiver<Arc<EventBatch>>) -> Fold {
        loop {
            match pieces.try_recv() {
                Ok(piece) => fold.apply_batch(&piece, self.until),
                Err(TryRecvError::Disconnected) => return fold,
                Err(TryRecvError::Empty) => match self.source.try_lock() {
                    Ok(source) => self.read(source, &pieces),
                    Err(TryLockError::Poisoned(source)) => self.read(source.into_inner(), &pieces),
                    // The other thread reads the next piece, or panics. To wait for the lock instead would be a
                    // deadlock: the other one may wait, with the lock, until this one takes a piece.
                    Err(TryLockError::WouldBlock) => {
                        if let Ok(piece) = pieces.recv_timeout(PAUSE) {
                            fold.apply_batch(&piece, self.until);
                        }
                    }
                },
            }
        }
    }

    /// Reads the next piece for both threads, unless a piece waits for this one.
    fn read(&self, mut source: MutexGuard<'_, FeedSource>, own: &Receiver<Arc<EventBatch>>) {
        if !own.is_empty() {
            return;
        }
        let piece = self.core.next_batch(source.after, self.until.min(source.after + PIECE));
        let is_sent = match piece.map(|piece| piece.map(Arc::new)) {
            Ok(Some(piece)) if piece.last() > source.after => {
                source.after = piece.last();
                source.threads.iter().all(|thread| thread.send(Arc::clone(&piece)).is_ok())
            }
            Ok(_) => false,
            Err(error) => {
                source.outcome = Err(error);
                false
            }
        };
        if !is_sent {
            source.threads.clear();
        }
    }
}

impl Core {
    pub(super) fn fold_on_two_threads(&self, first: Fold, others: Fold, until: Seq) -> SessionResult<State> {
        let ((to_first, of_first), (to_others, of_others)) = (bounded(AHEAD), bounded(AHEAD));
        let source = FeedSource { after: first.seq(), threads: vec![to_first, to_others], outcome: Ok(()) };
        let feed = &Feed { core: self, until, source: Mutex::new(source) };
        let (first, others) = std::thread::scope(|scope| {
            let first = scope.spawn(move || feed.fold(first, of_first));
            let others = feed.fold(others, of_others);
            (first.join(), others)
        });
        let first = first.map_err(|_| StoreError::Index("a reducer panicked".to_owned()))?;
        std::mem::replace(&mut lock(&feed.source).outcome, Ok(()))?;
        match first.seq().min(others.seq()) {
            seq if seq < until => Err(SessionError::NoPosition { seq: until, head: seq }),
            _ => Ok(first.join(others)),
        }
    }
}
