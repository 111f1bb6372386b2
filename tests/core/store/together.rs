//! Many threads at once: no gaps, no doubles, nobody waits for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldspace::event::{CommitId, Digest};
use foldspace::store::{Committed, Content, Durability, Expected, LocalStoreOptions};
use foldspace::{EventStore, LocalStore, MemoryStore, StoreError};

use super::{
    Random, assert_same, copy, events, fresh, history, note, notes, open, record, session, small, try_history,
};

const THREADS: u64 = 8;

fn stores() -> Vec<(tempfile::TempDir, Arc<dyn EventStore>)> {
    let (directory, local) = fresh();
    let buffered = tempfile::tempdir().unwrap();
    let options = LocalStoreOptions { durability: Durability::Buffered, ..small() };
    let lazy = LocalStore::open(buffered.path(), options).unwrap();
    vec![
        (directory, Arc::new(local)),
        (buffered, Arc::new(lazy)),
        (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::default())),
    ]
}

fn at_once<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn concurrent_appends_leave_no_gaps_and_no_duplicates() {
    for (_directory, store) in stores() {
        let acknowledged = at_once(|thread| {
            let mut acknowledged = Vec::new();
            for round in 0..15 {
                let commit = |n: u64| notes(session(1), &[format!("{thread} {round} {n}").as_bytes(), b"second"]);
                let pending: Vec<_> = (0..20).map(|n| store.submit(commit(n)).unwrap()).collect();
                // Not in the order in which they were given.
                for pending in pending.into_iter().rev() {
                    let first = pending.first();
                    let committed = pending.wait().unwrap();
                    assert_eq!((committed.first, committed.last, committed.repeated), (first, first + 1, false));
                    assert!(store.head(session(1)).unwrap() >= committed.last);
                    acknowledged.push(committed.first);
                }
            }
            acknowledged
        });
        let all: BTreeSet<u64> = acknowledged.iter().flatten().copied().collect();
        assert_eq!(all, (0..THREADS * 300).map(|n| n * 2 + 1).collect());
        assert_eq!(events(store.as_ref(), session(1), 1).unwrap().len() as u64, THREADS * 600);
    }
}

#[test]
fn concurrent_appends_at_expected_seq_let_one_win() {
    for (_directory, store) in stores() {
        let begun = at_once(|_| store.submit(note(session(1), b"begin").expecting(Expected::NoSession)).is_ok());
        assert_eq!(begun.iter().filter(|begun| **begun).count(), 1);
        let conflicts = AtomicU64::new(0);
        at_once(|_| {
            for _ in 0..50 {
                loop {
                    // A head that others have taken further meanwhile is a conflict, and nothing else.
                    let head = store.head(session(1)).unwrap_or(1);
                    match store.submit(note(session(1), b"next").expecting(Expected::Exactly(head))) {
                        Ok(pending) => {
                            assert_eq!(pending.wait().unwrap().first, head + 1);
                            break;
                        }
                        Err(StoreError::Conflict { expected, actual, .. }) => {
                            assert!(expected == head && actual > head);
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        });
        assert_eq!(store.head(session(1)).unwrap(), 1 + THREADS * 50);
    }
}

#[test]
fn concurrent_appends_of_one_commit_id_are_recorded_once() {
    for (_directory, store) in stores() {
        for round in 1..20 {
            let named = || note(session(1), b"once").with_id(CommitId::from_bytes([round; 16]));
            let all = at_once(|_| store.submit(named()).unwrap().wait().unwrap());
            assert_eq!(all.iter().filter(|committed| !committed.repeated).count(), 1);
            assert!(all.iter().all(|committed| (committed.first, committed.last) == (round.into(), round.into())));
        }
    }
}

#[test]
fn commit_retry_is_recognised_after_reopening() {
    let (directory, store) = fresh();
    let named = |number: u8| notes(session(1), &[b"a", b"b"]).with_id(CommitId::from_bytes([number; 16]));
    for number in 1..9 {
        record(&store, named(number));
    }
    drop(store);
    let indexless = super::copied(directory.path(), false);
    for at in [directory.path(), indexless.path()] {
        let store = open(at);
        // What it expects is no matter any more: it has been done.
        let again = record(&store, named(3).expecting(Expected::Exactly(4)));
        assert_eq!(again, Committed { first: 5, last: 6, repeated: true });
        let other = notes(session(2), &[b"a"]).with_id(CommitId::from_bytes([3; 16]));
        assert!(!record(&store, other).repeated, "a name counts in its session only");
        assert_eq!(record(&store, named(9)).first, 17);
    }
}

#[test]
fn pending_commit_dropped_is_recorded() {
    let (directory, store) = fresh();
    for _ in 0..100 {
        drop(store.submit(note(session(1), b"dropped")).unwrap());
    }
    // It is visible only when it is durable.
    crate::rig::eventually("all are recorded", || store.head(session(1)).unwrap_or(0) >= 100);
    let crashed = super::copied(directory.path(), false);
    assert_eq!(events(&open(crashed.path()), session(1), 1).unwrap().len(), 100);
}

#[test]
fn async_writers_awaiting_commits_lose_nothing() {
    for workers in [0, 1, 2, 4] {
        let directory = tempfile::tempdir().unwrap();
        let options = LocalStoreOptions { write_in_place: true, ..small() };
        let store = Arc::new(LocalStore::open(directory.path(), options).unwrap());
        let runtime = match workers {
            0 => tokio::runtime::Builder::new_current_thread().build().unwrap(),
            _ => tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().unwrap(),
        };
        let task = |task: u64, store: Arc<LocalStore>| async move {
            for round in 0..50 {
                let commit = note(session(task % 3), format!("{task} {round}").as_bytes());
                let committed = store.submit(commit).unwrap().durable().await.unwrap();
                assert!(store.head(session(task % 3)).unwrap() >= committed.last);
            }
        };
        let tasks: Vec<_> = (0..THREADS).map(|number| runtime.spawn(task(number, Arc::clone(&store)))).collect();
        runtime.block_on(async {
            task(0, Arc::clone(&store)).await;
            for task in tasks {
                task.await.unwrap();
            }
        });
        let recorded = history(store.as_ref());
        assert_eq!(recorded.values().map(Vec::len).sum::<usize>() as u64, (THREADS + 1) * 50);
        drop(store);
        assert_same(&history(&open(directory.path())), &recorded, &format!("{workers} workers"));
    }
}

#[test]
fn pending_commits_awaited_need_no_threads() {
    let (_directory, store) = fresh();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..5 {
            let pending: Vec<_> = (0..200).map(|_| store.submit(note(session(1), b"async")).unwrap()).collect();
            for pending in pending.into_iter().rev() {
                let last = pending.last();
                assert_eq!(pending.durable().await.unwrap().last, last);
                assert!(store.head(session(1)).unwrap() >= last);
            }
        }
    });
    assert_eq!(store.head(session(1)).unwrap(), 1000);
}

#[test]
fn concurrent_contents_are_kept_and_readable() {
    let (directory, store) = fresh();
    let shared = Content::of(Random(70).bytes(300_000));
    at_once(|thread| {
        for round in 0..10 {
            let own = Content::of(Random(thread << 8 | round).bytes(2_000));
            let mut commit = note(session(thread), own.digest.as_bytes());
            commit.keep(shared.clone());
            commit.keep(own.clone());
            let pending = store.submit(commit).unwrap();
            // Readable at once, whether it is on the disk or not.
            assert_eq!(store.content(&own.digest).unwrap(), own.bytes);
            assert_eq!(store.content(&shared.digest).unwrap(), shared.bytes);
            pending.wait().unwrap();
            assert_eq!(store.content(&own.digest).unwrap(), own.bytes);
        }
    });
    drop(store);
    let size = std::fs::metadata(&super::journal::segments(directory.path())[0]).unwrap().len();
    assert!(size < 4 * 300_000, "a content is kept once, or hardly more often: {size} bytes");
    assert_eq!(open(directory.path()).content(&shared.digest).unwrap(), shared.bytes);
}

#[test]
fn concurrent_creates_and_removes_lose_nothing() {
    let (directory, store) = fresh();
    at_once(|thread| {
        let mut random = Random(71 + thread);
        for _ in 0..150 {
            let id = session(random.below(3));
            let outcome = match random.below(4) {
                0 => store.remove(id),
                _ => store.submit(note(id, &random.bytes(40))).and_then(|pending| pending.wait()).map(drop),
            };
            assert!(matches!(outcome, Ok(()) | Err(StoreError::NoSession(_))), "{outcome:?}");
            if random.below(20) == 0 {
                store.settle().unwrap();
            }
        }
    });
    let expected = history(&store);
    drop(store);
    let indexless = super::copied(directory.path(), false);
    assert_same(&history(&open(directory.path())), &expected, "with the index");
    assert_same(&history(&open(indexless.path())), &expected, "without");
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, []);
}

/// Ends the other threads also when this one panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A copy of the directory of a running store, made without asking it, opens with all that was
/// acknowledged before: as after a crash.
#[test]
fn copy_of_running_store_opens() {
    let (directory, store) = fresh();
    let (stop, known) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(72 + thread);
                while !stop.load(Ordering::Relaxed) {
                    let length = random.below(2_000) as usize;
                    let (commit, _) = super::with_content(session(1), random.bytes(length));
                    known.fetch_max(record(store, commit).last, Ordering::SeqCst);
                    record(store, note(session(2 + random.below(50)), b"other"));
                    // Not faster: each copy would take longer than the one before.
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
        }
        let _stop = Stop(stop);
        for round in 0..15 {
            // So that the index is really written meanwhile.
            store.settle().unwrap();
            let at = tempfile::tempdir().unwrap();
            let before = known.load(Ordering::SeqCst);
            copy(&directory.path().join("index"), &at.path().join("index"));
            copy(&directory.path().join("journal"), &at.path().join("journal"));
            let copied = open(at.path());
            let found = try_history(&copied).unwrap_or_else(|e| panic!("round {round}: {e}"));
            assert!(found.get(&session(1)).map_or(0, Vec::len) as u64 >= before, "round {round}");
            for event in found.get(&session(1)).into_iter().flatten().rev().take(50) {
                let digest = Digest::from_bytes(event.event.bytes[..].try_into().unwrap());
                assert_eq!(Digest::of(&copied.content(&digest).unwrap()), digest, "round {round}");
            }
        }
    });
}

#[test]
fn pending_commit_outlives_its_store() {
    let (directory, store) = fresh();
    let pending: Vec<_> = (0..20).map(|number| store.submit(note(session(number % 3), b"taken")).unwrap()).collect();
    drop(store);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (number, pending) in pending.into_iter().enumerate() {
        let committed = if number % 2 == 0 { pending.wait() } else { runtime.block_on(pending.durable()) };
        assert_eq!(committed.unwrap().last, number as u64 / 3 + 1);
    }
    let store = open(directory.path());
    let kept: Vec<_> = (0..3).map(|number| events(&store, session(number), 1).unwrap().len()).collect();
    assert_eq!(kept, [7, 7, 6]);
}
