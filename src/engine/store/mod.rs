//! Where histories are kept.

mod batch;
mod content;
mod decompress;
mod error;
pub(crate) mod holder;
mod index;
mod journal;
mod lease;
mod local;
mod lock;
mod loss;
mod memory;
pub(crate) mod name_lock;
pub(crate) mod pending;
mod shared;
mod weight;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bus::Bus;
use super::clock::Timestamp;
use super::commit::Commit;
use super::id::{Digest, Seq, SessionId};
use super::recorded::{EventRef, Recorded};
use super::slice::EncodedSlice;

pub use batch::EventBatch;
pub(crate) use content::chunks_of;
pub use error::StoreError;
pub use holder::LeaseHolder;
#[cfg(test)]
pub(crate) use journal::disk;
pub use journal::{FsckReport, JournalProblem};
pub use lease::Lease;
pub use local::{Durability, GcReport, LocalStore, LocalStoreOptions};
pub use loss::{Loss, LostEvents};
pub use memory::MemoryStore;
pub use name_lock::NamingTurn;
pub use pending::{Committed, Pending};
pub use shared::SharedStore;

/// Keeps the histories of sessions, and the contents that their events refer to.
///
/// What every implementation keeps true:
/// - A commit is recorded whole or not at all, after every commit of its session that was submitted
///   before it; positions have no gaps.
/// - An event is visible to [`visit`](EventStore::visit), [`head`](EventStore::head) and the bus only
///   once it is stored as durably as the store promises.
/// - A child that was [forked](crate::store::Expected::ForkOf) has its parent's events up to that position as its own,
///   as long as it lives, whatever becomes of the parent.
/// - After an error nothing has changed, unless it is [`StoreError::Poisoned`]: then what was
///   acknowledged is safe, and the rest is known when the store is opened again.
pub trait EventStore: Send + Sync + 'static {
    /// Takes a commit and gives its positions; it is durable when the [`Pending`] says so.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the history does not end where the commit expects, and others.
    fn submit(&self, commit: Commit) -> Result<Pending, StoreError>;

    /// The position of the session's last visible event.
    ///
    /// # Errors
    /// [`StoreError::NoSession`].
    fn head(&self, session: SessionId) -> Result<Seq, StoreError>;

    /// The session's entry as it is visible now; none when there is no such session.
    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>, StoreError>;

    /// All sessions, the oldest first; those of one millisecond as they were begun.
    fn entries(&self) -> Result<Vec<SessionEntry>, StoreError>;

    /// Reads visible events from the commit that holds position `from` on, up to the one that holds
    /// `until`: at least one commit where there is one, and then no more than about `bytes`. Empty when
    /// the history ends before `from`.
    ///
    /// # Errors
    /// [`StoreError::NoSession`], or what went wrong while reading.
    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch, StoreError>;

    /// Shows the session's visible events from position `from` on, in order, until there are no more
    /// or the visitor breaks off.
    ///
    /// # Errors
    /// As [`read`](EventStore::read).
    fn visit(&self, session: SessionId, from: Seq, visitor: &mut Visitor<'_>) -> Result<(), StoreError> {
        let mut bytes = READ_FIRST;
        let mut next = from.max(1);
        loop {
            let batch = self.read(session, next, Seq::MAX, bytes)?;
            if batch.is_empty() {
                return Ok(());
            }
            for event in batch.events() {
                if event.seq < next {
                    continue;
                }
                next = event.seq + 1;
                if visitor(&event).is_break() {
                    return Ok(());
                }
            }
            batch.check(next)?;
            bytes = (bytes * 4).min(READ_MAX);
        }
    }

    /// The content with that digest.
    ///
    /// # Errors
    /// [`StoreError::NoContent`] when it was never kept.
    fn content(&self, digest: &Digest) -> Result<Bytes, StoreError>;

    /// Whether the content is kept.
    fn has_content(&self, digest: &Digest) -> Result<bool, StoreError>;

    /// The latest snapshot of the session at or before `seq`.
    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>, StoreError>;

    /// Where the session has snapshots, in order.
    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>, StoreError>;

    /// Keeps a snapshot. It is a cache: a store may drop it. Gives the bytes that it took.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64, StoreError>;

    /// Forgets a snapshot.
    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<(), StoreError>;

    /// Removes the session: it is gone at once, its space after the next collection. What children of it
    /// have of its history, they keep.
    ///
    /// # Errors
    /// [`StoreError::NoSession`].
    fn remove(&self, session: SessionId) -> Result<(), StoreError>;

    /// Takes the session's workspace for this process, so that no other process opens it. In a store that only one
    /// process can have there is nothing to take.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    fn lease(&self, session: SessionId, holder: &LeaseHolder) -> Result<Lease, StoreError> {
        let _ = (session, holder);
        Ok(Lease::of_own_store())
    }

    /// The process that has the session's workspace open, this one or another; none where nobody has, or nobody can
    /// tell.
    fn lease_holder(&self, session: SessionId) -> Option<LeaseHolder> {
        let _ = session;
        None
    }

    /// Takes the turn to name a session, so that two processes don't give one name twice.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has the turn for long.
    fn naming(&self) -> Result<NamingTurn, StoreError> {
        Ok(NamingTurn::of_own_store())
    }

    /// Where stored events are announced.
    fn bus(&self) -> &Arc<Bus>;

    /// Waits until everything submitted so far is durable.
    fn sync(&self) -> Result<(), StoreError>;

    /// How many bytes the store takes, by what they are; empty when it can't say.
    fn usage(&self) -> Result<Vec<StorageUse>, StoreError>;
}

/// Bytes read at first by a visit, which may be about one event only, and at last.
const READ_FIRST: usize = 8 << 10;
pub(crate) const READ_MAX: usize = 256 << 10;

/// What looks at events in order.
pub type Visitor<'a> = dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + 'a;

/// A session in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEntry {
    /// The session.
    pub id: SessionId,
    /// The position of its last visible event.
    pub head: Seq,
    /// When that was recorded.
    pub updated: Timestamp,
    /// Its first event; of a child that was forked the first after the past that it has from its parent.
    pub origin: Recorded,
}

/// Slices at a position: a cache of the fold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The session.
    pub session: SessionId,
    /// The position.
    pub seq: Seq,
    /// When its event was recorded.
    pub time: Timestamp,
    /// How many events up to here no reducer could read.
    pub unreadable: u64,
    /// The slices.
    pub slices: Vec<EncodedSlice>,
}

/// What takes space in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageUse {
    /// What it is: `events`, `contents`, ...
    pub what: Cow<'static, str>,
    /// How many there are.
    pub count: u64,
    /// Bytes as they were given.
    pub raw_bytes: u64,
    /// Bytes that they take on the disk.
    pub disk_bytes: u64,
}
