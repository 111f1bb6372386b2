//! A store of several processes: one owns it, the others work through the owner.

mod inner;
mod remote;
mod server;
mod socket;
#[cfg(test)]
mod tests;
pub(crate) mod unacknowledged;
mod wire;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::holder::LeaseHolder;
use super::lease::Lease;
use super::name_lock::NamingTurn;
use super::{
    EventBatch, EventStore, FsckReport, GcReport, LocalStore, LocalStoreOptions, Pending, SessionEntry, Snapshot,
    StorageUse, StoreError,
};
use crate::engine::bus::Bus;
use crate::engine::commit::Commit;
use crate::engine::id::{Digest, Seq, SessionId};
use inner::{SharedInner, StoreRoute};
use remote::{Remote, RemoteError};
use wire::{Message, StoreReply, StoreRequest, Upkeep, WireEntry, WireSnapshot, done, odd_answer};

/// Store in a directory for any number of processes: the first one owns it, as a [`LocalStore`], and serves it on a
/// unix socket in the directory. The others work through it, and one of them takes over when it ends in any way.
///
/// It guarantees more than an [`EventStore`]:
/// - No acknowledged commit is lost or recorded twice when an owner ends: a process keeps its commits until they are
///   durable, and gives them again, by id, to the next owner.
/// - Only processes of the same user work through each other.
/// - Options such as durability are the owner's. A commit through an owner counts as recorded when it is synced,
///   whatever the options say.
///
/// ```
/// use foldspace::{EventStore, store::{LocalStoreOptions, SharedStore}};
/// # let directory = tempfile::tempdir()?;
/// let first = SharedStore::open(directory.path(), LocalStoreOptions::default())?;
/// let second = SharedStore::open(directory.path(), LocalStoreOptions::default())?;
/// assert!(first.is_holder() && !second.is_holder());
/// drop(first);
/// assert!(second.entries()?.is_empty() && second.is_holder());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedStore {
    inner: Arc<SharedInner>,
}

impl SharedStore {
    /// Opens the store in a directory, or creates it. Fails as [`LocalStore::open`]; with [`StoreError::Locked`] only
    /// if the owner does not serve it, and with [`StoreError::Foreign`] if another user or version of the program owns
    /// it.
    pub fn open(directory: impl AsRef<Path>, options: LocalStoreOptions) -> Result<Self, StoreError> {
        let inner = SharedInner::open(directory.as_ref(), options)?;
        Ok(Self { inner })
    }

    /// Returns true if this process owns the store, so that others work through it.
    pub fn is_holder(&self) -> bool {
        matches!(*self.inner.place(), StoreRoute::Here(_))
    }

    /// Returns the directory of the store.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Returns the repairs made when this process took the store, a line each; empty in other processes.
    pub fn notes(&self) -> Vec<String> {
        match &*self.inner.place() {
            StoreRoute::Here(here) => here.store.notes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Collects garbage as [`LocalStore::collect`], while other processes that use the store wait.
    pub fn collect(&self, rehearse: bool) -> Result<GcReport, StoreError> {
        // An import keeps contents before it records what refers to them.
        let _turn = self.inner.naming.turn()?;
        self.inner.upkeep(Upkeep::Collect { rehearse })
    }

    /// Reads every byte of the journal as [`LocalStore::fsck`] without repair, while other processes wait.
    pub fn check(&self) -> Result<FsckReport, StoreError> {
        self.inner.upkeep(Upkeep::Check)
    }
}

fn number(message: Message<StoreReply>) -> Option<u64> {
    match message.head {
        StoreReply::Number(number) => Some(number),
        _ => None,
    }
}

fn entries(message: Message<StoreReply>) -> Option<Vec<SessionEntry>> {
    match message.head {
        StoreReply::Entries(entries) => Some(entries.into_iter().map(WireEntry::entry).collect()),
        _ => None,
    }
}

impl EventStore for SharedStore {
    fn submit(&self, commit: Commit) -> Result<Pending, StoreError> {
        if let StoreRoute::Here(here) = &*self.inner.settled_place() {
            let pending = here.store.submit(commit);
            if let Err(StoreError::Poisoned(_)) = &pending {
                self.inner.revive_soon();
            }
            return pending;
        }
        commit.validate()?;
        self.inner.submit_elsewhere(commit)
    }

    fn head(&self, session: SessionId) -> Result<Seq, StoreError> {
        self.inner.ask(|store| store.head(session), StoreRequest::Head(*session.as_bytes()), number)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>, StoreError> {
        let request = StoreRequest::Entry(*session.as_bytes());
        self.inner.ask(|store| store.entry(session), request, |message| Some(entries(message)?.pop()))
    }

    fn entries(&self) -> Result<Vec<SessionEntry>, StoreError> {
        self.inner.ask(|store| store.entries(), StoreRequest::Entries, entries)
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch, StoreError> {
        let request = StoreRequest::Read { session: *session.as_bytes(), from, until, bytes: bytes as u64 };
        let here = |store: &LocalStore| store.read(session, from, until, bytes);
        self.inner.ask(here, request, |message| EventBatch::read_from(&message.tail))
    }

    fn content(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        let request = StoreRequest::Content(*digest.as_bytes());
        self.inner.ask(|store| store.content(digest), request, |message| Some(message.tail))
    }

    fn has_content(&self, digest: &Digest) -> Result<bool, StoreError> {
        let request = StoreRequest::HasContent(*digest.as_bytes());
        self.inner.ask(
            |store| store.has_content(digest),
            request,
            |message| match message.head {
                StoreReply::Flag(flag) => Some(flag),
                _ => None,
            },
        )
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>, StoreError> {
        let request = StoreRequest::Snapshot { session: *session.as_bytes(), seq };
        self.inner.ask(
            |store| store.snapshot(session, seq),
            request,
            |message| match message.head {
                StoreReply::Snapshot(None) => Some(None),
                StoreReply::Snapshot(Some(snapshot)) => Some(Some(snapshot.snapshot(message.tail)?)),
                _ => None,
            },
        )
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>, StoreError> {
        let request = StoreRequest::Snapshots(*session.as_bytes());
        self.inner.ask(
            |store| store.snapshots(session),
            request,
            |message| match message.head {
                StoreReply::Numbers(numbers) => Some(numbers),
                _ => None,
            },
        )
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        let there = |remote: &Remote| {
            let request = StoreRequest::PutSnapshot(WireSnapshot::of(snapshot));
            number(remote.ask(&request, &WireSnapshot::tail(snapshot))?).ok_or_else(|| odd_answer().into())
        };
        self.inner.with(|store| store.put_snapshot(snapshot), there)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<(), StoreError> {
        let request = StoreRequest::DropSnapshot { session: *session.as_bytes(), seq };
        self.inner.ask(|store| store.drop_snapshot(session, seq), request, done)
    }

    fn remove(&self, session: SessionId) -> Result<(), StoreError> {
        let asked = Cell::new(false);
        let removed = self.inner.with(
            |store| store.remove(session),
            |remote| {
                let answer = remote.ask(&StoreRequest::Remove(*session.as_bytes()), &[]);
                asked.set(asked.get() || matches!(answer, Err(RemoteError::Gone)));
                done(answer?).ok_or_else(|| odd_answer().into())
            },
        );
        match removed {
            // The holder went after it had done it.
            Err(StoreError::NoSession(_)) if asked.get() => Ok(()),
            removed => removed,
        }
    }

    fn lease(&self, session: SessionId, holder: &LeaseHolder) -> Result<Lease, StoreError> {
        let lease = Lease::take(&self.inner.directory, session, holder)?;
        // What the last one to have it recorded is seen by who has it now.
        if self.inner.has_company() {
            self.inner.sync()?;
        }
        Ok(lease)
    }

    fn lease_holder(&self, session: SessionId) -> Option<LeaseHolder> {
        Lease::holder(&self.inner.directory, session)
    }

    fn naming(&self) -> Result<NamingTurn, StoreError> {
        self.inner.naming.turn()
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.inner.bus
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    fn usage(&self) -> Result<Vec<StorageUse>, StoreError> {
        self.inner.ask(
            |store| store.usage(),
            StoreRequest::Usage,
            |message| match message.head {
                StoreReply::Json(text) => serde_json::from_str(&text).ok(),
                _ => None,
            },
        )
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl std::fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStore").field("directory", &self.inner.directory).finish_non_exhaustive()
    }
}
