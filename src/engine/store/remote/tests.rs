use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use super::*;
use crate::engine::clock::{SystemClock, Timestamp};
use crate::engine::commit::{Content, Expected, ForkPoint};
use crate::engine::registry::Registry;
use crate::engine::session::sessions::{NewSession, Sessions};
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::LocalStoreOptions;
use crate::engine::subscription::{Filter, Subscription};

/// An owner process that serves its store.
struct Owner {
    server: StoreServer,
    sessions: Sessions,
    directory: tempfile::TempDir,
}

impl Owner {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let server = StoreServer::start(&sessions, directory.path()).unwrap();
        Self { server, sessions, directory }
    }

    fn store(&self) -> &Arc<dyn EventStore> {
        self.sessions.store()
    }

    fn other(&self) -> RemoteStore {
        RemoteStore::connect(self.directory.path()).unwrap().unwrap()
    }

    fn end(self) -> tempfile::TempDir {
        drop(self.server);
        self.sessions.close();
        self.directory
    }
}

fn session(number: u8) -> SessionId {
    SessionId::from_bytes([number; 16])
}

fn commit(number: u8, text: &str) -> Commit {
    let mut commit = Commit::new(session(number), Timestamp(1_000)).as_agent(&Arc::from("tester"));
    commit.push_encoded("Noted", 1, text.as_bytes()).unwrap();
    commit
}

fn texts(store: &dyn EventStore, number: u8) -> Vec<String> {
    let mut found = Vec::new();
    let visited = store.visit(session(number), 1, &mut |event| {
        found.push(String::from_utf8_lossy(event.payload).into_owned());
        std::ops::ControlFlow::Continue(())
    });
    visited.unwrap();
    found
}

#[test]
fn remote_store_shares_events_with_owner() {
    let owner = Owner::new();
    let (one, two) = (owner.other(), owner.other());
    let stores: [&dyn EventStore; 3] = [owner.store().as_ref(), &one, &two];
    for number in 0..6 {
        let committed = stores[number % 3].submit(commit(1, &number.to_string())).unwrap().wait().unwrap();
        assert_eq!((committed.first, committed.last), (number as u64 + 1, number as u64 + 1));
    }
    for store in stores {
        assert_eq!(texts(store, 1), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(store.head(session(1)).unwrap(), 6);
        assert_eq!(store.entries().unwrap(), owner.store().entries().unwrap());
        assert_eq!(store.entry(session(2)).unwrap(), None);
        assert!(matches!(store.head(session(2)), Err(StoreError::NoSession(_))));
        assert_eq!(store.usage().unwrap().len(), stores[0].usage().unwrap().len());
        store.sync().unwrap();
    }
    assert!(owner.store().check_own().is_ok());
    match one.check_own() {
        Err(StoreError::Locked { owner, .. }) => assert_eq!(owner.process, std::process::id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn remote_store_does_what_its_owner_does() {
    let owner = Owner::new();
    let other = owner.other();
    let bytes = Bytes::from(vec![7; 3 << 20]);
    let content = Content { digest: Digest::of(&bytes), bytes: bytes.clone() };
    let mut with_content = commit(1, "content").of_call(crate::engine::commit::CallLink::Opens);
    with_content.keep(content.clone());
    assert_eq!(other.submit(with_content).unwrap().last(), 1);
    assert_eq!(other.read(session(1), 1, 1, 1).unwrap().events().next().unwrap().call, Some(1));
    assert!(other.has_content(&content.digest).unwrap());
    assert_eq!(other.content(&content.digest).unwrap(), bytes);
    assert!(matches!(other.content(&Digest::of(b"nothing")), Err(StoreError::NoContent(_))));
    let mut ahead = Commit::new(session(1), Timestamp(1));
    ahead.keep(Content::of("ahead"));
    other.submit(ahead).unwrap().wait().unwrap();
    assert!(owner.store().has_content(&Digest::of(b"ahead")).unwrap());

    let fork = ForkPoint { session: session(1), seq: 1 };
    other.submit(commit(2, "child").expecting(Expected::ForkOf(fork))).unwrap().wait().unwrap();
    assert_eq!(texts(&other, 2), ["content", "child"]);
    let slice = crate::engine::slice::EncodedSlice {
        name: "Some".into(),
        version: 3,
        blocks: vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")],
    };
    let snapshot = Snapshot { session: session(1), seq: 1, time: Timestamp(1_000), unreadable: 1, slices: vec![slice] };
    owner.store().put_snapshot(&snapshot).unwrap();
    assert_eq!(other.snapshot(session(1), 9).unwrap(), Some(snapshot));
    other.remove(session(1)).unwrap();
    assert!(matches!(owner.store().head(session(1)), Err(StoreError::NoSession(_))));
    assert_eq!(texts(&other, 2), ["content", "child"]);
}

#[test]
fn remote_store_pipelines_commits() {
    let owner = Owner::new();
    let other = owner.other();
    assert!(!owner.server.has_writers());
    let pending: Vec<_> = (0..1500).map(|number| other.submit(commit(1, &number.to_string())).unwrap()).collect();
    let refused = other.submit(commit(1, "x").expecting(Expected::Exactly(3))).unwrap();
    let after = other.submit(commit(1, "after")).unwrap();
    assert!(owner.server.has_writers());
    assert_eq!(after.wait().unwrap().last, 1501);
    assert_eq!(refused.last(), 0);
    assert!(matches!(refused.wait(), Err(StoreError::Conflict { expected: 3, actual: 1500, .. })));
    for (number, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.wait().unwrap().first, number as u64 + 1);
    }
    // Commits that no caller waits for are recorded, too.
    drop(other.submit(commit(1, "unawaited")).unwrap());
    drop(other);
    while owner.server.has_writers() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(owner.store().head(session(1)).unwrap(), 1502);
}

#[tokio::test]
async fn remote_commits_are_awaited_by_tasks() {
    let owner = Owner::new();
    let other = owner.other();
    let pending: Vec<_> = (0..64).map(|number| other.submit(commit(1, &number.to_string())).unwrap()).collect();
    for (number, pending) in pending.into_iter().enumerate().rev() {
        assert_eq!(pending.durable().await.unwrap().first, number as u64 + 1);
    }
}

#[test]
fn remote_store_without_owner_reads_files() {
    let owner = Owner::new();
    let other = owner.other();
    other.submit(commit(1, "one")).unwrap().wait().unwrap();
    let directory = owner.end();
    assert!(!socket::path_in(directory.path()).exists());
    assert_eq!(texts(&other, 1), ["one"]);
    assert_eq!(other.entries().unwrap().len(), 1);
    assert!(matches!(other.submit(commit(1, "two")), Err(StoreError::Poisoned(_))));
    assert!(matches!(other.check_own(), Err(StoreError::ReadOnly)));
    let next = LocalStore::open(directory.path(), LocalStoreOptions::default()).unwrap();
    next.submit(commit(1, "next")).unwrap().wait().unwrap();
    assert_eq!(texts(&other, 1), ["one", "next"]);
    assert!(matches!(other.check_own(), Err(StoreError::Locked { .. })));
}

#[test]
fn remote_subscribers_see_events_of_all() {
    let owner = Owner::new();
    let other = Arc::new(owner.other());
    owner.store().submit(commit(1, "begin")).unwrap().wait().unwrap();
    let stores = [Arc::clone(owner.store()), Arc::clone(&other) as Arc<dyn EventStore>];
    let mut hearing = stores.map(|store| Subscription::new(store, session(1), 1, Filter::all()));
    other.submit(commit(1, "other")).unwrap().wait().unwrap();
    owner.store().submit(commit(1, "owner")).unwrap().wait().unwrap();
    for subscription in &mut hearing {
        for expected in ["begin", "other", "owner"] {
            let event = subscription.next_within(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!(event.event.bytes, expected.as_bytes());
        }
    }
}

#[test]
fn session_names_are_unique_over_remote_stores() {
    let owner = Owner::new();
    let sessions = || {
        let clock = Arc::new(SystemClock::default());
        Sessions::new(Arc::new(owner.other()), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
    };
    let (one, two) = (sessions(), sessions());
    std::thread::scope(|scope| {
        let begin = |sessions: Sessions| {
            (0..20).filter(|n| sessions.create(NewSession::named(format!("n{n}"))).is_ok()).count()
        };
        let all = [one.clone(), two.clone(), owner.sessions.clone()];
        let begun = all.map(|sessions| scope.spawn(move || begin(sessions)));
        assert_eq!(begun.map(|begun| begun.join().unwrap()).iter().sum::<usize>(), 20);
    });
    let parent = one.session(one.find("n3").unwrap().id).unwrap();
    let child = two.child_of(&parent, crate::engine::session::children::ForkOptions::fork_at(1)).unwrap();
    assert_eq!((child.name(), child.head().unwrap()), ("n3-1", 2));
    assert_eq!(owner.sessions.list().unwrap().len(), 21);
}

#[test]
fn server_survives_stale_socket_and_strangers() {
    let directory = tempfile::tempdir().unwrap();
    // Left by a killed owner.
    drop(UnixListener::bind(socket::path_in(directory.path())).unwrap());
    assert!(RemoteStore::connect(directory.path()).unwrap().is_none());
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let server = StoreServer::start(&sessions, directory.path()).unwrap();
    sessions.store().submit(commit(1, "one")).unwrap().wait().unwrap();
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], b"foldspace store5\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let mut stream = UnixStream::connect(socket::path_in(directory.path())).unwrap();
        stream.write_all(nonsense).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        assert!(answer.len() <= wire::HELLO.len());
    }
    // Half of a message, then silence.
    let mut silent = UnixStream::connect(socket::path_in(directory.path())).unwrap();
    silent.write_all(&wire::HELLO).unwrap();
    silent.write_all(&[9; 7]).unwrap();
    let other = RemoteStore::connect(directory.path()).unwrap().unwrap();
    assert_eq!(texts(&other, 1), ["one"]);
    drop(server);
    sessions.close();
}

#[test]
fn store_that_nobody_serves_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let _alone = LocalStore::open(directory.path(), LocalStoreOptions::default()).unwrap();
    assert!(RemoteStore::connect(directory.path()).unwrap().is_none());
    match LocalStore::open(directory.path(), LocalStoreOptions::default()) {
        Err(StoreError::Locked { owner, .. }) => {
            let me = crate::engine::store::StoreOwner::this_process();
            assert_eq!((owner.process, &owner.command, owner.since.is_some()), (me.process, &me.command, true));
        }
        other => panic!("{:?}", other.err()),
    }
}
