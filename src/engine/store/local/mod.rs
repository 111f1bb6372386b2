//! The local store: a journal with events and contents, and an index.

pub(in crate::engine::store) mod borrowed;
pub(in crate::engine::store) mod catalogue_file;
mod check;
mod collect;
pub(crate) mod index_fallback;
pub(in crate::engine::store) mod late;
#[cfg(feature = "nats")]
mod late_copy;
mod lineage;
mod maintain;
mod named;
mod open;
#[cfg(feature = "nats")]
pub(in crate::engine::store) mod place;
mod proof;
mod read;
mod recover;
pub(crate) mod session_head;
pub(crate) mod session_heads;
mod testing;
pub(in crate::engine::store) mod withheld;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;

use super::content::{self, ContentFrame, Contents};
use super::index::SledIndex;
use super::journal::frame::{self, FrameKind};
use super::journal::{FramePosition, Segments, StagedFrame, StagingBuffer, Writer};
use super::lock::StoreLock;
use super::pending::{GroupWait, Ticket};
use super::{
    Committed, EventBatch, EventStore, Pending, Result, SessionEntry, SessionQuery, SessionTotals, Snapshot,
    StorageUse, StoreError,
};
use crate::engine::bus::Bus;
use crate::engine::commit::CallLink;
use crate::engine::{Commit, CommitId, Digest, Expected, ForkPoint, Seq, SessionId, Timestamp, read_lock};

use borrowed::BorrowedContents;
use catalogue_file::ScannedPositions;
pub use collect::GcReport;
use lineage::CommitBase;
use maintain::Maintenance;
use named::NamedCommits;
use session_head::{SessionHead, SlotInner, TailCommit};
use session_heads::Slots;

/// The condition for a commit to count as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Once it is synced to the disk.
    #[default]
    Synced,
    /// Once it is accepted. It reaches the disk about 20 ms later; a crash before that loses only such recent commits.
    Buffered,
}

/// Options of a local store.
#[derive(Debug, Clone)]
pub struct LocalStoreOptions {
    /// The condition for a commit to count as recorded.
    pub durability: Durability,
    /// Bytes of a journal segment; 1 MiB to 1 GiB, 64 MiB by default.
    pub segment_bytes: u64,
    /// True to compress full segments in the background.
    pub pack: bool,
    /// Number of latest full segments that stay uncompressed, because they are read most; 4 by default.
    pub raw_segments: u32,
    /// True to let a task write the commit that it waits for, if no other thread is writing, which saves thread
    /// switches; false by default. Has no effect on a single-threaded runtime, or if the last write took over 5 ms.
    pub write_in_place: bool,
}

impl Default for LocalStoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Synced,
            segment_bytes: 64 << 20,
            pack: true,
            raw_segments: 4,
            write_in_place: false,
        }
    }
}

/// A store in a directory, for one process at a time.
///
/// The journal is the source of truth; the index is a cache that is rebuilt if it is missing, damaged or behind.
/// Dropping the store closes it cleanly.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{EventStore, LocalStore, store::LocalStoreOptions};
/// # let directory = tempfile::tempdir()?;
/// let store = LocalStore::open(directory.path(), LocalStoreOptions::default())?;
/// assert!(store.entries()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalStore {
    shared: Arc<LocalInner>,
    /// `None` if the store is read-only.
    maintenance: Option<Maintenance>,
    /// True if the journal may have lost its end, as far as a read-only store can tell.
    is_doubtful: bool,
    notes: Vec<String>,
    lock: Option<StoreLock>,
}

struct LocalInner {
    directory: PathBuf,
    durability: Durability,
    /// Number of full segments that stay raw. `None` if packing is off.
    pack_behind: Option<u32>,
    journal: [u8; 16],
    segments: Arc<Segments>,
    contents: Arc<Contents>,
    borrowed: BorrowedContents,
    /// `None` if the store is read-only or the index failed.
    index: RwLock<Option<Arc<SledIndex>>>,
    slots: Arc<Slots>,
    bus: Arc<Bus>,
    /// `None` if the store is read-only.
    writer: Option<Arc<Writer<SessionHead>>>,
    /// In a read-only store the end of what it has read; in the owner the end of the written catalogue.
    read_to: Mutex<FramePosition>,
    /// In a read-only store the end of the part that it has not searched for contents yet.
    contents_until: Mutex<Option<FramePosition>>,
    scanned: Mutex<Option<ScannedPositions>>,
    /// Locked while the index is updated, to keep batches in order.
    learning: Mutex<()>,
}

impl LocalStore {
    /// Returns the repairs made when the store was opened, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the directory of the store.
    pub fn directory(&self) -> &std::path::Path {
        &self.shared.directory
    }

    /// Returns true if a read-only store may lack acknowledged events; [`open`](Self::open) finds out.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Returns true if a write has failed, so that the store accepts no more commits.
    pub fn has_failed(&self) -> bool {
        self.shared.writer.as_ref().is_some_and(|writer| writer.has_failed())
    }

    /// Returns true while its lock file is in the store's directory; without it another process may open a store there.
    pub fn is_in_place(&self) -> bool {
        self.lock.as_ref().is_none_or(|lock| lock.is_in(&self.shared.directory))
    }

    /// Waits until the index contains everything submitted so far.
    pub fn settle(&self) -> Result<()> {
        self.sync()?;
        self.shared.learn();
        Ok(())
    }
}

impl LocalInner {
    fn index(&self) -> Option<Arc<SledIndex>> {
        read_lock(&self.index).clone()
    }

    fn slot(&self, session: SessionId) -> Result<Arc<SessionHead>> {
        let slot = self.slots.get(session).filter(|slot| slot.visible() > 0 && !slot.is_buried());
        slot.ok_or(StoreError::NoSession(session))
    }

    fn writer(&self) -> Result<&Arc<Writer<SessionHead>>> {
        self.writer.as_ref().ok_or(StoreError::ReadOnly)
    }

    fn submit(&self, commit: &Commit) -> Result<Pending> {
        let writer = self.writer()?;
        commit.validate()?;
        let frames = self.frames_of(commit)?;
        if commit.keeps_only() {
            return self.keep_ahead(frames, writer);
        }
        let slot = match commit.expected {
            Expected::Any | Expected::NoSession | Expected::ForkOf(_) => self.slots.get_or_add(commit.session),
            Expected::Exactly(_) => self.slots.get(commit.session).ok_or(StoreError::NoSession(commit.session))?,
        };
        let fork = match commit.expected {
            Expected::ForkOf(point) => Some((point, self.slots.get(point.session))),
            _ => None,
        };
        // Read before taking the locks, because reading takes them, too.
        let forked_at = fork.as_ref().and_then(|(point, _)| self.time_at(*point));
        let (mut inner, parent) = Slots::lock(&slot, fork.as_ref().and_then(|(_, parent)| parent.as_ref()));
        lineage::check_present(commit, &inner)?;
        if let Some(id) = commit.id
            && let Some(repeated) = self.repeated(&slot, &mut inner, id)?
        {
            drop(inner);
            // The repeated commit is staged, or older.
            return Ok(self.pending(repeated, writer.staged_number(), writer));
        }
        super::check_expected(commit, inner.head)?;
        let begun = CommitBase::of(&inner, fork.as_ref().map(|(point, _)| *point), parent, forked_at)?;
        let first = begun.head + 1;
        let last = begun.head + u64::from(commit.count);
        let time = begun.time.map_or(commit.time, |time| commit.time.max(time));
        let (kind, payload) = framed(commit, (first, time), begun.fork.as_ref().map(|(point, _)| *point));
        let crc = crc32c::crc32c(&payload);
        let mut stage = writer.stage()?;
        self.stage(frames, &mut stage);
        let staged = stage.commit(&slot, &mut inner.noted, last, (kind, &payload, crc));
        if let Some((point, mut parent)) = begun.fork {
            slot.fork_at(point);
            parent.inner.children += 1;
            inner.inherit(parent.inner.calls_at(point.seq));
        }
        let bytes_staged = stage.staged();
        let bytes = Bytes::from(payload).slice(kind.commit_at().unwrap_or(0)..);
        // Before the write, so that a visible session is in the index.
        self.slots.list_begun((slot.id, &mut inner), &bytes, staged.place);
        drop(stage);
        self.pressed(staged);
        let begins_call = matches!(commit.call, CallLink::Opens) || commit.call == CallLink::Of(first);
        inner.add(TailCommit { first, last, bytes }, (time, begins_call), staged.place, slot.written());
        if self.durability == Durability::Buffered {
            self.slots.show(&slot, last);
        }
        if let Some(id) = commit.id {
            inner.name(id, first, last);
        }
        drop(inner);
        writer.relieve(staged.number, bytes_staged)?;
        Ok(self.pending(Committed { first, last, repeated: false }, staged.number, writer))
    }

    fn time_at(&self, point: ForkPoint) -> Option<Timestamp> {
        let batch = self.read(point.session, point.seq, point.seq, 1).ok()?;
        Some(batch.event_at(point.seq)?.time)
    }

    fn frames_of(&self, commit: &Commit) -> Result<Vec<ContentFrame>> {
        let mut frames = Vec::new();
        if commit.contents.is_empty() && commit.lists.is_empty() {
            return Ok(frames);
        }
        let index = self.index();
        let known = |digest: &Digest| self.contents.known(digest, index.as_deref());
        for content in &commit.contents {
            frames.extend(content::frames_of(content, &known)?);
        }
        for list in &commit.lists {
            if !known(&list.digest)? {
                frames.push(content::list_frame(list));
            }
        }
        Ok(frames)
    }

    /// Stages contents that no other thread has staged.
    fn stage(&self, frames: Vec<ContentFrame>, stage: &mut StagingBuffer<'_, SessionHead>) {
        for frame in frames {
            if !self.contents.is_fresh(&frame.digest) {
                let staged = stage.frame(frame.kind, &frame.payload, frame.crc);
                self.pressed(staged);
                self.contents.staged(frame, staged.place);
            }
        }
    }

    /// Stages contents ahead of the commit that refers to them, which makes them durable.
    fn keep_ahead(&self, frames: Vec<ContentFrame>, writer: &Writer<SessionHead>) -> Result<Pending> {
        let mut stage = writer.stage()?;
        self.stage(frames, &mut stage);
        let bytes_staged = stage.staged();
        drop(stage);
        writer.relieve(writer.staged_number(), bytes_staged)?;
        Ok(Pending::done(Committed { first: 0, last: 0, repeated: false }))
    }

    fn pressed(&self, staged: StagedFrame) {
        if staged.pressed {
            self.slots.dirty().full.push(staged.place.segment - 1);
        }
    }

    fn pending(&self, committed: Committed, number: u64, writer: &Arc<Writer<SessionHead>>) -> Pending {
        let ticket = match self.durability {
            Durability::Synced => Ticket::Group { committed, number, writer: writer.clone() },
            Durability::Buffered => Ticket::Done(committed),
        };
        Pending::of(ticket)
    }

    fn repeated(&self, slot: &Arc<SessionHead>, inner: &mut SlotInner, id: CommitId) -> Result<Option<Committed>> {
        if inner.named.is_none() {
            inner.named = Some(NamedCommits::of(self.named_commits(slot, inner)?));
        }
        let found = inner.named.as_ref().and_then(|named| named.find(id));
        Ok(found.map(|(first, last)| Committed { first, last, repeated: true }))
    }
}

impl EventStore for LocalStore {
    fn submit(&self, commit: Commit) -> Result<Pending> {
        self.shared.healing(|| self.shared.submit(&commit))
    }

    fn head(&self, session: SessionId) -> Result<Seq> {
        self.shared.refresh()?;
        Ok(self.shared.slot(session)?.visible())
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>> {
        self.shared.refresh()?;
        let slot = self.shared.slots.get(session);
        Ok(slot.and_then(|slot| self.shared.entry(&slot)))
    }

    fn entries(&self) -> Result<Vec<SessionEntry>> {
        self.select(SessionQuery::After(None), usize::MAX)
    }

    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        self.shared.refresh()?;
        loop {
            let ids = self.shared.slots.select(query, limit)?;
            let slots = ids.iter().filter_map(|id| self.shared.slots.get(*id));
            let entries: Vec<_> = slots.filter_map(|slot| self.shared.entry(&slot)).collect();
            // If all were just removed, look at the next ones.
            if !entries.is_empty() || ids.is_empty() {
                return Ok(entries);
            }
        }
    }

    fn totals(&self) -> Result<SessionTotals> {
        self.shared.refresh()?;
        Ok(self.shared.slots.totals())
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        self.shared.refresh()?;
        self.shared.healing(|| self.shared.read(session, from.max(1), until, bytes))
    }

    fn check_own(&self) -> Result<()> {
        match &self.shared.writer {
            Some(writer) if writer.has_failed() => writer.stage().map(drop),
            Some(_) => Ok(()),
            None => StoreLock::of_other(&self.shared.directory),
        }
    }

    fn content(&self, digest: &Digest) -> Result<Bytes> {
        let read = || self.shared.healing(|| self.shared.contents.read(digest, self.shared.index().as_deref()));
        match self.shared.finding(|read| matches!(read, Err(StoreError::NoContent(_))), read) {
            Err(StoreError::NoContent(missing)) if missing == *digest => {
                self.shared.borrowed.content(digest).ok_or(StoreError::NoContent(missing))
            }
            read => read,
        }
    }

    fn has_content(&self, digest: &Digest) -> Result<bool> {
        let known = || self.shared.healing(|| self.shared.contents.known(digest, self.shared.index().as_deref()));
        self.shared.finding(|known| matches!(known, Ok(false)), known)
    }

    fn can_read(&self, digest: &Digest) -> Result<bool> {
        Ok(self.has_content(digest)? || self.shared.borrowed.has(digest))
    }

    fn withhold(&self, digest: &Digest, bytes: &[u8]) -> Result<bool> {
        self.shared.writer()?;
        withheld::put(&self.shared.directory, digest, bytes).map(|()| true)
    }

    fn withheld(&self, digest: &Digest) -> Result<Option<Bytes>> {
        withheld::get(&self.shared.directory, digest)
    }

    fn borrow_from(&self, git_directory: &Path) -> Result<bool> {
        self.shared.writer()?;
        self.shared.borrowed.add(git_directory).map(|()| true)
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        let (mut session, mut seq) = (session, seq);
        loop {
            let found = self.shared.with_index(None, |index| index.snapshot(session, seq))?;
            let base = self.shared.slots.get(session).and_then(|slot| slot.base());
            let (None, Some(base)) = (&found, base) else { return Ok(found) };
            (session, seq) = (base.session, seq.min(base.seq));
        }
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        self.shared.with_index(Vec::new(), |index| index.snapshots(session))
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        // Sync its events first: a snapshot must not survive a crash that its events don't.
        if self.shared.slots.get(snapshot.session).is_some_and(|slot| slot.written() < snapshot.seq) {
            self.sync()?;
        }
        self.shared.with_index(0, |index| index.put_snapshot(snapshot))
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        self.shared.with_index((), |index| index.drop_snapshot(session, seq))
    }

    fn remove(&self, session: SessionId) -> Result<()> {
        let slot = self.shared.slot(session)?;
        let writer = self.shared.writer()?;
        let mut inner = slot.lock();
        if inner.removed.is_some() {
            return Err(StoreError::NoSession(session));
        }
        // The lock is held, so no child is added until the removal is staged.
        let is_shared = inner.children > 0;
        let crc = crc32c::crc32c(session.as_bytes());
        let mut stage = writer.stage()?;
        let staged = stage.frame(FrameKind::Removal, session.as_bytes(), crc);
        self.shared.pressed(staged);
        // Before the frame can be written, so that the index learns of the removal in time.
        if is_shared {
            self.shared.slots.note(&slot);
        } else {
            self.shared.slots.dirty().removed.push((session, staged.place));
        }
        drop(stage);
        inner.removed = Some(staged.place);
        self.shared.slots.unlist(session);
        drop(inner);
        writer.wait(staged.number)?;
        // All its events are visible now.
        self.shared.slots.uncount(&slot);
        if !is_shared {
            self.shared.slots.dissolve(&slot, staged.place);
        }
        // At once: a snapshot of this session must not serve a new session under the same id.
        self.shared.learn();
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.shared.bus
    }

    fn sync(&self) -> Result<()> {
        self.shared.writer.as_ref().map_or(Ok(()), |writer| writer.sync())
    }

    fn usage(&self) -> Result<Vec<StorageUse>> {
        self.shared.usage()
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        if let Some(maintenance) = self.maintenance.take() {
            maintenance.stop(&self.shared);
        }
    }
}

crate::engine::debug_by!(LocalStore, |store| directory: store.shared.directory);

/// Encodes a commit as the payload of a frame.
fn framed(commit: &Commit, (first, time): (Seq, Timestamp), fork: Option<ForkPoint>) -> (FrameKind, Vec<u8>) {
    let mut payload = fork.map_or_else(Vec::new, frame::fork_head);
    let kind = if payload.is_empty() { FrameKind::Commit } else { FrameKind::Fork };
    payload.reserve(commit.encoded_len());
    commit.encode(first, time, &mut payload);
    (kind, payload)
}
