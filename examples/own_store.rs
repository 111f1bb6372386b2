//! A custom event store that counts commits and forwards to the store in memory; then a history search and checks.
//!
//! `cargo run --example own_store`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use foldspace::event::{Clock, Digest, Node, StepClock, WriteFile, WriteMode};
use foldspace::fold::SliceSummary;
use foldspace::history::{
    Blame, BlameLine, HistoryHit, HistorySearch, Matches, SessionChange, VerifyDifference, blame,
    history_through_merges, search_history,
};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{
    Bus, CommitError, Content, EventBatch, Expected, ForkPoint, FsckReport, JournalProblem, Loss, LostEvents, Pending,
    SessionEntry, Snapshot,
};
use foldspace::{
    Commit, EntryPath, EventStore, ForkOptions, LocalStore, MemoryStore, NewSession, Registry, Seq, Session,
    SessionError, SessionId, Sessions, StoreError, Timestamp,
};

/// A store that counts its commits.
struct Counted {
    inner: MemoryStore,
    commits: AtomicU64,
}

impl EventStore for Counted {
    fn submit(&self, commit: Commit) -> Result<Pending, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.inner.submit(commit)
    }

    fn head(&self, session: SessionId) -> Result<Seq, StoreError> {
        self.inner.head(session)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>, StoreError> {
        self.inner.entry(session)
    }

    fn entries(&self) -> Result<Vec<SessionEntry>, StoreError> {
        self.inner.entries()
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch, StoreError> {
        self.inner.read(session, from, until, bytes)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        self.inner.content(digest)
    }

    fn has_content(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.inner.has_content(digest)
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>, StoreError> {
        self.inner.snapshot(session, seq)
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>, StoreError> {
        self.inner.snapshots(session)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        self.inner.put_snapshot(snapshot)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<(), StoreError> {
        self.inner.drop_snapshot(session, seq)
    }

    fn remove(&self, session: SessionId) -> Result<(), StoreError> {
        self.inner.remove(session)
    }

    fn bus(&self) -> &Arc<Bus> {
        self.inner.bus()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }
}

fn write(session: &Session, path: &EntryPath, text: &str) -> Result<(), Box<dyn Error>> {
    let mut commit = session.commit();
    commit.keep(Content::of(text.to_owned()));
    let node = Node::file(text.as_bytes(), false);
    let written: Result<(), CommitError> =
        commit.push(&WriteFile { path: path.clone(), mode: WriteMode::Overwrite, node });
    written?;
    session.record(commit)?;
    Ok(())
}

/// Checks a journal on disk, and prints its problems and losses.
fn check_journal() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    drop(Sessions::open(directory.path(), Registry::standard())?.create(NewSession::default())?);
    let FsckReport { problems, loss, commits, .. } = LocalStore::fsck(directory.path(), false)?;
    for JournalProblem { segment, offset, what, .. } in problems {
        println!("segment {segment} at byte {offset}: {what}");
    }
    for LostEvents { session, first, last } in loss.into_iter().flat_map(|Loss { sessions, .. }| sessions) {
        println!("{session} lost {first} to {last}");
    }
    println!("{commits} intact commit");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Counted { inner: MemoryStore::default(), commits: AtomicU64::new(0) });
    // A clock for tests: every reading is a second later.
    let clock: Arc<dyn Clock> = Arc::new(StepClock::new(Timestamp(0), 1000));
    let (stored, registry) = (Arc::clone(&store) as Arc<dyn EventStore>, Registry::standard());
    for SliceSummary { name, version, .. } in registry.slices() {
        println!("slice {name} of version {version}");
    }
    let sessions = Sessions::new(stored, registry, clock, SnapshotPolicy::default())?;
    let session = sessions.create(NewSession::named("poet"))?;
    let path = EntryPath::for_creation("poem.txt")?;
    write(&session, &path, "roses\n")?;
    write(&session, &path, "roses\nviolets\n")?;
    let child = sessions.child_of(&session, ForkOptions::fork_at(session.head()?))?;
    write(&child, &path, "roses\nviolets\nsugar\n")?;

    let begun = Expected::ForkOf(ForkPoint { session: session.id(), seq: session.head()? });
    println!("the child's first commit expects {begun:?}");

    // The change that wrote each line, across all sessions.
    let Blame { lines, .. } = blame(&child, &path, child.head()?)?;
    for BlameLine { change, text } in lines {
        println!("change {change}: {text}");
    }
    for SessionChange { session_name, change, .. } in history_through_merges(&child, &path, child.head()?)? {
        println!("in {session_name} at {}", change.seq);
    }

    // Every line that ever existed.
    let search = HistorySearch { until: child.head()?, ..HistorySearch::default() };
    let mut matching = |text: &[u8]| -> Matches {
        let text = String::from_utf8_lossy(text);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains('o'));
        lines.map(|(number, line)| (number, line.to_owned())).collect()
    };
    search_history::<SessionError>(&child, &search, &mut matching, &mut |hit| {
        if let HistoryHit::Line { path, line, first, still, .. } = hit {
            println!("{path}: {line:?} since {first}, still exists: {still}");
        }
        Ok(())
    })?;

    // Snapshots and files are folds: verification folds again and compares.
    for VerifyDifference { session, seq, what, .. } in sessions.verify(None)?.differences {
        println!("{session} differs at {seq}: {what}");
    }
    println!("{} commits", store.commits.load(Ordering::Relaxed));

    check_journal()
}
