//! What a local store knows of one session.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;

use crate::engine::clock::Timestamp;
use crate::engine::commit::{CommitView, ForkPoint};
use crate::engine::id::{CommitId, Seq, SessionId};
use crate::engine::recorded::Recorded;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::journal::{FramePosition, LatestNotes, Writer};
use crate::engine::store::pending::{GroupWait, WriteProgress};
use crate::engine::store::{SessionEntry, StoreError};

/// Bytes of recent commits kept in memory, so that what was just written is not read from the disk.
const TAIL_BYTES: usize = 64 << 10;
/// Named commits that are remembered to recognise a retry.
pub(super) const REMEMBERED: usize = 1024;

/// One session of a local store.
pub(super) struct SessionHead {
    pub(super) id: SessionId,
    /// The position of the last event that may be seen.
    visible: AtomicU64,
    /// The position of the last event that is on the disk.
    written: AtomicU64,
    /// Whether the indexer has been told of it.
    pub(super) dirty: AtomicBool,
    writes: OnceLock<Writes>,
    /// Where its own history begins to differ from another's; empty for one that began by itself. Set before
    /// anything of it is visible.
    base: OnceLock<ForkPoint>,
    inner: Mutex<SlotInner>,
}

/// What a session knows of the store's writer. The writer knows the sessions: they don't keep it.
struct Writes {
    progress: Arc<WriteProgress>,
    writer: Weak<Writer<SessionHead>>,
}

impl GroupWait for SessionHead {
    fn wait(&self, number: u64) -> Result<(), StoreError> {
        let Some(writes) = self.writes.get() else { return Ok(()) };
        if writes.progress.is_durable(number)? {
            return Ok(());
        }
        match writes.writer.upgrade() {
            Some(writer) => writer.wait(number),
            // A writer that is gone wrote everything before, or failed.
            None if writes.progress.is_durable(number)? => Ok(()),
            None => Err(StoreError::Poisoned("the store was closed".to_owned())),
        }
    }

    fn write_in_place(&self, number: u64) -> Result<bool, StoreError> {
        let writer = self.writes.get().and_then(|writes| writes.writer.upgrade());
        writer.map_or(Ok(false), |writer| writer.write_in_place(number))
    }

    fn progress(&self) -> Option<&WriteProgress> {
        self.writes.get().map(|writes| &*writes.progress)
    }

    fn nudge(&self) {
        if let Some(writer) = self.writes.get().and_then(|writes| writes.writer.upgrade()) {
            writer.nudge();
        }
    }
}

/// The part of a [`SessionHead`] that changes under its lock.
#[derive(Default)]
pub(super) struct SlotInner {
    /// The position of the last event that was staged.
    pub(super) head: Seq,
    pub(super) time: Timestamp,
    pub(super) origin: Option<Recorded>,
    /// Where its first own commit is.
    begun: FramePosition,
    /// Commits that the index does not have yet.
    pub(super) positions: VecDeque<(Seq, FramePosition)>,
    /// The last events of those commits, with their times.
    times: VecDeque<(Seq, Timestamp)>,
    /// The time of the last event that the index has.
    indexed: Timestamp,
    pub(super) noted: LatestNotes,
    tail: VecDeque<TailCommit>,
    tail_bytes: usize,
    /// Named commits with their positions; none until the first is asked for.
    pub(super) named: Option<VecDeque<(CommitId, Seq, Seq)>>,
    /// Where its removal stands in the journal.
    pub(super) removed: Option<FramePosition>,
    /// Sessions whose past ends in this one's. While there are some, a removed session stays for them: buried.
    pub(super) children: usize,
}

/// A recent commit in memory.
#[derive(Clone)]
pub(super) struct TailCommit {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) bytes: Bytes,
}

impl SessionHead {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            visible: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            writes: OnceLock::new(),
            base: OnceLock::new(),
            inner: Mutex::default(),
        }
    }

    /// Tells by whom the session's commits are written.
    pub(super) fn written_by(&self, writer: &Arc<Writer<Self>>) {
        self.writes.get_or_init(|| Writes { progress: writer.progress(), writer: Arc::downgrade(writer) });
    }

    pub(super) fn of_row(CatalogueRow { entry, begun, base, buried }: &CatalogueRow) -> Self {
        let slot = Self::new(entry.id);
        base.iter().for_each(|base| slot.fork_at(*base));
        slot.show(entry.head);
        slot.wrote(entry.head);
        {
            let mut inner = slot.lock();
            inner.head = entry.head;
            inner.time = entry.updated;
            inner.indexed = entry.updated;
            inner.origin = Some(entry.origin.clone());
            inner.begun = *begun;
            inner.removed = buried.then(FramePosition::default);
        }
        slot
    }

    /// Tells where it was forked, before it has any event.
    pub(super) fn fork_at(&self, base: ForkPoint) {
        self.base.get_or_init(|| base);
    }

    /// Where it was forked.
    pub(super) fn base(&self) -> Option<ForkPoint> {
        self.base.get().copied()
    }

    /// The position of its first own event.
    pub(super) fn own_from(&self) -> Seq {
        self.base.get().map_or(1, |base| base.seq + 1)
    }

    /// Whether it was removed, and is kept for its children.
    pub(super) fn is_buried(&self) -> bool {
        let inner = self.lock();
        inner.removed.is_some() && inner.children > 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn visible(&self) -> Seq {
        self.visible.load(Ordering::Acquire)
    }

    pub(super) fn show(&self, last: Seq) {
        self.visible.fetch_max(last, Ordering::AcqRel);
    }

    pub(super) fn written(&self) -> Seq {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn wrote(&self, last: Seq) {
        self.written.fetch_max(last, Ordering::AcqRel);
    }

    /// The session as it may be seen; none before its first event may, and after its removal.
    pub(super) fn entry(&self) -> Option<SessionEntry> {
        let visible = self.visible();
        let inner = self.lock();
        if inner.removed.is_some() || visible == 0 {
            return None;
        }
        Some(SessionEntry { id: self.id, head: visible, updated: inner.time, origin: inner.origin.clone()? })
    }

    /// What the order of sessions goes by that began in the same millisecond.
    pub(super) fn begun(&self) -> FramePosition {
        self.lock().begun
    }

    /// Takes up a commit that a scan of the journal found; false when it does not follow.
    pub(super) fn found(&self, commit: &CommitView<'_>, place: FramePosition) -> bool {
        let mut inner = self.lock();
        let head = if inner.head == 0 { self.own_from() - 1 } else { inner.head };
        if commit.first != head + 1 || inner.removed.is_some() {
            return false;
        }
        inner.advance(commit, place);
        self.wrote(commit.last());
        self.show(commit.last());
        true
    }
}

impl SessionHead {
    /// Positions before `end` that the index has not got, and the session's row as of there: both must
    /// say the same, because the journal is read from `end` on when the store is next opened. Nothing when
    /// the session was removed before, and no child has its past.
    pub(super) fn indexable(&self, end: FramePosition) -> (Vec<(Seq, FramePosition)>, Option<CatalogueRow>) {
        let mut inner = self.lock();
        let removed = inner.removed.is_some_and(|removed| removed < end);
        if removed && inner.children == 0 {
            return (Vec::new(), None);
        }
        let positions: Vec<_> = inner.positions.iter().copied().take_while(|(_, place)| *place < end).collect();
        let head = inner.positions.get(positions.len()).map_or(inner.head, |(first, _)| first - 1);
        // A commit that is not durable yet may be lost, and its time with it.
        while let Some((_, time)) = inner.times.pop_front_if(|(last, _)| *last <= head) {
            inner.indexed = time;
        }
        let origin = inner.origin.clone().filter(|_| head >= self.own_from());
        let row = origin.map(|origin| CatalogueRow {
            entry: SessionEntry { id: self.id, head, updated: inner.indexed, origin },
            begun: inner.begun,
            base: self.base(),
            buried: removed,
        });
        (positions, row)
    }
}

impl SlotInner {
    /// Moves the head over a commit.
    fn advance(&mut self, commit: &CommitView<'_>, place: FramePosition) {
        self.take(commit.first, commit.last(), commit.time, place);
        if self.origin.is_none() {
            self.begin(commit, place);
        }
    }

    /// The same when only so much is known of it; the first commit must [`begin`](Self::begin) too.
    pub(super) fn take(&mut self, first: Seq, last: Seq, time: Timestamp, place: FramePosition) {
        self.head = last;
        self.time = time;
        self.positions.push_back((first, place));
        self.times.push_back((last, time));
    }

    /// Remembers how the session began.
    pub(super) fn begin(&mut self, commit: &CommitView<'_>, place: FramePosition) {
        self.begun = place;
        self.origin = commit.events().next().and_then(Result::ok).map(|event| event.to_recorded());
    }

    /// Keeps a commit in memory, and lets go of old ones that are stored.
    pub(super) fn keep(&mut self, commit: TailCommit, written: Seq) {
        self.tail_bytes += commit.bytes.len();
        self.tail.push_back(commit);
        while self.tail_bytes > TAIL_BYTES
            && let Some(oldest) = self.tail.pop_front_if(|oldest| oldest.last <= written)
        {
            self.tail_bytes -= oldest.bytes.len();
        }
    }

    /// The commits in memory from the one that holds `seq` on; none when that one is not in memory.
    pub(super) fn tail_from(&self, seq: Seq) -> Option<Vec<TailCommit>> {
        let oldest = self.tail.front()?;
        (oldest.first <= seq).then(|| {
            let skip = self.tail.partition_point(|commit| commit.last < seq);
            self.tail.range(skip..).cloned().collect()
        })
    }

    /// Takes back positions of commits that the index had.
    pub(super) fn complete(&mut self, mut older: Vec<(Seq, FramePosition)>) {
        let from = self.positions.front().map_or(Seq::MAX, |(first, _)| *first);
        older.retain(|(first, _)| *first < from);
        let newer = std::mem::replace(&mut self.positions, VecDeque::from(older));
        self.positions.extend(newer);
    }

    /// Remembers a named commit.
    pub(super) fn name(&mut self, id: CommitId, first: Seq, last: Seq) {
        if let Some(named) = &mut self.named {
            if named.len() >= REMEMBERED {
                named.pop_front();
            }
            named.push_back((id, first, last));
        }
    }
}
