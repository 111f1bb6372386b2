//! The commits of one session on their way to the cluster, and those of it that the local copy lacks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::lock::lock;
use crate::engine::store::Result;
use crate::engine::store::local::session_head::past_of;
use crate::engine::store::pending::{ExpectedAnswers, Ticket};
use crate::engine::store::{Pending, StoreError};
use crate::engine::{Commit, Seq, SessionId};

/// Places in the stream that are remembered of a session: of many only every other one.
const PLACES: usize = 256;

/// A session's way to the cluster. One message is under way at a time, since the next expects its position.
pub(super) struct Lane {
    pub(super) session: SessionId,
    /// The session of the local copy that gets what is read: for the past of one that began late, another.
    pub(super) kept_as: SessionId,
    /// The position in the stream up to which the local copy has everything; none while that is not known.
    pub(super) cursor: tokio::sync::Mutex<Option<u64>>,
    /// Number of this host's ownership while it has the session; 0 while it does not.
    held: AtomicU64,
    /// The reason why this host may not extend the session, which it had.
    lost: Mutex<Option<StoreError>>,
    /// Set if the last message was this store's.
    is_ours: AtomicBool,
    /// The position from which on the cluster gets a snapshot again.
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

    /// Makes the lane by which the past of a session comes that the local copy began late.
    pub(super) fn of_past(session: SessionId) -> Self {
        Self { kept_as: past_of(session), ..Self::of(session, None) }
    }

    /// Adds a commit. Returns true if its caller has to begin the sending.
    pub(super) fn push(&self, commit: Commit) -> Result<(Pending, bool)> {
        let mut queue = lock(&self.queue);
        let answer = self.answers.expect().ok_or(StoreError::Unsettled)?;
        queue.commits.push_back(commit);
        let begins = !std::mem::replace(&mut queue.is_running, true);
        Ok((Pending { ticket: Ticket::Answered(answer) }, begins))
    }

    /// Takes the next commit to send; with none the sending ends.
    pub(super) fn next(&self) -> Option<Commit> {
        let mut queue = lock(&self.queue);
        let next = queue.commits.pop_front();
        queue.is_running = next.is_some();
        next
    }

    /// Notes a position in the stream up to which the session has no event behind `seq`.
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

    /// Returns the last noted position up to which the session has no event behind `seq`.
    pub(super) fn place_of(&self, seq: Seq) -> Option<u64> {
        lock(&self.places).iter().rev().find(|(known, _)| *known <= seq).map(|(_, at)| *at)
    }

    /// Notes whether the last message is this store's.
    pub(super) fn set_ours(&self, is_ours: bool) {
        self.is_ours.store(is_ours, Ordering::Release);
    }

    /// Tells whether the last message is this store's.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Acquire)
    }

    /// Notes that this host has the session.
    pub(super) fn hold(&self, epoch: u64) {
        *lock(&self.lost) = None;
        self.held.store(epoch, Ordering::Release);
    }

    /// Notes that this host has let go of the session. What it has lost stays lost: calls may still be ending.
    pub(super) fn let_go(&self) {
        self.held.store(0, Ordering::Release);
    }

    /// Notes that no host has the session, so that this one may extend it as any other.
    pub(super) fn free(&self) {
        if !self.is_held() {
            *lock(&self.lost) = None;
        }
    }

    /// Tells whether this host has the session.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) > 0
    }

    /// Ends an ownership before that number, for a reason. Returns true if this host had one.
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

    /// Checks that this host has not lost the session since it claimed it.
    pub(super) fn check_kept(&self) -> Result<()> {
        lock(&self.lost).clone().map_or(Ok(()), Err)
    }

    /// Tells whether the local copy has all there is: nobody else may extend the session, and nobody has.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_held() && self.is_ours()
    }
}
