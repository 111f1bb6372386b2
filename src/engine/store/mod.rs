//! Stores of session histories.

mod batch;
mod commit_meter;
mod content;
mod decompress;
mod error;
pub(crate) mod git_command;
mod hosts;
mod index;
mod journal;
mod local;
mod lock;
mod loss;
mod memory;
#[cfg(feature = "nats")]
mod nats;
mod owner;
pub(crate) mod pending;
mod remote;
#[cfg(feature = "replicate")]
pub mod replication;
mod session_index;
mod weight;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bus::Bus;
use super::slice::EncodedSlice;
use super::{Commit, Digest, EventRef, Expected, Recorded, Seq, SessionId, Timestamp};

pub use batch::EventBatch;
#[doc(hidden)]
pub use commit_meter::CommitFigures;
pub(crate) use commit_meter::CommitMeter;
pub(crate) use content::chunks_of;
pub(crate) use error::Result;
pub use error::StoreError;
pub use git_command::git_command;
pub use hosts::{HostFigures, SessionClaim, SessionHosts, StoreHost};
#[doc(hidden)]
pub use journal::disk;
pub use journal::{FsckReport, Gap, JournalProblem};
pub use local::{Durability, GcReport, LocalStore, LocalStoreOptions};
pub use lock::is_data_directory;
pub use loss::{Loss, LostEvents};
pub use memory::MemoryStore;
#[cfg(feature = "nats")]
pub use nats::{AddressError, NatsAddress, NatsStore, NatsStoreOptions, ReplicaHealth, StreamHealth, StreamProblem};
pub use owner::StoreOwner;
pub use pending::{Committed, Pending};
pub use remote::{RemoteStore, StoreServer};
pub use session_index::{SessionQuery, SessionTotals};

/// A store of session histories and of the contents that their events refer to.
///
/// Every implementation guarantees:
/// - A commit is atomic and follows its session's earlier commits; positions have no gaps.
/// - An event is visible to [`visit`](EventStore::visit), [`head`](EventStore::head) and the bus only once it is as
///   durable as the store promises.
/// - A [fork](crate::store::Expected::ForkOf) owns its parent's events up to the fork position for as long as the fork
///   exists, even if the parent is removed.
/// - An error changes nothing, except [`StoreError::Poisoned`]: acknowledged commits are safe, and reopening the store
///   shows which others were recorded.
pub trait EventStore: Send + Sync + 'static {
    /// Accepts a commit and fixes its positions; it is durable once the [`Pending`] resolves. Fails with
    /// [`StoreError::Conflict`] if the history does not end where the commit expects.
    fn submit(&self, commit: Commit) -> Result<Pending>;

    /// Returns the position of the session's last visible event. Fails with [`StoreError::NoSession`].
    fn head(&self, session: SessionId) -> Result<Seq>;

    /// Returns the session's entry. `None` if the session does not exist.
    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>>;

    /// Returns all sessions in order of creation.
    fn entries(&self) -> Result<Vec<SessionEntry>>;

    /// Returns the first `limit` sessions that a query selects. A store with an index reads no others.
    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        session_index::select_among(&self.entries()?, query, limit)
    }

    /// Counts the sessions and their events. A store with an index reads no sessions.
    fn totals(&self) -> Result<SessionTotals> {
        Ok(SessionTotals::of(&self.entries()?))
    }

    /// Reads visible events, from the commit that contains `from` to the commit that contains `until`: about `bytes` at
    /// most, but at least one commit. Empty if the history ends before `from`.
    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch>;

    /// Visits the session's visible events from position `from` on, in order, until the visitor breaks.
    fn visit(&self, session: SessionId, from: Seq, visitor: &mut Visitor<'_>) -> Result<()> {
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

    /// Returns the content with the digest. Fails with [`StoreError::NoContent`] if it was never stored.
    fn content(&self, digest: &Digest) -> Result<Bytes>;

    /// Returns true if the content is stored.
    fn has_content(&self, digest: &Digest) -> Result<bool>;

    /// Returns true if the content can be read: it is stored, or a repository that contents are borrowed from has it.
    fn can_read(&self, digest: &Digest) -> Result<bool> {
        Ok(self.has_content(digest)? || digest.git_blob().is_some() && self.content(digest).is_ok())
    }

    /// Stores a content separately, on this machine only: [`content`](EventStore::content), copies and exports leave it
    /// out. Returns false if the store does not support that.
    fn withhold(&self, digest: &Digest, bytes: &[u8]) -> Result<bool> {
        let _ = (digest, bytes);
        Ok(false)
    }

    /// Returns a content that was [withheld](EventStore::withhold).
    fn withheld(&self, digest: &Digest) -> Result<Option<Bytes>> {
        let _ = digest;
        Ok(None)
    }

    /// Prefetches contents that are about to be read, if the store is remote: one batch is faster than single reads.
    /// Contents that could not be prefetched are fetched when they are read.
    fn read_ahead(&self, digests: &[Digest]) {
        let _ = digests;
    }

    /// Adds a git directory: a content with the digest of a git blob that is not stored is read from it while the blob
    /// exists there. Returns false if the store does not support that.
    fn borrow_from(&self, git_directory: &Path) -> Result<bool> {
        let _ = git_directory;
        Ok(false)
    }

    /// Returns the latest snapshot of the session at or before `seq`.
    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>>;

    /// Returns the positions of the session's snapshots, in order.
    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>>;

    /// Stores a snapshot and returns its size in bytes. Snapshots are a cache: a store may drop them.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64>;

    /// Removes a snapshot.
    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()>;

    /// Removes the session at once; the next collection frees its space. Its children keep their history.
    fn remove(&self, session: SessionId) -> Result<()>;

    /// Returns true if a method may wait for a network or for another process; async callers then call the store on a
    /// blocking thread.
    fn may_wait(&self) -> bool {
        true
    }

    /// Checks that this process owns the store and may open workspaces. Fails with [`StoreError::Locked`] if another
    /// process owns it, and with [`StoreError::ReadOnly`] if no process does.
    fn check_own(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the hosts that share the store. `None` for a single-machine store.
    fn hosts(&self) -> Option<&dyn SessionHosts> {
        None
    }

    /// Returns the bus that announces stored events.
    fn bus(&self) -> &Arc<Bus>;

    /// Waits until everything submitted so far is durable.
    fn sync(&self) -> Result<()>;

    /// Returns the storage use by kind of data; empty if the store can't measure it.
    fn usage(&self) -> Result<Vec<StorageUse>> {
        Ok(Vec::new())
    }
}

/// Bytes that a visit reads first: many visits want a single event.
const READ_FIRST: usize = 8 << 10;
pub(crate) const READ_MAX: usize = 256 << 10;

/// Checks that a commit's session ends where the commit expects. `actual` is 0 for no session.
fn check_expected(commit: &Commit, actual: Seq) -> Result<()> {
    let expected = match commit.expected {
        Expected::Any => return Ok(()),
        Expected::NoSession | Expected::ForkOf(_) => 0,
        Expected::Exactly(_) if actual == 0 => return Err(StoreError::NoSession(commit.session)),
        Expected::Exactly(seq) => seq,
    };
    if expected == actual {
        return Ok(());
    }
    Err(StoreError::Conflict { session: commit.session, expected, actual })
}

/// A visitor of events, in order.
pub type Visitor<'a> = dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + 'a;

/// A session in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEntry {
    /// Session.
    pub id: SessionId,
    /// Position of its last visible event.
    pub head: Seq,
    /// Time of that event.
    pub updated: Timestamp,
    /// Its first event; for a fork, the first after its parent's.
    pub origin: Recorded,
    /// Number of calls started in its history. `None` if the history can't be read.
    pub calls: Option<u64>,
}

/// Slices at a position: a cache of the fold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Session.
    pub session: SessionId,
    /// Position.
    pub seq: Seq,
    /// Time of that event.
    pub time: Timestamp,
    /// Number of events up to this position that no reducer could read.
    pub unreadable: u64,
    /// Slices.
    pub slices: Vec<EncodedSlice>,
}

impl Snapshot {
    pub(crate) fn slice(&self, name: &str, version: u32) -> Option<&EncodedSlice> {
        self.slices.iter().find(|slice| *slice.name == *name && slice.version == version)
    }
}

/// The storage use of a kind of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageUse {
    /// Kind: `events`, `contents`, ...
    pub what: Cow<'static, str>,
    /// Number of items.
    pub count: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Bytes on the disk.
    pub disk_bytes: u64,
}
