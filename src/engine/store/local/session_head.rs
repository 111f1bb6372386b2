//! The in-memory head of a session of a local store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use bytes::Bytes;

use super::named::NamedCommits;
use crate::engine::store::SessionEntry;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::journal::{FramePosition, LatestNotes};
use crate::engine::{CommitId, CommitView, ForkPoint, Recorded, Seq, SessionId, Timestamp};

/// Bytes of recent commits held in memory.
const TAIL_BYTES: usize = 64 << 10;
/// Events between two starting points for the scans of a process without the index.
const START_EVERY: u64 = 4096;

pub(super) struct SessionHead {
    pub(super) id: SessionId,
    visible: AtomicU64,
    written: AtomicU64,
    /// True while the session is in the list of changes for the index.
    pub(super) dirty: AtomicBool,
    /// The point where its history forks from its parent's. Set before any event is visible.
    base: OnceLock<ForkPoint>,
    inner: Mutex<SlotInner>,
}

#[derive(Default)]
pub(super) struct SlotInner {
    /// Position of the last staged event.
    pub(super) head: Seq,
    pub(super) time: Timestamp,
    pub(super) origin: Option<Recorded>,
    /// Place of its first own commit.
    pub(super) begun: FramePosition,
    /// Commits that the index lacks.
    pub(super) positions: VecDeque<(Seq, FramePosition)>,
    /// Its first own commit in each segment, and one every [`START_EVERY`] events. All but the first may be missing.
    pub(super) starts: Vec<(Seq, FramePosition)>,
    /// Last position, time and own calls of each commit in `positions`.
    times: VecDeque<(Seq, Timestamp, u64)>,
    /// Time of the last indexed event, and own calls up to it.
    indexed: (Timestamp, u64),
    /// Number of calls started in its own events.
    own_calls: u64,
    /// Number of inherited calls. `None` until they are counted.
    past_calls: Option<u64>,
    pub(super) noted: LatestNotes,
    tail: VecDeque<TailCommit>,
    tail_bytes: usize,
    /// Commits with ids. `None` until the first lookup.
    pub(super) named: Option<NamedCommits>,
    /// Place of its removal in the journal.
    pub(super) removed: Option<FramePosition>,
    /// Number of sessions that fork from this one. A removed session with children is retained for them: buried.
    pub(super) children: usize,
}

#[derive(Clone)]
pub(super) struct TailCommit {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) bytes: Bytes,
}

/// Returns the id that a copy uses for the past of a session that it started late.
pub(in crate::engine::store) fn past_of(session: SessionId) -> SessionId {
    SessionId::from_bytes(session.as_bytes().map(|byte| !byte))
}

impl SessionHead {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            visible: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            base: OnceLock::new(),
            // Until its first commit turns out to be a fork.
            inner: Mutex::new(SlotInner { past_calls: Some(0), ..SlotInner::default() }),
        }
    }

    pub(super) fn of_row(CatalogueRow { entry, own_calls, begun, base, buried }: &CatalogueRow) -> Self {
        let slot = Self::new(entry.id);
        base.iter().for_each(|base| slot.fork_at(*base));
        slot.show(entry.head);
        slot.wrote(entry.head);
        {
            let mut inner = slot.lock();
            inner.head = entry.head;
            inner.time = entry.updated;
            inner.indexed = (entry.updated, *own_calls);
            inner.own_calls = *own_calls;
            inner.past_calls = entry.calls.map(|calls| calls.saturating_sub(*own_calls));
            inner.origin = Some(entry.origin.clone());
            inner.begun = *begun;
            inner.starts.push((slot.own_from(), *begun));
            inner.removed = buried.then(FramePosition::default);
        }
        slot
    }

    pub(super) fn fork_at(&self, base: ForkPoint) {
        self.base.get_or_init(|| base);
    }

    pub(super) fn base(&self) -> Option<ForkPoint> {
        self.base.get().copied()
    }

    /// Returns true if the session started late, with its past elsewhere.
    pub(super) fn is_late(&self) -> bool {
        self.base.get().is_some_and(|base| base.session == past_of(self.id))
    }

    pub(super) fn own_from(&self) -> Seq {
        self.base.get().map_or(1, |base| base.seq + 1)
    }

    pub(super) fn is_buried(&self) -> bool {
        let inner = self.lock();
        inner.removed.is_some() && inner.children > 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotInner> {
        crate::engine::lock::lock(&self.inner)
    }

    pub(super) fn visible(&self) -> Seq {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes events up to `last` visible; returns the number of own events that were not.
    pub(super) fn show(&self, last: Seq) -> u64 {
        let before = self.visible.fetch_max(last, Ordering::AcqRel);
        last.saturating_sub(before.max(self.own_from() - 1))
    }

    /// Counts the visible events without a fork's past.
    pub(super) fn own_events(&self) -> u64 {
        self.visible().saturating_sub(self.own_from() - 1)
    }

    pub(super) fn written(&self) -> Seq {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn wrote(&self, last: Seq) {
        self.written.fetch_max(last, Ordering::AcqRel);
    }

    pub(super) fn entry(&self) -> Option<SessionEntry> {
        let visible = self.visible();
        let inner = self.lock();
        if inner.removed.is_some() || visible == 0 {
            return None;
        }
        let (origin, calls) = (inner.origin.clone()?, inner.calls(inner.own_calls));
        Some(SessionEntry { id: self.id, head: visible, updated: inner.time, origin, calls })
    }

    pub(super) fn starts_before(&self, end: FramePosition) -> Vec<(Seq, FramePosition)> {
        self.lock().starts.iter().copied().take_while(|(_, place)| *place < end).collect()
    }

    /// Adds a commit found in the journal. Returns false if it does not follow the head.
    pub(super) fn found(&self, commit: &CommitView<'_>, place: FramePosition) -> bool {
        let mut inner = self.lock();
        let head = if inner.head == 0 { self.own_from() - 1 } else { inner.head };
        if commit.first != head + 1 || inner.removed.is_some() {
            return false;
        }
        inner.take(commit.first, commit.last(), (commit.time, commit.begins_call()), place);
        if inner.origin.is_none() {
            inner.begin(commit, place);
        }
        self.wrote(commit.last());
        self.show(commit.last());
        true
    }

    /// Adds events that later events prove to have been in damaged bytes. Reading them fails.
    pub(super) fn lose(&self, last: Seq, hole: FramePosition) {
        let mut inner = self.lock();
        let head = if inner.head == 0 { self.own_from() - 1 } else { inner.head };
        if last > head && inner.removed.is_none() {
            inner.head = last;
            inner.positions.push_back((head + 1, hole));
            inner.starts.push((head + 1, hole));
            self.wrote(last);
            self.show(last);
        }
    }

    /// Returns positions before `end` that the index lacks, and the session's row at `end`. Both must agree, because
    /// the next opening reads the journal from `end` on. Empty for a removed session without children.
    pub(super) fn indexable(&self, end: FramePosition) -> (Vec<(Seq, FramePosition)>, Option<CatalogueRow>) {
        let mut inner = self.lock();
        let removed = inner.removed.is_some_and(|removed| removed < end);
        if removed && inner.children == 0 {
            return (Vec::new(), None);
        }
        let positions: Vec<_> = inner.positions.iter().copied().take_while(|(_, place)| *place < end).collect();
        let head = inner.positions.get(positions.len()).map_or(inner.head, |(first, _)| first - 1);
        // Only up to `end`: a commit that is not durable yet may be lost, with its time.
        while let Some((_, time, calls)) = inner.times.pop_front_if(|(last, ..)| *last <= head) {
            inner.indexed = (time, calls);
        }
        let (updated, own_calls) = inner.indexed;
        let origin = inner.origin.clone().filter(|_| inner.begun < end);
        let row = origin.map(|origin| CatalogueRow {
            entry: SessionEntry { id: self.id, head, updated, origin, calls: inner.calls(own_calls) },
            own_calls,
            begun: inner.begun,
            base: self.base(),
            buried: removed,
        });
        (positions, row)
    }
}

impl SlotInner {
    /// Adds a staged commit, and drops old `written` commits from memory.
    pub(super) fn add(
        &mut self,
        commit: TailCommit,
        (time, begins_call): (Timestamp, bool),
        place: FramePosition,
        written: Seq,
    ) {
        self.take(commit.first, commit.last, (time, begins_call), place);
        self.keep(commit, written);
    }

    fn take(&mut self, first: Seq, last: Seq, (time, begins_call): (Timestamp, bool), place: FramePosition) {
        self.own_calls += u64::from(begins_call);
        self.head = last;
        self.time = time;
        self.positions.push_back((first, place));
        let is_far = |(seq, last): &(Seq, FramePosition)| last.segment != place.segment || first - *seq >= START_EVERY;
        if self.starts.last().is_none_or(is_far) {
            self.starts.push((first, place));
        }
        self.times.push_back((last, time, self.own_calls));
    }

    /// Returns the number of calls in its history, given its own. `None` while the inherited calls are not counted.
    fn calls(&self, own: u64) -> Option<u64> {
        self.past_calls.map(|past| past + own)
    }

    pub(super) fn lacks_calls(&self) -> bool {
        self.past_calls.is_none()
    }

    /// Sets the number of inherited calls, if known.
    pub(super) fn inherit(&mut self, calls: Option<u64>) {
        self.past_calls = calls;
    }

    /// Returns the number of calls up to `seq`, if that is the head or the end of a commit that the index lacks.
    pub(super) fn calls_at(&self, seq: Seq) -> Option<u64> {
        if seq == self.head {
            return self.calls(self.own_calls);
        }
        let at = self.times.binary_search_by_key(&seq, |(last, ..)| *last).ok()?;
        self.calls(self.times.get(at)?.2)
    }

    pub(super) fn begin(&mut self, commit: &CommitView<'_>, place: FramePosition) {
        self.begun = place;
        self.origin = commit.events().next().and_then(Result::ok).map(|event| event.to_recorded());
    }

    fn keep(&mut self, commit: TailCommit, written: Seq) {
        self.tail_bytes += commit.bytes.len();
        self.tail.push_back(commit);
        while self.tail_bytes > TAIL_BYTES
            && let Some(oldest) = self.tail.pop_front_if(|oldest| oldest.last <= written)
        {
            self.tail_bytes -= oldest.bytes.len();
        }
    }

    /// Returns the commits in memory from the commit of `seq` on. `None` if that commit is not in memory.
    pub(super) fn tail_from(&self, seq: Seq) -> Option<Vec<TailCommit>> {
        let oldest = self.tail.front()?;
        (oldest.first <= seq).then(|| {
            let skip = self.tail.partition_point(|commit| commit.last < seq);
            self.tail.range(skip..).cloned().collect()
        })
    }

    pub(super) fn name(&mut self, id: CommitId, first: Seq, last: Seq) {
        if let Some(named) = &mut self.named {
            named.add(id, first, last);
        }
    }
}
