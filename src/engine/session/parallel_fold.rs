use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::SessionError;
use crate::engine::id::Seq;
use crate::engine::store::{EventBatch, StoreError};

/// Events of a piece: small enough to stay in a processor's cache until both have seen them.
const PIECE: u64 = 1024;
/// Pieces that may be in memory at once.
const AHEAD: usize = 8;

/// Gives two readers, each on its own thread, the same history in pieces. Each piece is read from the
/// store once, by whoever has nothing else to do: so the work is shared, whatever the two do with it.
pub(crate) struct Feed<R> {
    /// Reads a batch of what lies after one position, up to another.
    read: R,
    after: Seq,
    until: Seq,
    state: Mutex<FeedState>,
    moved: Condvar,
}

type Piece = Arc<Vec<EventBatch>>;

struct FeedState {
    /// Pieces that not both have taken; none while one is being read.
    pieces: VecDeque<Option<Piece>>,
    /// How many pieces came before those.
    before: usize,
    /// How many pieces each has taken; all of them once it has left.
    taken: [usize; 2],
    failed: Option<SessionError>,
}

/// One of the two.
pub(crate) struct FeedReader<'a, R> {
    feed: &'a Feed<R>,
    number: usize,
}

impl<R: Fn(Seq, Seq) -> Result<Option<EventBatch>, SessionError> + Sync> Feed<R> {
    /// The history after one position, up to another.
    pub(crate) fn new(after: Seq, until: Seq, read: R) -> Self {
        let state = FeedState { pieces: VecDeque::new(), before: 0, taken: [0; 2], failed: None };
        Self { read, after, until, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// The two readers.
    pub(crate) fn readers(&self) -> [FeedReader<'_, R>; 2] {
        [0, 1].map(|number| FeedReader { feed: self, number })
    }

    /// What went wrong while reading.
    pub(crate) fn outcome(&self) -> Result<(), SessionError> {
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    fn read_piece(&self, number: usize) -> Result<Piece, SessionError> {
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

    /// Whether the pieces end before that one.
    fn ends_before(&self, number: usize) -> bool {
        self.after + number as u64 * PIECE >= self.until
    }
}

impl<R: Fn(Seq, Seq) -> Result<Option<EventBatch>, SessionError> + Sync> FeedReader<'_, R> {
    /// The next batches; none at the end, and when reading failed.
    pub(crate) fn next(&mut self) -> Option<Piece> {
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
    fn take(&mut self, reader: usize) -> Option<Piece> {
        let number = self.taken[reader];
        let piece = self.pieces.get(number - self.before)?.clone()?;
        self.taken[reader] = number + 1;
        self.let_go();
        Some(piece)
    }

    fn put(&mut self, number: usize, piece: Result<Piece, SessionError>) {
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
    /// Whoever leaves, by a panic even, is no longer waited for.
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
