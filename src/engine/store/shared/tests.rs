use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::clock::Timestamp;
use crate::engine::commit::{Content, Expected, ForkPoint};
use crate::engine::store::Durability;
use crate::engine::subscription::{Filter, Subscription};

fn open(directory: &Path) -> SharedStore {
    SharedStore::open(directory, LocalStoreOptions::default()).unwrap()
}

fn session(number: u8) -> SessionId {
    SessionId::from_bytes([number; 16])
}

fn commit(number: u8, text: &str) -> Commit {
    let mut commit = Commit::new(session(number), Timestamp(1_000)).as_agent(&Arc::from("tester"));
    commit.push_encoded("Noted", 1, text.as_bytes()).unwrap();
    commit
}

fn texts(store: &SharedStore, number: u8) -> Vec<String> {
    let mut found = Vec::new();
    let visited = store.visit(session(number), 1, &mut |event| {
        found.push(String::from_utf8_lossy(event.payload).into_owned());
        std::ops::ControlFlow::Continue(())
    });
    visited.unwrap();
    found
}

#[test]
fn shared_store_events_are_seen_by_others() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, one, two) = (open(directory.path()), open(directory.path()), open(directory.path()));
    assert_eq!([&holder, &one, &two].map(SharedStore::is_holder), [true, false, false]);
    for (number, store) in [&holder, &one, &two, &one, &holder].into_iter().enumerate() {
        let committed = store.submit(commit(1, &number.to_string())).unwrap().wait().unwrap();
        assert_eq!((committed.first, committed.last), (number as u64 + 1, number as u64 + 1));
    }
    for store in [&holder, &one, &two] {
        assert_eq!(texts(store, 1), ["0", "1", "2", "3", "4"]);
        assert_eq!(store.head(session(1)).unwrap(), 5);
        assert_eq!(store.entries().unwrap(), holder.entries().unwrap());
        assert_eq!(store.entry(session(2)).unwrap(), None);
        assert!(matches!(store.head(session(2)), Err(StoreError::NoSession(_))));
        assert_eq!(store.usage().unwrap().len(), holder.usage().unwrap().len());
    }
    let conflict = two.submit(commit(1, "x").expecting(Expected::Exactly(3)));
    assert!(matches!(conflict, Err(StoreError::Conflict { expected: 3, actual: 5, .. })));
}

#[test]
fn shared_store_all_operations_go_through_owner() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, other) = (open(directory.path()), open(directory.path()));
    let bytes = Bytes::from(vec![7; 3 << 20]);
    let content = Content { digest: Digest::of(&bytes), bytes: bytes.clone() };
    let mut with_content = commit(1, "content");
    with_content.keep(content.clone());
    other.submit(with_content).unwrap().wait().unwrap();
    assert!(other.has_content(&content.digest).unwrap());
    assert_eq!(holder.content(&content.digest).unwrap(), bytes);
    assert_eq!(other.content(&content.digest).unwrap(), bytes);
    assert!(matches!(other.content(&Digest::of(b"nothing")), Err(StoreError::NoContent(_))));

    let fork = ForkPoint { session: session(1), seq: 1 };
    other.submit(commit(2, "child").expecting(Expected::ForkOf(fork))).unwrap().wait().unwrap();
    assert_eq!(texts(&other, 2), ["content", "child"]);
    assert_eq!(texts(&holder, 2), texts(&other, 2));

    let slice = crate::engine::slice::EncodedSlice {
        name: "Some".into(),
        version: 3,
        blocks: vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")],
    };
    let snapshot = Snapshot { session: session(1), seq: 1, time: Timestamp(1_000), unreadable: 1, slices: vec![slice] };
    assert!(other.put_snapshot(&snapshot).unwrap() > 0);
    assert_eq!(other.snapshots(session(1)).unwrap(), [1]);
    assert_eq!(other.snapshot(session(1), 9).unwrap(), Some(snapshot.clone()));
    assert_eq!(holder.snapshot(session(1), 9).unwrap(), Some(snapshot));
    other.drop_snapshot(session(1), 1).unwrap();
    assert_eq!(other.snapshot(session(1), 9).unwrap(), None);

    other.remove(session(1)).unwrap();
    assert!(matches!(holder.head(session(1)), Err(StoreError::NoSession(_))));
    assert_eq!(texts(&other, 2), ["content", "child"]);
}

#[test]
fn shared_store_owner_gone_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, one, two) = (open(directory.path()), open(directory.path()), open(directory.path()));
    one.submit(commit(1, "one")).unwrap().wait().unwrap();
    drop(holder);
    two.submit(commit(1, "two")).unwrap().wait().unwrap();
    assert_eq!(texts(&one, 1), ["one", "two"]);
    assert!(two.is_holder() && !one.is_holder());
    drop(two);
    assert_eq!(texts(&one, 1), ["one", "two"]);
    assert!(one.is_holder());
    drop(one);
    assert!(!socket::path_in(directory.path()).exists());
    assert_eq!(texts(&open(directory.path()), 1), ["one", "two"]);
}

#[test]
fn shared_store_survives_changing_owners() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (directory, acknowledged) = (directory.path(), &acknowledged);
            scope.spawn(move || {
                for round in 0..6 {
                    let store = open(directory);
                    for number in 0..20 {
                        let text = format!("{thread}-{round}-{number}");
                        // What is not waited for is recorded with what is.
                        let pending = store.submit(commit(1, &format!("{text}-first"))).unwrap();
                        let committed = store.submit(commit(1, &text)).unwrap().wait().unwrap();
                        let mut acknowledged = acknowledged.lock().unwrap();
                        acknowledged.push((pending.first(), format!("{text}-first")));
                        acknowledged.push((committed.first, text));
                    }
                }
            });
        }
    });
    let mut acknowledged = acknowledged.into_inner().unwrap();
    acknowledged.sort();
    let expected: Vec<_> = acknowledged.iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(acknowledged.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=960).collect::<Vec<_>>());
    assert_eq!(texts(&open(directory.path()), 1), expected);
}

#[test]
fn shared_store_hands_over_large_backlog() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, other) = (open(directory.path()), open(directory.path()));
    let mut last = None;
    for number in 0..1500 {
        last = Some(other.submit(commit(1, &number.to_string())).unwrap());
    }
    drop(holder);
    let committed = last.unwrap().wait().unwrap();
    assert_eq!(committed.last, 1500);
    assert_eq!(texts(&other, 1), (0..1500).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn shared_store_unawaited_commit_is_durable_at_exit() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, other) = (open(directory.path()), open(directory.path()));
    let pending = other.submit(commit(1, "one")).unwrap();
    drop(other.submit(commit(1, "two")).unwrap());
    drop(other);
    assert_eq!(pending.wait().unwrap().first, 1);
    assert_eq!(texts(&holder, 1), ["one", "two"]);
}

#[test]
fn shared_store_subscribers_see_events_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, other) = (Arc::new(open(directory.path())), Arc::new(open(directory.path())));
    holder.submit(commit(1, "begin")).unwrap().wait().unwrap();
    let hears = |store: &Arc<SharedStore>| {
        Subscription::new(Arc::clone(store) as Arc<dyn EventStore>, session(1), 1, Filter::all())
    };
    let (mut here, mut there) = (hears(&holder), hears(&other));
    other.submit(commit(1, "other")).unwrap().wait().unwrap();
    holder.submit(commit(1, "holder")).unwrap().wait().unwrap();
    for subscription in [&mut here, &mut there] {
        for expected in ["begin", "other", "holder"] {
            let event = subscription.next_within(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!(event.event.bytes, expected.as_bytes());
        }
    }
    drop(holder);
    other.submit(commit(1, "alone")).unwrap().wait().unwrap();
    assert_eq!(there.next_within(Duration::from_secs(10)).unwrap().unwrap().event.bytes, "alone".as_bytes());
}

#[test]
fn shared_store_is_collected_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, other) = (open(directory.path()), open(directory.path()));
    holder.submit(commit(1, "goes")).unwrap().wait().unwrap();
    other.submit(commit(2, "stays")).unwrap().wait().unwrap();
    other.remove(session(1)).unwrap();
    assert_eq!(other.collect(true).unwrap().commits, 1);
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            for _ in 0..50 {
                other.submit(commit(2, "more")).unwrap().wait().unwrap();
            }
        });
        assert_eq!(holder.collect(false).unwrap().commits, 1);
        recording.join().unwrap();
    });
    assert_eq!(other.collect(true).unwrap().commits, 0);
    assert_eq!(texts(&other, 2).len(), 51);
    assert!(holder.is_holder());
}

#[test]
fn shared_store_buffered_owner_shows_durable_events_only() {
    let directory = tempfile::tempdir().unwrap();
    let options = LocalStoreOptions { durability: Durability::Buffered, ..LocalStoreOptions::default() };
    let (holder, other) = (SharedStore::open(directory.path(), options).unwrap(), open(directory.path()));
    drop(holder.submit(commit(1, "quick")).unwrap());
    assert_eq!(texts(&other, 1), ["quick"]);
    let journal = LocalStore::open_reading(directory.path()).unwrap();
    assert_eq!(journal.head(session(1)).unwrap(), 1);
}

#[test]
fn shared_store_survives_stale_socket_and_strangers() {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    let directory = tempfile::tempdir().unwrap();
    // Left by a holder that was killed.
    drop(UnixListener::bind(socket::path_in(directory.path())).unwrap());
    let holder = open(directory.path());
    holder.submit(commit(1, "one")).unwrap().wait().unwrap();
    let other = open(directory.path());
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], b"foldspace store1\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let mut stream = UnixStream::connect(socket::path_in(directory.path())).unwrap();
        stream.write_all(nonsense).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        assert!(answer.len() <= wire::HELLO.len());
    }
    // Half of a message, and then nothing more.
    let mut silent = UnixStream::connect(socket::path_in(directory.path())).unwrap();
    silent.write_all(&wire::HELLO).unwrap();
    silent.write_all(&[9; 7]).unwrap();
    assert_eq!(texts(&other, 1), ["one"]);
    drop(holder);
    assert_eq!(texts(&other, 1), ["one"]);
}

#[test]
fn shared_store_silent_owner_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let _alone = LocalStore::open(directory.path(), LocalStoreOptions::default()).unwrap();
    let refused = SharedStore::open(directory.path(), LocalStoreOptions::default());
    assert!(matches!(refused, Err(StoreError::Locked { .. })));
}

#[test]
fn shared_store_resubmitted_commit_is_recognised() {
    let settling = unacknowledged::Settling::new(std::sync::Weak::<SharedInner>::new());
    let committed = super::super::Committed { first: 4, last: 4, repeated: false };
    let (untold, told) = (settling.add(commit(1, "untold")), settling.add(commit(1, "told")));
    settling.tell(told, committed);
    let conflict = |commit: &Commit| {
        assert_eq!(
            commit.expected,
            if commit.body().ends_with(b"untold") { Expected::Any } else { Expected::Exactly(3) }
        );
        Err(StoreError::Conflict { session: session(1), expected: 3, actual: 5 }.into())
    };
    assert!(settling.give(&conflict).is_ok() && settling.is_empty());
    assert!(matches!(settling.outcome_of(untold), Some(Err(StoreError::Conflict { expected: 3, actual: 5, .. }))));
    assert!(matches!(settling.outcome_of(told), Some(Err(StoreError::Poisoned(_)))));
    assert!(settling.outcome_of(told).is_none());
}
