//! Subscriptions: every event once and in order, whoever is slow, panics or goes away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldspace::event::{DeleteEntry, Node, SystemClock, WriteFile, WriteMode};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{CallLink, LocalStoreOptions};
use foldspace::{
    Commit, EntryPath, EventStore, Filter, LocalStore, MemoryStore, NewSession, Recorded, Registry, Session, Sessions,
    StoreError, Subscription,
};

use super::{Random, fresh, note, small, with_content};
use crate::rig::eventually;

/// Long enough for anything that comes at all.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::from_millis(30);

fn sessions(store: Arc<dyn EventStore>) -> Sessions {
    Sessions::new(store, Registry::standard(), Arc::new(SystemClock::default()), SnapshotPolicy::default()).unwrap()
}

fn on_disk() -> (tempfile::TempDir, Sessions, Session) {
    let (directory, store) = fresh();
    let sessions = sessions(Arc::new(store));
    let session = sessions.create(NewSession::named("s")).unwrap();
    (directory, sessions, session)
}

fn record(session: &Session, count: usize) {
    let pending: Vec<_> = (0..count).map(|_| session.submit(note(session.id(), b"more")).unwrap()).collect();
    for pending in pending {
        pending.wait().unwrap();
    }
}

/// Takes events until `last` and checks that none is missing or comes twice.
fn follow(subscription: &mut Subscription, from: u64, last: u64) {
    for seq in from..=last {
        let event = subscription.next_within(WAIT_LIMIT).unwrap().unwrap();
        assert_eq!(event.seq, seq);
    }
}

#[test]
fn subscription_from_any_seq_catches_up_then_goes_live() {
    for (_directory, sessions, session) in [on_disk(), {
        let sessions = sessions(Arc::new(MemoryStore::default()));
        let session = sessions.create(NewSession::named("s")).unwrap();
        (tempfile::tempdir().unwrap(), sessions, session)
    }] {
        record(&session, 49);
        let mut all: Vec<(u64, Subscription)> =
            [0, 1, 2, 25, 50, 51, 60].map(|from| (from, session.subscribe(from, Filter::all()))).into();
        for (from, subscription) in &mut all {
            follow(subscription, (*from).max(1), 50);
            assert_eq!(subscription.next_within(NOTHING).unwrap(), None);
            assert_eq!(subscription.next_within(Duration::ZERO).unwrap(), None);
            assert_eq!(subscription.position(), (*from).max(51));
        }
        record(&session, 1500);
        for (from, subscription) in &mut all {
            follow(subscription, (*from).max(51), 1550);
            assert_eq!(subscription.next_within(NOTHING).unwrap(), None);
        }
        drop(sessions);
    }
}

#[test]
fn subscription_slow_reader_sees_each_event_once() {
    let (_directory, _sessions, session) = on_disk();
    let mut never_read = session.subscribe(1, Filter::all());
    let mut slow = session.subscribe(1, Filter::all());
    let (writers, each) = (4, 1200);
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| record(&session, each));
        }
        scope.spawn(|| {
            for seq in 1..=1000 {
                assert_eq!(slow.next_within(WAIT_LIMIT).unwrap().unwrap().seq, seq);
                // The time is the subject: it is slower than the writers.
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for _ in 0..3 {
            let mut quick = session.subscribe(1, Filter::all());
            scope.spawn(move || follow(&mut quick, 1, 1 + (writers * each) as u64));
        }
    });
    let last = session.head().unwrap();
    assert_eq!(last, 1 + (writers * each) as u64);
    follow(&mut slow, 1001, last);
    follow(&mut never_read, 1, last);
    record(&session, 1);
    follow(&mut slow, last + 1, last + 1);
    follow(&mut never_read, last + 1, last + 1);
}

#[test]
fn filter_selects_by_kind_agent_and_call() {
    let (_directory, _sessions, session) = on_disk();
    let path = EntryPath::for_creation("a").unwrap();
    let write = WriteFile { path: path.clone(), mode: WriteMode::Create, node: Node::DIRECTORY };
    for (agent, call) in
        [("one", CallLink::Opens), ("one", CallLink::Of(2)), ("two", CallLink::Of(2)), ("", CallLink::None)]
    {
        let mut commit: Commit = session.as_agent(agent).commit().of_call(call);
        commit.push(&write).unwrap();
        commit.push(&DeleteEntry { path: path.clone() }).unwrap();
        session.record(commit).unwrap();
    }
    // Positions 2 and 3: agent one, call 2; 4 and 5 too; 6 and 7: two, call 2; 8 and 9: nobody, no call.
    let seen = |filter: Filter| -> Vec<u64> {
        let mut subscription = session.subscribe(1, filter);
        std::iter::from_fn(|| subscription.next_within(Duration::ZERO).unwrap()).map(|event| event.seq).collect()
    };
    assert_eq!(seen(Filter::of::<WriteFile>()), [2, 4, 6, 8]);
    assert_eq!(seen(Filter::of::<WriteFile>().or::<DeleteEntry>()), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(seen(Filter::all().by_agent("one")), [2, 3, 4, 5]);
    assert_eq!(seen(Filter::all().by_agent("")), [1, 8, 9]);
    assert_eq!(seen(Filter::all().of_call(2)), [2, 3, 4, 5, 6, 7]);
    assert_eq!(seen(Filter::of::<DeleteEntry>().by_agent("two").of_call(2)), [7]);
    assert_eq!(seen(Filter::all().of_call(3)), [] as [u64; 0]);
    let mut typed = session.subscribe(1, Filter::all());
    let next = || typed.next_typed::<DeleteEntry>(Duration::ZERO).unwrap().map(|event| event.unwrap().seq);
    assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), [3, 5, 7, 9]);
}

#[test]
fn watcher_panic_leaves_others_working() {
    let (_directory, _sessions, session) = on_disk();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let bad = session
        .watch(1, Filter::all(), |event: &Recorded| assert!(event.seq < 3, "a watcher panics: it is part of a test"));
    let good = session.watch(1, Filter::all(), {
        let seen = Arc::clone(&seen);
        move |event| seen.lock().unwrap().push(event.seq)
    });
    let (bad, good) = (bad.unwrap(), good.unwrap());
    record(&session, 300);
    eventually("the first 301", || !bad.is_watching() && seen.lock().unwrap().len() >= 301);
    assert!(good.is_watching());
    record(&session, 10);
    drop(bad);
    eventually("the next ten", || seen.lock().unwrap().len() >= 311);
    drop(good);
    assert_eq!(*seen.lock().unwrap(), (1..=311).collect::<Vec<u64>>());
    record(&session, 1);
    assert_eq!(seen.lock().unwrap().len(), 311, "who was dropped hears nothing more");
}

#[test]
fn subscription_dropped_frees_its_place() {
    let (_directory, sessions, session) = on_disk();
    for _ in 0..100 {
        let mut subscription = session.subscribe(1, Filter::all());
        subscription.next_within(WAIT_LIMIT).unwrap();
        record(&session, 1);
    }
    let shown = format!("{:?}", sessions.store().bus());
    assert!(shown.contains("subscribers: 0"), "{shown}");
}

#[test]
fn subscription_of_removed_session_fails() {
    let (_directory, sessions, session) = on_disk();
    let mut subscription = session.subscribe(1, Filter::all());
    follow(&mut subscription, 1, 1);
    sessions.remove(session.id()).unwrap();
    let mut outcome = subscription.next_within(NOTHING);
    while matches!(outcome, Ok(None)) {
        outcome = subscription.next_within(NOTHING);
    }
    assert!(matches!(outcome, Err(StoreError::NoSession(_))), "{outcome:?}");
}

/// A second handle follows while segments are filled, begun and packed.
#[test]
fn reading_store_sees_events_of_writing_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(directory.path(), LocalStoreOptions { pack: true, ..small() }).unwrap());
    let session = sessions(store.clone()).create(NewSession::named("s")).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(60);
            // Until several segments have been packed beneath the reader's feet.
            while !directory.path().join("journal/00000004.pak").exists() {
                for _ in 0..20 {
                    let length = random.below(30_000) as usize;
                    session.record(with_content(session.id(), random.bytes(length)).0).unwrap();
                }
                let passing = super::session(random.next());
                super::record(store.as_ref(), note(passing, b"passing"));
                store.remove(passing).unwrap();
                // Not faster than a segment is packed: else the readers get far more than they need.
                std::thread::sleep(Duration::from_millis(5));
            }
            done.store(session.head().unwrap(), Ordering::SeqCst);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let reading: Arc<dyn EventStore> = Arc::new(LocalStore::open_reading(directory.path()).unwrap());
                let reader = sessions(Arc::clone(&reading)).session(session.id()).unwrap();
                let mut subscription = reader.subscribe(1, Filter::all());
                let (mut seq, mut left) = (0, u64::MAX);
                while seq < left {
                    if let Some(event) = subscription.next_within(NOTHING).unwrap() {
                        seq += 1;
                        assert_eq!(event.seq, seq);
                        if let Ok(digest) = <[u8; 32]>::try_from(&event.event.bytes[..]) {
                            reading.content(&foldspace::event::Digest::from_bytes(digest)).unwrap();
                        }
                    }
                    if seq % 50 == 0 {
                        assert!(reading.head(session.id()).unwrap() >= seq);
                        reading.entries().unwrap();
                    }
                    left = Some(done.load(Ordering::SeqCst)).filter(|done| *done > 0).unwrap_or(left);
                }
                assert!(matches!(reading.submit(note(session.id(), b"no")), Err(StoreError::ReadOnly)));
                assert!(matches!(reading.remove(session.id()), Err(StoreError::ReadOnly)));
            });
        }
    });
}
