use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{SessionError, SessionResult};
use crate::engine::id::Seq;
use crate::engine::store::{EventBatch, StoreError};

/// Events of a piece: small enough to stay in a processor's cache until both have seen them.
const PIECE: u64 = 1024;
const AHEAD: usize = 8;

/// Gives two readers, each on its own thread, the same history in pieces. The store reads each piece once, on the
/// thread of the reader that is free.
pub(crate) struct Feed<R> {
    read: R,
    after: Seq,
    until: Seq,
    state: Mutex<FeedState>,
    moved: Condvar,
}

type FeedPiece = Arc<Vec<EventBatch>>;

struct FeedState {
    /// Pieces that one reader or both have yet to take; none while it is being read.
    pieces: VecDeque<Option<FeedPiece>>,
    before: usize,
    /// Number of pieces that each reader has taken; `usize::MAX` once it has left.
    taken: [usize; 2],
    failed: Option<SessionError>,
}

pub(crate) struct FeedReader<'a, R> {
    feed: &'a Feed<R>,
    number: usize,
}

impl<R: Fn(Seq, Seq) -> SessionResult<Option<EventBatch>> + Sync> Feed<R> {
    pub(crate) fn new(after: Seq, until: Seq, read: R) -> Self {
        let state = FeedState { pieces: VecDeque::new(), before: 0, taken: [0; 2], failed: None };
        Self { read, after, until, state: Mutex::new(state), moved: Condvar::new() }
    }

    pub(crate) fn readers(&self) -> [FeedReader<'_, R>; 2] {
        [0, 1].map(|number| FeedReader { feed: self, number })
    }

    pub(crate) fn outcome(&self) -> SessionResult<()> {
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    fn read_piece(&self, number: usize) -> SessionResult<FeedPiece> {
        let mut seq = self.after + number as u64 * PIECE;
        let until = self.until.min(seq + PIECE);
        let mut batches = Vec::new();
        while let Some(batch) = (self.read)(seq, until)? {
            let read = batch.last() > seq;
            seq = batch.last();
            batches.push(batch);
            if !read {
                break;
            }
        }
        Ok(Arc::new(batches))
    }
}

impl<R> Feed<R> {
    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends_before(&self, number: usize) -> bool {
        self.after + number as u64 * PIECE >= self.until
    }
}

impl<R: Fn(Seq, Seq) -> SessionResult<Option<EventBatch>> + Sync> FeedReader<'_, R> {
    pub(crate) fn next(&mut self) -> Option<FeedPiece> {
        let mut state = self.feed.lock();
        loop {
            let number = state.taken[self.number];
            if state.failed.is_some() || self.feed.ends_before(number) {
                return None;
            }
            if let Some(piece) = state.take(self.number) {
                self.feed.moved.notify_one();
                return Some(piece);
            }
            let unread = state.before + state.pieces.len();
            if state.pieces.len() >= AHEAD || self.feed.ends_before(unread) {
                state = self.feed.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.pieces.push_back(None);
            drop(state);
            let piece = self.feed.read_piece(unread);
            state = self.feed.lock();
            state.put(unread, piece);
            self.feed.moved.notify_one();
        }
    }
}

impl FeedState {
    fn take(&mut self, reader: usize) -> Option<FeedPiece> {
        let number = self.taken[reader];
        let piece = self.pieces.get(number - self.before)?.clone()?;
        self.taken[reader] = number + 1;
        self.let_go();
        Some(piece)
    }

    fn put(&mut self, number: usize, piece: SessionResult<FeedPiece>) {
        match piece {
            // What both have left behind meanwhile is wanted by nobody.
            Ok(piece) => {
                if let Some(place) = number.checked_sub(self.before).and_then(|at| self.pieces.get_mut(at)) {
                    *place = Some(piece);
                }
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn let_go(&mut self) {
        let both = self.taken[0].min(self.taken[1]);
        while self.before < both && self.pieces.pop_front().is_some() {
            self.before += 1;
        }
    }
}

impl<R> Drop for FeedReader<'_, R> {
    /// Stops the other reader from waiting for this one, also after a panic.
    fn drop(&mut self) {
        let mut state = self.feed.lock();
        state.taken[self.number] = usize::MAX;
        if std::thread::panicking() {
            state.failed.get_or_insert_with(|| StoreError::Index("a reducer panicked".to_owned()).into());
        }
        state.let_go();
        self.feed.moved.notify_one();
    }
}
