//! Hostile tests of the stores: crashes, cuts, damage, full disks, odd orders; and against simpler selves.

mod beside;
mod borrowed;
mod bus;
mod chain;
#[cfg(feature = "nats")]
mod cluster;
pub(crate) mod crash;
mod cut;
mod damage;
pub(crate) mod environment;
mod files;
mod finding;
mod history;
mod import;
mod import_fuzz;
mod index;
mod journal;
mod limits;
mod loss;
mod model;
mod own;
mod packed;
pub(crate) mod portable;
mod references;
mod repair;
#[cfg(feature = "replicate")]
pub(crate) mod replicated;
pub(crate) mod space;
mod states;
mod together;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use foldspace::event::{Digest, EventsLost};
use foldspace::store::{Committed, Content, LocalStoreOptions};
use foldspace::{Commit, EventStore, LocalStore, Recorded, Seq, SessionId, StoreError, Timestamp};
use tempfile::TempDir;

use crate::rig::portable::{PortableFile, SESSION, commit_head, put_event};
use crate::rig::{Random, rounds};

/// The smallest segments, unpacked: what most tests want.
pub(crate) fn small() -> LocalStoreOptions {
    LocalStoreOptions { segment_bytes: 1 << 20, pack: false, raw_segments: 0, ..LocalStoreOptions::default() }
}

pub(crate) fn open(directory: &Path) -> LocalStore {
    LocalStore::open(directory, small()).unwrap()
}

pub(crate) fn fresh() -> (TempDir, LocalStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    (directory, store)
}

pub(crate) fn session(number: u64) -> SessionId {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_bytes(bytes)
}

/// A commit of one event with these bytes.
pub(crate) fn note(session: SessionId, payload: &[u8]) -> Commit {
    notes(session, &[payload])
}

pub(crate) fn notes(session: SessionId, payloads: &[&[u8]]) -> Commit {
    let mut commit = Commit::new(session, Timestamp(1_000));
    payloads.iter().for_each(|payload| commit.push_encoded("Note", 1, payload).unwrap());
    commit
}

/// Records a commit and waits for it.
pub(crate) fn record(store: &dyn EventStore, commit: Commit) -> Committed {
    store.submit(commit).unwrap().wait().unwrap()
}

/// A commit of one event that names a content, with it.
pub(crate) fn with_content(session: SessionId, bytes: impl Into<Bytes>) -> (Commit, Digest) {
    let content = Content::of(bytes);
    let digest = content.digest;
    let mut commit = note(session, digest.as_bytes());
    commit.keep(content);
    (commit, digest)
}

pub(crate) fn events(store: &dyn EventStore, session: SessionId, from: Seq) -> Result<Vec<Recorded>, StoreError> {
    let mut events = Vec::new();
    store.visit(session, from, &mut |event| {
        events.push(event.to_recorded());
        ControlFlow::Continue(())
    })?;
    Ok(events)
}

/// All sessions with all their events; heads and origins must agree with them.
pub(crate) type History = BTreeMap<SessionId, Vec<Recorded>>;

pub(crate) fn history(store: &dyn EventStore) -> History {
    try_history(store).unwrap()
}

pub(crate) fn try_history(store: &dyn EventStore) -> Result<History, StoreError> {
    let mut history = History::new();
    for entry in store.entries()? {
        let events = events(store, entry.id, 1)?;
        assert_eq!(entry.head, events.len() as u64, "head of {}", entry.id);
        let own_from = usize::try_from(entry.origin.seq - 1).unwrap();
        assert_eq!(Some(&entry.origin), events.get(own_from), "beginning of {}", entry.id);
        assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq && event.session == entry.id));
        assert!(events.is_sorted_by_key(|event| event.time));
        history.insert(entry.id, events);
    }
    Ok(history)
}

/// Fails, with a short message, where two histories differ.
pub(crate) fn assert_same(found: &History, expected: &History, context: &str) {
    let heads =
        |history: &History| -> Vec<_> { history.iter().map(|(id, events)| (id.short(), events.len())).collect() };
    assert_eq!(heads(found), heads(expected), "{context}");
    assert!(found == expected, "{context}: an event is not what was recorded");
}

/// Fails where an event is neither as it was recorded nor one that says that it is lost.
pub(crate) fn assert_kept(found: &History, originals: &History, context: &str) {
    for (session, events) in found {
        let original = originals.get(session).unwrap_or_else(|| panic!("{context}: session {session} was never there"));
        assert!(events.len() <= original.len(), "{context}: session {session} has {} events", events.len());
        let differs = events.iter().zip(original).find(|(event, original)| event != original && !is_lost(event));
        assert!(differs.is_none(), "{context}: session {session}: {differs:?}");
    }
}

/// Returns true if an event stands for a lost one at its position.
pub(crate) fn is_lost(event: &Recorded) -> bool {
    let lost = event.typed::<EventsLost>();
    lost.is_some_and(|lost| {
        lost.is_ok_and(|Recorded { event: e, seq, .. }| e.gap.is_some() && e.first <= seq && seq <= e.last)
    })
}

/// Where `later` is not `earlier` or a beginning of it: nothing may be there that was not recorded.
pub(crate) fn assert_beginning(later: &History, earlier: &History, context: &str) {
    for (session, events) in later {
        let original = earlier.get(session).unwrap_or_else(|| panic!("{context}: session {session} was never there"));
        assert!(original.starts_with(events), "{context}: session {session} has events that were never recorded");
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A copy of a store; with what it has beside the journal or without. It lies in memory where that can be: the tests
/// that copy wait for many thousand writes, none of which has to outlive the machine.
pub(crate) fn copied(from: &Path, whole: bool) -> TempDir {
    let target = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    if whole {
        copy(from, target.path());
    } else {
        copy(&from.join("journal"), &target.path().join("journal"));
    }
    target
}

/// Every file below a directory, in order.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

/// Every file below a directory with its bytes.
pub(crate) fn snapshot_of_disk(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files_below(directory).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

impl Random {
    /// Bytes that do not compress.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

impl PortableFile {
    /// The file with the events in one commit.
    pub(crate) fn together(mut self, events: &[(&str, u16, &[u8])]) -> Self {
        let mut all = commit_head((SESSION, self.events + 1, events.len() as u32));
        events.iter().for_each(|(kind, version, payload)| put_event(&mut all, (kind, *version), payload));
        self.events += events.len() as u64;
        self.record(2, &all)
    }
}

pub(crate) fn unpacked(file: &[u8]) -> Vec<u8> {
    zstd::decode_all(file).unwrap()
}
