//! Stores of histories.

mod batch;
mod content;
mod decompress;
mod error;
mod git_command;
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
pub(crate) use content::chunks_of;
pub(crate) use error::Result;
pub use error::StoreError;
pub(crate) use git_command::git_command;
pub use hosts::{SessionClaim, SessionHosts, StoreHost};
#[cfg(test)]
pub(crate) use journal::disk;
pub use journal::{FsckReport, Gap, JournalProblem};
pub use local::{Durability, GcReport, LocalStore, LocalStoreOptions};
pub use loss::{Loss, LostEvents};
pub use memory::MemoryStore;
#[cfg(feature = "nats")]
pub use nats::{AddressError, NatsAddress, NatsStore, NatsStoreOptions, StreamProblem};
pub use owner::StoreOwner;
pub use pending::{Committed, Pending};
pub use remote::{RemoteStore, StoreServer};

/// Store of sessions' histories, and of the contents that their events refer to.
///
/// Every implementation guarantees:
/// - A commit is recorded whole or not at all, after its session's earlier commits; positions have no gaps.
/// - An event is visible to [`visit`](EventStore::visit), [`head`](EventStore::head) and the bus only once it is as
///   durable as the store promises.
/// - A [fork](crate::store::Expected::ForkOf) has its parent's events up to that position as its own, as long as it
///   exists, also if the parent is removed.
/// - An error changes nothing, except [`StoreError::Poisoned`]: acknowledged commits are then safe, and the rest
///   is known when the store is opened again.
pub trait EventStore: Send + Sync + 'static {
    /// Takes a commit and gives its positions; it is durable when the [`Pending`] says so. Fails with
    /// [`StoreError::Conflict`]: the history does not end where the commit expects.
    fn submit(&self, commit: Commit) -> Result<Pending>;

    /// The position of the session's last visible event. Fails with [`StoreError::NoSession`].
    fn head(&self, session: SessionId) -> Result<Seq>;

    /// Returns the session's entry; none if there is no such session.
    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>>;

    /// Returns all sessions in the order of their creation.
    fn entries(&self) -> Result<Vec<SessionEntry>>;

    /// Reads visible events, from the commit that holds `from` up to the one that holds `until`: at least one commit if
    /// there is any, and then about `bytes` at most. Empty if the history ends before `from`.
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

    /// The content with that digest. Fails with [`StoreError::NoContent`]: it was never kept.
    fn content(&self, digest: &Digest) -> Result<Bytes>;

    /// Checks that the content is kept.
    fn has_content(&self, digest: &Digest) -> Result<bool>;

    /// Checks that the content can be read: it is kept, or in a repository that contents are borrowed from.
    fn can_read(&self, digest: &Digest) -> Result<bool> {
        Ok(self.has_content(digest)? || digest.git_blob().is_some() && self.content(digest).is_ok())
    }

    /// Stores a content separately, on this machine only. [`content`](EventStore::content) does not return it, and no copy or
    /// export has it. Returns false if the store can't do that.
    fn withhold(&self, digest: &Digest, bytes: &[u8]) -> Result<bool> {
        let _ = (digest, bytes);
        Ok(false)
    }

    /// Returns a content that was [withheld](EventStore::withhold).
    fn withheld(&self, digest: &Digest) -> Result<Option<Bytes>> {
        let _ = digest;
        Ok(None)
    }

    /// Brings contents near that are about to be read, where a store has them far away: many at once come sooner than one
    /// after the other. What can't be brought is looked for when it is read.
    fn read_ahead(&self, digests: &[Digest]) {
        let _ = digests;
    }

    /// Lets contents with digests of git blobs be read from the repository with this git directory, as long as they are
    /// there, where they are not kept. Returns false if the store can't do that.
    fn borrow_from(&self, git_directory: &Path) -> Result<bool> {
        let _ = git_directory;
        Ok(false)
    }

    /// Returns the latest snapshot of the session at or before `seq`.
    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>>;

    /// Returns the positions of the session's snapshots, in order.
    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>>;

    /// Stores a snapshot and returns its bytes. It is a cache: a store may drop it.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64>;

    /// Removes a snapshot.
    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()>;

    /// Removes the session at once; the next collection frees its space. Its children keep their past.
    fn remove(&self, session: SessionId) -> Result<()>;

    /// Checks that this process owns the store, and may open workspaces. Fails with [`StoreError::Locked`] if another
    /// process owns it now, and with [`StoreError::ReadOnly`] if none does.
    fn check_own(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the hosts that share the store; none for a store of one machine.
    fn hosts(&self) -> Option<&dyn SessionHosts> {
        None
    }

    /// Returns the bus that announces stored events.
    fn bus(&self) -> &Arc<Bus>;

    /// Waits until everything submitted so far is durable.
    fn sync(&self) -> Result<()>;

    /// Returns the bytes that the store takes, by kind; empty if it can't tell.
    fn usage(&self) -> Result<Vec<StorageUse>> {
        Ok(Vec::new())
    }
}

/// Bytes that a visit reads at first, as it may be about one event only.
const READ_FIRST: usize = 8 << 10;
pub(crate) const READ_MAX: usize = 256 << 10;

/// Checks that a commit's session ends where the commit expects; 0 for no session.
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

/// Visitor of events in order.
pub type Visitor<'a> = dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + 'a;

/// Session in the catalogue.
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
    /// Calls begun in its history; none if that can't be read.
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
    /// Number of events up to here that no reducer could read.
    pub unreadable: u64,
    /// Slices.
    pub slices: Vec<EncodedSlice>,
}

impl Snapshot {
    pub(crate) fn slice(&self, name: &str, version: u32) -> Option<&EncodedSlice> {
        self.slices.iter().find(|slice| *slice.name == *name && slice.version == version)
    }
}

/// Space that a kind of data takes.
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
