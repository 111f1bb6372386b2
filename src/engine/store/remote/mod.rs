//! Access to a store through its owner process.

mod connection;
mod server;
mod socket;
mod submissions;
#[cfg(test)]
mod tests;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use super::hosts::COPY_FILE;
use super::index::CatalogueRow;
use super::local::withheld;
use super::lock::StoreLock;
use super::{
    EventBatch, EventStore, LocalStore, Pending, Result, SessionEntry, SessionQuery, Snapshot, StorageUse, StoreError,
};
use crate::engine::advice::Advice;
use crate::engine::bus::Bus;
use crate::engine::commit::Commit;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::lock::lock;
use connection::{AskError, OwnerConnections};
pub use server::StoreServer;
use submissions::Submissions;
use wire::{Message, StoreReply, StoreRequest, WireQuery};

/// A client of a store's owner process, which [serves](StoreServer) the store on a unix socket in its directory, for
/// processes of the same user.
///
/// It guarantees everything that an [`EventStore`] does, and:
/// - Commits are pipelined: a [`Pending`] knows its positions once it is durable. Many threads may wait at once.
/// - When the owner ends, unacknowledged commits have an unknown outcome, and new commits are refused. Reads continue
///   from the files, unless these are a copy of a store that several hosts share.
/// - Only the owner opens workspaces: sessions of this store can record, but run no tools.
pub struct RemoteStore {
    directory: PathBuf,
    connections: OwnerConnections,
    submissions: Mutex<Option<Arc<Submissions>>>,
    bus: Arc<Bus>,
    /// The files, once the owner is gone.
    files: OnceLock<LocalStore>,
}

impl RemoteStore {
    /// Connects to the owner of the store in a directory. `None` if no process serves it. Fails with
    /// [`StoreError::Foreign`] if another user or another version of the program serves it.
    pub fn connect(directory: impl AsRef<Path>) -> Result<Option<Self>> {
        let directory = directory.as_ref();
        let bus = Arc::default();
        let Some(connections) = OwnerConnections::open(directory, &bus)? else { return Ok(None) };
        let (submissions, files) = (Mutex::default(), OnceLock::new());
        Ok(Some(Self { directory: directory.to_owned(), connections, submissions, bus, files }))
    }

    /// Returns false once reads come from the files, because the owner has ended.
    #[doc(hidden)]
    pub fn is_owned(&self) -> bool {
        self.files.get().is_none()
    }

    fn files(&self) -> Result<&LocalStore> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        if is_copy(&self.directory) {
            let message = "it ended, and the directory is only a copy of the store".to_owned();
            return Err(StoreError::Elsewhere { message, advice: Some(Advice::text("retry")) });
        }
        let opened = LocalStore::open_reading(&self.directory)?;
        Ok(self.files.get_or_init(|| opened))
    }

    /// Asks the owner; once it is gone, reads the files.
    fn ask<T>(
        &self,
        request: &StoreRequest,
        read: impl FnOnce(Message<StoreReply>) -> Option<T>,
        files: impl FnOnce(&LocalStore) -> Result<T>,
    ) -> Result<T> {
        if self.files.get().is_none() {
            match self.connections.ask(request) {
                Ok(answer) => return read(answer).ok_or_else(odd_answer),
                Err(AskError::Told(error)) => return Err(error),
                Err(AskError::Gone) => {}
            }
        }
        files(self.files()?)
    }
}

/// Returns true if a directory is only a host's copy of a shared store.
fn is_copy(directory: &Path) -> bool {
    std::fs::exists(directory.join(COPY_FILE)).unwrap_or_default()
}

fn odd_answer() -> StoreError {
    let message = "invalid answer".to_owned();
    StoreError::Elsewhere { message, advice: Some(Advice::text("stop the process that owns the store, and retry")) }
}

fn entries(message: Message<StoreReply>) -> Option<Vec<SessionEntry>> {
    match message.head {
        StoreReply::Entries(rows) => rows.iter().map(|row| Some(CatalogueRow::decode(row)?.entry)).collect(),
        _ => None,
    }
}

fn done(message: Message<StoreReply>) -> Option<()> {
    matches!(message.head, StoreReply::Done).then_some(())
}

impl EventStore for RemoteStore {
    fn submit(&self, commit: Commit) -> Result<Pending> {
        commit.validate()?;
        let mut submissions = lock(&self.submissions);
        let open = match &*submissions {
            Some(open) => Arc::clone(open),
            None => Arc::clone(submissions.insert(Submissions::begin(&self.directory)?)),
        };
        drop(submissions);
        open.submit(&commit)
    }

    fn head(&self, session: SessionId) -> Result<Seq> {
        let number = |message: Message<StoreReply>| match message.head {
            StoreReply::Number(number) => Some(number),
            _ => None,
        };
        self.ask(&StoreRequest::Head(*session.as_bytes()), number, |files| files.head(session))
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>> {
        let request = StoreRequest::Entry(*session.as_bytes());
        self.ask(&request, |message| Some(entries(message)?.pop()), |files| files.entry(session))
    }

    fn entries(&self) -> Result<Vec<SessionEntry>> {
        self.ask(&StoreRequest::Entries, entries, LocalStore::entries)
    }

    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        let request = StoreRequest::Select { query: WireQuery::of(query), limit: limit as u64 };
        self.ask(&request, entries, |files| files.select(query, limit))
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        let request = StoreRequest::Read { session: *session.as_bytes(), from, until, bytes: bytes as u64 };
        let batch = |message: Message<StoreReply>| EventBatch::read_from(&message.tail);
        self.ask(&request, batch, |files| files.read(session, from, until, bytes))
    }

    fn withheld(&self, digest: &Digest) -> Result<Option<Bytes>> {
        withheld::get(&self.directory, digest)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes> {
        let request = StoreRequest::Content(*digest.as_bytes());
        self.ask(&request, |message| Some(message.tail), |files| files.content(digest))
    }

    fn has_content(&self, digest: &Digest) -> Result<bool> {
        let flag = |message: Message<StoreReply>| match message.head {
            StoreReply::Flag(flag) => Some(flag),
            _ => None,
        };
        self.ask(&StoreRequest::HasContent(*digest.as_bytes()), flag, |files| files.has_content(digest))
    }

    fn read_ahead(&self, digests: &[Digest]) {
        let request = StoreRequest::ReadAhead(digests.iter().map(|digest| *digest.as_bytes()).collect());
        if let Err(error) = self.ask(&request, done, |_| Ok(())) {
            tracing::debug!(%error, "failed to prefetch contents; reading them one by one");
        }
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        let request = StoreRequest::Snapshot { session: *session.as_bytes(), seq };
        let snapshot = |message: Message<StoreReply>| match message.head {
            StoreReply::Snapshot(None) => Some(None),
            StoreReply::Snapshot(Some(snapshot)) => snapshot.snapshot(session, message.tail).map(Some),
            _ => None,
        };
        self.ask(&request, snapshot, |files| files.snapshot(session, seq))
    }

    /// Returns an empty list: the owner manages snapshots.
    fn snapshots(&self, _: SessionId) -> Result<Vec<Seq>> {
        Ok(Vec::new())
    }

    /// Stores nothing: the owner takes snapshots.
    fn put_snapshot(&self, _: &Snapshot) -> Result<u64> {
        Ok(0)
    }

    fn drop_snapshot(&self, _: SessionId, _: Seq) -> Result<()> {
        Ok(())
    }

    fn remove(&self, session: SessionId) -> Result<()> {
        self.ask(&StoreRequest::Remove(*session.as_bytes()), done, |files| files.remove(session))
    }

    fn check_own(&self) -> Result<()> {
        StoreLock::of_other(&self.directory)
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn sync(&self) -> Result<()> {
        let open = lock(&self.submissions).clone();
        open.map_or(Ok(()), |open| open.answered())?;
        self.ask(&StoreRequest::Sync, done, |files| files.sync())
    }

    fn usage(&self) -> Result<Vec<StorageUse>> {
        let report = |message: Message<StoreReply>| match message.head {
            StoreReply::Json(text) => serde_json::from_str(&text).ok(),
            _ => None,
        };
        self.ask(&StoreRequest::Usage, report, LocalStore::usage)
    }
}

crate::engine::debug_by!(RemoteStore, |store| directory: store.directory);
