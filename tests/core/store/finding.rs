//! Sessions are found without reading the list, and verification folds each event once.

use std::sync::Arc;

use bytes::Bytes;
use foldspace::event::{Digest, StepClock};
use foldspace::history::VerifyReport;
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::store::{Bus, EventBatch, Pending, SessionEntry, SessionQuery, SessionTotals, Snapshot};
use foldspace::{
    Commit, EventStore, ForkOptions, LocalStore, NewSession, Registry, Seq, Session, SessionError, SessionId, Sessions,
    StoreError, Timestamp,
};

use super::open;

type Result<T> = std::result::Result<T, StoreError>;

/// A store that panics when its sessions are listed.
struct Unlisted(LocalStore);

impl EventStore for Unlisted {
    fn submit(&self, commit: Commit) -> Result<Pending> {
        self.0.submit(commit)
    }

    fn head(&self, session: SessionId) -> Result<Seq> {
        self.0.head(session)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>> {
        self.0.entry(session)
    }

    fn entries(&self) -> Result<Vec<SessionEntry>> {
        panic!("the list of all sessions was read")
    }

    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        assert!(limit < 5_000 || matches!(query, SessionQuery::ChildrenOf(_)), "{query:?}");
        self.0.select(query, limit)
    }

    fn totals(&self) -> Result<SessionTotals> {
        self.0.totals()
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        self.0.read(session, from, until, bytes)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes> {
        self.0.content(digest)
    }

    fn has_content(&self, digest: &Digest) -> Result<bool> {
        self.0.has_content(digest)
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        self.0.snapshot(session, seq)
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        self.0.snapshots(session)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        self.0.put_snapshot(snapshot)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        self.0.drop_snapshot(session, seq)
    }

    fn remove(&self, session: SessionId) -> Result<()> {
        self.0.remove(session)
    }

    fn bus(&self) -> &Arc<Bus> {
        self.0.bus()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

fn sessions(store: Arc<dyn EventStore>) -> Sessions {
    let policy = SnapshotPolicy { every: 0, keep: Keep::All };
    Sessions::new(store, Registry::standard(), Arc::new(StepClock::new(Timestamp(1_000), 7)), policy).unwrap()
}

#[test]
fn session_is_found_without_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = sessions(Arc::new(Unlisted(open(directory.path()))));
    let id = |number: u8| SessionId::from_bytes([number; 16]);
    for number in 0..40 {
        let new = NewSession { id: Some(id(number)), ..NewSession::named(format!("task-{number}")) };
        sessions.create(new).unwrap();
    }
    let parent = sessions.session(id(7)).unwrap();
    let child = sessions.child_of(&parent, ForkOptions::fork_at(1)).unwrap();
    assert_eq!(sessions.find("task-33").unwrap().id, id(33));
    assert_eq!(sessions.find("task-7-1").unwrap().id, child.id());
    assert_eq!(sessions.find(&id(12).to_string()).unwrap().id, id(12));
    assert_eq!(sessions.find("1f1").unwrap().id, id(31));
    let SessionError::Ambiguous { candidates, .. } = sessions.find("1").unwrap_err() else { panic!() };
    assert_eq!((candidates.len(), candidates[0].as_str()), (8, "task-16 (101010101010)"));
    let SessionError::NotFound { nearest, .. } = sessions.find("taks-33").unwrap_err() else { panic!() };
    assert_eq!(nearest.as_deref(), Some("task-33"));
    for nothing in ["", "1F1", "zz", &"0".repeat(33)] {
        assert!(matches!(sessions.find(nothing), Err(SessionError::NotFound { .. })), "{nothing}");
    }
    let ids = |page: Vec<SessionEntry>| page.iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!(ids(sessions.page(None, 2).unwrap()), [id(0), id(1)]);
    assert_eq!(ids(sessions.page(Some(id(37)), 3).unwrap()), [id(38), id(39), child.id()]);
    assert_eq!(ids(sessions.page(Some(child.id()), 3).unwrap()), []);
    assert_eq!(ids(sessions.children(id(7)).unwrap()), [child.id()]);
    assert!(matches!(sessions.create(NewSession::named("task-3")), Err(SessionError::NameTaken { .. })));
    // The fork is noted in its parent, and its past counts there.
    assert_eq!(sessions.totals().unwrap(), SessionTotals { sessions: 41, events: 42 });

    sessions.remove(id(3)).unwrap();
    sessions.remove(id(7)).unwrap();
    assert!(matches!(sessions.page(Some(id(3)), 1), Err(SessionError::Store(StoreError::NoSession(_)))));
    assert_eq!(sessions.totals().unwrap(), SessionTotals { sessions: 39, events: 39 });
    assert!(sessions.create(NewSession::named("task-3")).is_ok());
}

fn extend(session: &Session, events: u32) {
    for _ in 0..events {
        let mut commit = session.commit();
        commit.push_encoded("Odd", 1, b"").unwrap();
        drop(session.submit(commit).unwrap());
    }
    session.sync().unwrap();
}

fn verified(sessions: &Sessions) -> VerifyReport {
    let report = sessions.verify(None).unwrap();
    let SessionTotals { sessions, events } = sessions.totals().unwrap();
    assert_eq!((report.sessions, report.events), (sessions, events));
    report
}

#[test]
fn verify_folds_the_past_of_forks_once() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn EventStore> = Arc::new(open(directory.path()));
    let sessions = sessions(Arc::clone(&store));
    let parent = sessions.create(NewSession::named("parent")).unwrap();
    extend(&parent, 300);
    let mut forks = Vec::new();
    for at in [301, 1, 301, 150, 301] {
        let fork = sessions.child_of(&parent, ForkOptions::fork_at(at)).unwrap();
        extend(&fork, 3);
        forks.push(fork);
    }
    // One from its own events, and one from its past.
    let below = sessions.child_of(&forks[0], ForkOptions::fork_at(304)).unwrap();
    let beside = sessions.child_of(&forks[0], ForkOptions::fork_at(20)).unwrap();
    let mut deepest = below.clone();
    for _ in 0..40 {
        extend(&deepest, 2);
        deepest = sessions.child_of(&deepest, ForkOptions::fork_at(deepest.head().unwrap())).unwrap();
    }
    assert_eq!((forks[0].head().unwrap(), beside.head().unwrap()), (307, 21));
    let report = verified(&sessions);
    assert_eq!((report.differences, report.snapshots), (Vec::new(), 0));

    // The state of another position, as the state of this one.
    let wrong = |session: &Session, seq: Seq| {
        session.snapshot().unwrap();
        let head = session.head().unwrap();
        let taken = store.snapshot(session.id(), head).unwrap().unwrap();
        store.put_snapshot(&Snapshot { seq, unreadable: taken.unreadable + 1, ..taken }).unwrap();
    };
    wrong(&forks[3], 153);
    wrong(&beside, 21);
    // Before its own events.
    wrong(&deepest, 200);
    sessions.store().sync().unwrap();
    let found = |report: &VerifyReport| {
        let mut found: Vec<_> = report.differences.iter().map(|found| (found.session, found.seq)).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let mut expected = vec![(forks[3].id(), 153), (beside.id(), 21), (deepest.id(), 200)];
    expected.sort_unstable();
    let report = sessions.verify(None).unwrap();
    assert_eq!((found(&report), report.snapshots), (expected.clone(), 5));

    // The past of removed sessions is verified in the last fork of each.
    sessions.remove(parent.id()).unwrap();
    sessions.remove(below.id()).unwrap();
    let report = sessions.verify(None).unwrap();
    assert_eq!(found(&report), expected);
    assert_eq!(report.sessions, sessions.totals().unwrap().sessions);
}
