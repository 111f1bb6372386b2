//! Limits at, below and above; and clocks that are wrong.

use std::sync::Arc;

use foldspace::event::{Clock, StepClock};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{
    CommitError, Content, Expected, ForkPoint, MAX_AGENT_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_EVENTS, MAX_KIND_BYTES,
};
use foldspace::{Commit, EventStore, MemoryStore, NewSession, Registry, Sessions, StoreError, Timestamp};

use super::{Random, events, fresh, history, note, open, record, session};

/// The highest version of an event's encoding.
const MAX_VERSION: u16 = 32_767;

fn over(outcome: Result<(), CommitError>) -> (u64, u64) {
    match outcome {
        Err(CommitError::TooLarge { actual, limit, .. }) => (actual, limit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commit_kind_or_agent_too_long_is_refused() {
    let (_directory, store) = fresh();
    let mut commit = Commit::new(session(1), Timestamp(0)).as_agent(&Arc::from("a".repeat(MAX_AGENT_BYTES)));
    commit.push_encoded(&"k".repeat(MAX_KIND_BYTES), MAX_VERSION, b"").unwrap();
    assert_eq!(over(commit.push_encoded(&"k".repeat(MAX_KIND_BYTES + 1), 1, b"")), (101, 100));
    assert_eq!(over(commit.push_encoded("k", MAX_VERSION + 1, b"")), (32_768, 32_767));
    assert_eq!(commit.len(), 1, "a refused event leaves the commit as it was");
    record(&store, commit);
    let read = &events(&store, session(1), 1).unwrap()[0];
    assert_eq!(
        (read.agent.len(), read.event.kind.len(), read.event.version),
        (MAX_AGENT_BYTES, MAX_KIND_BYTES, MAX_VERSION)
    );
    for store in [&store as &dyn EventStore, &MemoryStore::default()] {
        let commit = note(session(1), b"").as_agent(&Arc::from("a".repeat(MAX_AGENT_BYTES + 1)));
        assert!(matches!(store.submit(commit), Err(StoreError::Commit(CommitError::TooLarge { actual: 201, .. }))));
        let empty = Commit::new(session(1), Timestamp(0));
        assert!(matches!(store.submit(empty), Err(StoreError::Commit(CommitError::Empty))));
    }
    assert_eq!(store.head(session(1)).unwrap(), 1);
}

#[test]
fn commit_over_the_byte_limit_is_refused() {
    let (directory, store) = fresh();
    // Kind: 1 + 1 bytes; version: 2; length: 4.
    let room = MAX_COMMIT_BYTES - 8;
    let bytes = Random(90).bytes(room + 1);
    let mut commit = Commit::new(session(1), Timestamp(0));
    assert_eq!(over(commit.push_encoded("k", 1, &bytes)).1, MAX_COMMIT_BYTES as u64);
    assert!(commit.is_empty());
    commit.push_encoded("k", 1, &bytes[..room]).unwrap();
    over(commit.push_encoded("k", 1, b""));
    let mut more = Commit::new(session(1), Timestamp(0));
    more.push_encoded("k", 1, b"").unwrap();
    over(commit.append(more));
    assert_eq!(commit.len(), 1);
    record(&store, note(session(1), b"before"));
    record(&store, commit);
    record(&store, note(session(1), b"after"));
    drop(store);
    for index in [true, false] {
        if !index {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let read = &history(&open(directory.path()))[&session(1)];
        assert_eq!(read.len(), 3);
        assert!(read[1].event.bytes[..] == bytes[..room]);
    }
}

#[test]
fn commit_over_a_million_events_is_refused() {
    let (directory, store) = fresh();
    let mut commit = Commit::new(session(1), Timestamp(0));
    for _ in 0..MAX_COMMIT_EVENTS {
        commit.push_encoded("k", 1, b"").unwrap();
    }
    assert_eq!(over(commit.push_encoded("k", 1, b"")).1, u64::from(MAX_COMMIT_EVENTS));
    let mut one = Commit::new(session(1), Timestamp(0));
    one.push_encoded("k", 1, b"").unwrap();
    over(commit.append(one));
    assert_eq!(record(&store, commit).last, u64::from(MAX_COMMIT_EVENTS));
    assert_eq!(record(&store, note(session(1), b"next")).first, u64::from(MAX_COMMIT_EVENTS) + 1);
    drop(store);
    let store = open(directory.path());
    let last = events(&store, session(1), u64::from(MAX_COMMIT_EVENTS)).unwrap();
    assert_eq!(last.iter().map(|event| event.seq).collect::<Vec<_>>(), [1 << 20, (1 << 20) + 1]);
}

#[test]
fn content_of_any_size_is_read_back() {
    let (directory, store) = fresh();
    let kib = 1 << 10;
    let lengths = [0, 1, 63, 64, 128 * kib - 1, 128 * kib, 128 * kib + 1, 3 << 20, 20 << 20];
    let contents: Vec<Content> = lengths.iter().map(|length| Content::of(Random(91).bytes(*length))).collect();
    for content in &contents {
        let mut commit = note(session(1), content.digest.as_bytes());
        commit.keep(content.clone());
        commit.keep(content.clone());
        record(&store, commit);
        assert!(store.content(&content.digest).unwrap() == content.bytes);
    }
    // All zeros, and the same block again and again: chunks that are alike.
    for odd in [vec![0; 5 << 20], [Random(92).bytes(64 * kib)].concat().repeat(40)] {
        let content = Content::of(odd);
        let mut commit = note(session(1), content.digest.as_bytes());
        commit.keep(content.clone());
        record(&store, commit);
        assert!(store.content(&content.digest).unwrap() == content.bytes);
    }
    drop(store);
    let store = open(directory.path());
    for content in contents {
        assert!(store.content(&content.digest).unwrap() == content.bytes);
    }
}

#[test]
fn commit_time_never_goes_back() {
    let (directory, store) = fresh();
    let store: Arc<dyn EventStore> = Arc::new(store);
    let clock = Arc::new(StepClock::new(Timestamp(10_000), -7));
    let sessions =
        Sessions::new(store.clone(), Registry::standard(), clock.clone(), SnapshotPolicy::default()).unwrap();
    let session = sessions.create(NewSession::named("s")).unwrap();
    for time in [Timestamp(9_000), Timestamp(50_000), Timestamp(0), Timestamp(-5), Timestamp(i64::MIN), clock.now()] {
        clock.set(time);
        let mut commit = session.commit();
        commit.push_encoded("k", 1, b"").unwrap();
        session.record(commit).unwrap();
    }
    let times = |store: &dyn EventStore| -> Vec<i64> {
        events(store, session.id(), 1).unwrap().iter().map(|event| event.time.0).collect()
    };
    let seen = times(store.as_ref());
    assert!(seen.is_sorted() && seen[2..].iter().all(|time| *time == 50_000), "{seen:?}");
    assert_eq!(session.state().unwrap().time(), Timestamp(50_000));
    let id = session.id();
    drop((session.clone(), store));
    let reopened = super::copied(directory.path(), false);
    let store = open(reopened.path());
    record(&store, note(id, b"long ago"));
    let last = events(&store, id, 1).unwrap().pop().unwrap();
    assert_eq!(last.time, Timestamp(50_000), "nor after reopening");
    for extreme in [i64::MAX, i64::MIN] {
        let mut commit = Commit::new(super::session(5), Timestamp(extreme));
        commit.push_encoded("k", 1, b"").unwrap();
        record(&store, commit);
    }
    assert_eq!(store.entry(super::session(5)).unwrap().unwrap().updated, Timestamp(i64::MAX));
}

#[test]
fn fork_time_begins_at_its_position() {
    let (_directory, store) = fresh();
    for store in [&store as &dyn EventStore, &MemoryStore::default()] {
        let at = |time, child: u64, expected| {
            let mut commit = Commit::new(session(child), Timestamp(time)).expecting(expected);
            commit.push_encoded("k", 1, b"").unwrap();
            record(store, commit);
        };
        let times = |child| -> Vec<i64> {
            events(store, session(child), 1).unwrap().iter().map(|event| event.time.0).collect()
        };
        let of = |parent, seq| Expected::ForkOf(ForkPoint { session: session(parent), seq });
        for time in [100, 200, 900] {
            at(time, 1, Expected::Any);
        }
        at(300, 2, of(1, 2));
        at(0, 3, of(1, 2));
        at(300, 4, of(1, 3));
        at(250, 5, of(2, 2));
        at(400, 5, Expected::Any);
        assert_eq!(times(2), [100, 200, 300], "the parent went on to 900, after the position");
        assert_eq!(times(3), [100, 200, 200], "and not before the position");
        assert_eq!(times(4), [100, 200, 900, 900], "at the parent's end");
        assert_eq!(times(5), [100, 200, 250, 400], "the position may be an ancestor's");
    }
}
