//! The connection of one session to the cluster: its queue of commits, and the cursor of its local copy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::lock::lock;
use crate::engine::store::Result;
use crate::engine::store::local::session_head::past_of;
use crate::engine::store::pending::{ExpectedAnswers, Ticket};
use crate::engine::store::{Pending, StoreError};
use crate::engine::{Commit, Seq, SessionId};

/// Maximum remembered stream positions of a session; then every other one is dropped.
const PLACES: usize = 256;

/// A session's lane to the cluster. One message is in flight at a time, because the next expects its position.
pub(super) struct Lane {
    pub(super) session: SessionId,
    /// The session of the local copy that commits are added to: a separate one for the past of a late start.
    pub(super) kept_as: SessionId,
    /// The stream position that the local copy has reached without a gap. `None` while unknown.
    pub(super) cursor: tokio::sync::Mutex<Option<u64>>,
    /// Epoch of this host's ownership of the session; 0 without ownership.
    held: AtomicU64,
    /// The reason why this host lost the session and must not extend it.
    lost: Mutex<Option<StoreError>>,
    /// True if this store sent the last message.
    is_ours: AtomicBool,
    /// The session position of the next snapshot upload.
    pub(super) snapshot_due: tokio::sync::Mutex<Seq>,
    places: Mutex<Vec<(Seq, u64)>>,
    queue: Mutex<LaneQueue>,
    pub(super) answers: Arc<ExpectedAnswers>,
}

#[derive(Default)]
struct LaneQueue {
    commits: VecDeque<Commit>,
    is_running: bool,
}

impl Lane {
    pub(super) fn of(session: SessionId, cursor: Option<u64>) -> Self {
        Self {
            session,
            kept_as: session,
            cursor: tokio::sync::Mutex::new(cursor),
            held: AtomicU64::new(0),
            lost: Mutex::default(),
            is_ours: AtomicBool::new(false),
            snapshot_due: tokio::sync::Mutex::default(),
            places: Mutex::default(),
            queue: Mutex::default(),
            answers: Arc::default(),
        }
    }

    /// Creates the lane for the past of a session that the local copy started late.
    pub(super) fn of_past(session: SessionId) -> Self {
        Self { kept_as: past_of(session), ..Self::of(session, None) }
    }

    /// Queues a commit. Returns true if the caller must start sending.
    pub(super) fn push(&self, commit: Commit) -> Result<(Pending, bool)> {
        let mut queue = lock(&self.queue);
        let answer = self.answers.expect().ok_or(StoreError::Unsettled)?;
        queue.commits.push_back(commit);
        let begins = !std::mem::replace(&mut queue.is_running, true);
        Ok((Pending::of(Ticket::Answered(answer)), begins))
    }

    /// Takes the next commit to send. `None` ends the sending.
    pub(super) fn next(&self) -> Option<Commit> {
        let mut queue = lock(&self.queue);
        let next = queue.commits.pop_front();
        queue.is_running = next.is_some();
        next
    }

    /// Remembers a stream position: up to it, the session ends at `seq` or earlier.
    pub(super) fn note_place(&self, seq: Seq, at: u64) {
        let mut places = lock(&self.places);
        if places.len() == PLACES {
            let mut is_kept = false;
            places.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        places.push((seq, at));
    }

    /// Returns the last remembered stream position before any event after `seq`.
    pub(super) fn place_of(&self, seq: Seq) -> Option<u64> {
        lock(&self.places).iter().rev().find(|(known, _)| *known <= seq).map(|(_, at)| *at)
    }

    /// Records if this store sent the last message.
    pub(super) fn set_ours(&self, is_ours: bool) {
        self.is_ours.store(is_ours, Ordering::Release);
    }

    /// Returns true if this store sent the last message.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Acquire)
    }

    /// Records that this host owns the session.
    pub(super) fn hold(&self, epoch: u64) {
        *lock(&self.lost) = None;
        self.held.store(epoch, Ordering::Release);
    }

    /// Records that this host released the session. A recorded loss stays, because calls may still be ending.
    pub(super) fn let_go(&self) {
        self.held.store(0, Ordering::Release);
    }

    /// Records that no host owns the session, so that any host may extend it.
    pub(super) fn free(&self) {
        if !self.is_held() {
            *lock(&self.lost) = None;
        }
    }

    /// Returns true if this host owns the session.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }

    /// Ends an ownership with an epoch below `before`, for a reason. Returns true if this host had one.
    pub(super) fn lose(&self, before: u64, why: impl FnOnce() -> StoreError) -> bool {
        let mut lost = lock(&self.lost);
        let held = self.held.load(Ordering::Acquire);
        let is_lost = held > 0 && held < before;
        if is_lost {
            *lost = Some(why());
            self.held.store(0, Ordering::Release);
        }
        is_lost
    }

    /// Checks that this host has not lost the session since claiming it.
    pub(super) fn check_kept(&self) -> Result<()> {
        lock(&self.lost).clone().map_or(Ok(()), Err)
    }

    /// Returns true if the local copy is complete: no other host may extend the session, and none has.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_held() && self.is_ours()
    }
}
