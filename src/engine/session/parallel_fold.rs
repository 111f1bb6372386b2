use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::error::{SessionError, SessionResult};
use super::inner::Core;
use crate::engine::fold::Fold;
use crate::engine::store::{EventBatch, StoreError};
use crate::engine::{Seq, State};

/// Events of a piece: few enough to stay in a processor's cache until both threads have seen them, and to leave both
/// threads pieces to read.
const PIECE: RangeInclusive<u64> = 256..=1024;
const PIECES: u64 = 8;
/// Pieces that may wait for the other thread.
const AHEAD: usize = 8;

type Piece = Arc<Vec<EventBatch>>;

/// One of two threads that fold the same history. A thread that lacks its next piece does not sleep: it reads the first
/// unclaimed piece for both.
struct HalfFold<'a> {
    core: &'a Core,
    fold: Fold,
    /// Pieces that were read, by number. Both threads start with the first: a long commit may make it the only one.
    there: BTreeMap<u64, Piece>,
    until: Seq,
    /// Events of a piece.
    piece: u64,
    /// Number of the first piece that neither thread has claimed, and that earlier pieces do not cover.
    unread: &'a AtomicU64,
    to_other: Sender<(u64, Piece)>,
    from_other: Receiver<(u64, Piece)>,
}

impl HalfFold<'_> {
    fn run(mut self) -> SessionResult<Fold> {
        let start = self.fold.seq();
        let count = (self.until - start).div_ceil(self.piece);
        let mut next = 0;
        while next < count {
            if self.fold.seq() >= self.until.min(start + (next + 1) * self.piece) {
                self.there.remove(&next);
                next += 1;
            } else if let Some(piece) = self.there.remove(&next) {
                piece.iter().for_each(|batch| self.fold.apply_batch(batch, self.until));
                next += 1;
            } else if let Ok((number, piece)) = self.from_other.try_recv() {
                self.there.insert(number, piece);
            } else if self.to_other.len() < AHEAD && self.unread.load(Ordering::Relaxed) < count {
                let number = self.unread.fetch_add(1, Ordering::Relaxed);
                let after = start + number * self.piece;
                let piece = self.core.read_piece(after, self.until.min(after + self.piece))?;
                self.unread.fetch_max(whole_pieces(&piece, start, self.piece), Ordering::Relaxed);
                // The receiver is gone if the other thread ended early.
                let _ = self.to_other.send((number, Arc::clone(&piece)));
                self.there.insert(number, piece);
            } else {
                // The other thread ended early, and returns the reason.
                let Ok((number, piece)) = self.from_other.recv() else { break };
                self.there.insert(number, piece);
            }
        }
        Ok(self.fold)
    }
}

/// Counts the pieces that are complete after a read: a long commit includes events of later pieces.
fn whole_pieces(read: &Piece, start: Seq, piece: u64) -> u64 {
    read.last().map_or(0, |batch| (batch.last() - start) / piece)
}

impl Core {
    fn read_piece(&self, mut after: Seq, end: Seq) -> SessionResult<Piece> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch(after, end)? {
            if batch.last() <= after {
                break;
            }
            after = batch.last();
            batches.push(batch);
        }
        Ok(Arc::new(batches))
    }

    pub(super) fn fold_on_two_threads(&self, first: Fold, others: Fold, until: Seq) -> SessionResult<State> {
        let ((to_first, of_first), (to_others, of_others)) = (unbounded(), unbounded());
        let start = first.seq();
        let piece = ((until - start) / PIECES).clamp(*PIECE.start(), *PIECE.end());
        let read = self.read_piece(start, until.min(start + piece))?;
        let unread = &AtomicU64::new(whole_pieces(&read, start, piece).max(1));
        let there = BTreeMap::from([(0, read)]);
        let half = |fold, there, to_other, from_other| HalfFold {
            core: self,
            fold,
            there,
            until,
            piece,
            unread,
            to_other,
            from_other,
        };
        let (first, others) =
            (half(first, there.clone(), to_others, of_first), half(others, there, to_first, of_others));
        let (first, others) = std::thread::scope(|scope| {
            let first = scope.spawn(move || first.run());
            let others = others.run();
            (first.join(), others)
        });
        let first = first.map_err(|_| StoreError::Index("a reducer panicked".to_owned()))?;
        let (first, others) = (first?, others?);
        match first.seq().min(others.seq()) {
            seq if seq < until => Err(SessionError::NoPosition { seq: until, head: seq }),
            _ => Ok(first.join(others)),
        }
    }
}
