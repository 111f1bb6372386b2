//! Random operations on the memory store and on a local store: every answer must be the same.

use std::ops::ControlFlow;

use foldspace::event::{CommitId, Digest};
use foldspace::fold::EncodedSlice;
use foldspace::store::{Committed, Content, Expected, ForkPoint, SessionQuery, Snapshot};
use foldspace::{Commit, EventStore, LocalStore, MemoryStore, Recorded, StoreError, Timestamp};
use proptest::prelude::*;
#[cfg(feature = "nats")]
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use super::rounds;
use super::{Random, assert_same, history, open, session};

#[derive(Debug, Clone)]
enum Operation {
    Submit { session: u64, expected: Wanted, id: Option<u8>, events: u32, content: Option<Bytes>, time: i64 },
    Fork { session: u64, parent: u64, part: u64, id: Option<u8>, time: i64 },
    Remove(u64),
    Reopen,
    Settle,
    PutSnapshot { session: u64, part: u64, size: usize },
    DropSnapshot { session: u64, part: u64 },
    Look { session: u64, part: u64 },
    Read(Bytes),
}

/// Where the history is expected to end, seen from where it does.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Any,
    NoSession,
    Off(i64),
    Zero,
}

/// Contents that come again in other operations, made from few numbers.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    seed: u64,
    length: usize,
    compressible: bool,
}

impl Bytes {
    fn content(self) -> Content {
        let bytes = Random(self.seed).bytes(self.length);
        Content::of(if self.compressible { bytes.iter().map(|byte| byte & 3).collect() } else { bytes })
    }
}

fn bytes() -> impl Strategy<Value = Bytes> {
    let length =
        prop_oneof![Just(0), Just(1), Just(63), Just(64), Just(5_000), Just(131_072), Just(131_073), Just(400_000)];
    (0..3u64, length, any::<bool>()).prop_map(|(seed, length, compressible)| Bytes { seed, length, compressible })
}

fn operation() -> impl Strategy<Value = Operation> {
    let wanted = prop_oneof![
        4 => Just(Wanted::Any),
        1 => Just(Wanted::NoSession),
        1 => Just(Wanted::Zero),
        4 => prop_oneof![3 => Just(0i64), 1 => -2..3i64].prop_map(Wanted::Off),
    ];
    let submit = (0..5u64, wanted, prop::option::weighted(0.4, 0..6u8), 1..4u32, prop::option::of(bytes()), -5..50i64);
    prop_oneof![
        12 => submit.prop_map(|(session, expected, id, events, content, time)| {
            Operation::Submit { session, expected, id, events, content, time }
        }),
        4 => (0..5u64, 0..5u64, 0..6u64, prop::option::weighted(0.3, 0..6u8), -5..50i64)
            .prop_map(|(session, parent, part, id, time)| Operation::Fork { session, parent, part, id, time }),
        2 => (0..5u64).prop_map(Operation::Remove),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::Settle),
        2 => (0..3u64, 0..5u64, prop_oneof![Just(0), Just(40), Just(12_288), Just(40_000)])
            .prop_map(|(session, part, size)| Operation::PutSnapshot { session, part, size }),
        1 => (0..3u64, 0..5u64).prop_map(|(session, part)| Operation::DropSnapshot { session, part }),
        4 => (0..5u64, 0..5u64).prop_map(|(session, part)| Operation::Look { session, part }),
        2 => bytes().prop_map(Operation::Read),
    ]
}

struct Pair {
    memory: MemoryStore,
    other: Option<Other>,
    directory: TempDir,
    /// The cluster that has the other store.
    #[cfg(feature = "nats")]
    address: Option<foldspace::store::NatsAddress>,
}

enum Other {
    Local(LocalStore),
    #[cfg(feature = "nats")]
    Nats(foldspace::store::NatsStore),
}

impl Other {
    fn store(&self) -> &dyn EventStore {
        match self {
            Self::Local(store) => store,
            #[cfg(feature = "nats")]
            Self::Nats(store) => store,
        }
    }
}

fn told<T>(outcome: Result<T, StoreError>) -> Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut pair = Self {
            memory: MemoryStore::default(),
            other: None,
            directory,
            #[cfg(feature = "nats")]
            address: None,
        };
        pair.reopen();
        pair
    }

    fn reopen(&mut self) {
        self.other = None;
        #[cfg(feature = "nats")]
        if let Some(address) = &self.address {
            let store = foldspace::store::NatsStore::open(address, self.directory.path(), Default::default());
            self.other = Some(Other::Nats(store.unwrap()));
            return;
        }
        let store = open(self.directory.path());
        assert_eq!(store.notes(), &[] as &[String]);
        self.other = Some(Other::Local(store));
    }

    /// Asks both; the answers must be the same.
    fn both<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(&dyn EventStore) -> T) {
        self.answer(ask);
    }

    fn answer<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(&dyn EventStore) -> T) -> T {
        let (memory, other) = (ask(&self.memory), ask(self.other.as_ref().unwrap().store()));
        assert_eq!(memory, other);
        memory
    }

    fn head(&self, number: u64) -> u64 {
        self.memory.head(session(number)).unwrap_or(0)
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Submit { session: number, expected, id, events, content, time } => {
                let head = self.head(number);
                let expected = match expected {
                    Wanted::Any => Expected::Any,
                    Wanted::NoSession => Expected::NoSession,
                    Wanted::Zero => Expected::Exactly(0),
                    Wanted::Off(off) => Expected::Exactly(head.saturating_add_signed(off)),
                };
                let mut commit = Commit::new(session(number), Timestamp(time)).expecting(expected);
                let content = content.map(Bytes::content);
                let digest = content.as_ref().map_or(Digest::from_bytes([0; 32]), |content| content.digest);
                (0..events).for_each(|event| {
                    commit.push_encoded("Odd", event as u16, &digest.as_bytes()[..event as usize * 16]).unwrap();
                });
                content.into_iter().for_each(|content| commit.keep(content));
                commit = id.into_iter().fold(commit, |commit, id| commit.with_id(CommitId::from_bytes([id + 1; 16])));
                self.both(|store| told(store.submit(commit.duplicate()).and_then(|pending| pending.wait())));
            }
            Operation::Fork { session: number, parent, part, id, time } => {
                // Now and then no position of the parent's.
                let seq = (self.head(parent) * part).div_ceil(4);
                let point = ForkPoint { session: session(parent), seq };
                let mut commit = Commit::new(session(number), Timestamp(time)).expecting(Expected::ForkOf(point));
                commit.push_encoded("Forked", 1, b"").unwrap();
                commit = id.into_iter().fold(commit, |commit, id| commit.with_id(CommitId::from_bytes([id + 1; 16])));
                self.both(|store| told(store.submit(commit.duplicate()).and_then(|pending| pending.wait())));
            }
            Operation::Remove(number) => self.both(|store| told(store.remove(session(number)))),
            Operation::Reopen => self.reopen(),
            Operation::Settle => match self.other.as_ref().unwrap() {
                Other::Local(store) => store.settle().unwrap(),
                #[cfg(feature = "nats")]
                Other::Nats(store) => store.sync().unwrap(),
            },
            Operation::PutSnapshot { session: number, part, size } => {
                let blocks = |size| vec![Random(part).bytes(size).into(), Random(part + 9).bytes(7).into()];
                let slice = |name: &str, size| EncodedSlice { name: name.into(), version: 3, blocks: blocks(size) };
                let seq = self.head(number) * part / 4;
                let slices = vec![slice("A", size), slice("B", size / 2)];
                let snapshot = Snapshot { session: session(number), seq, time: Timestamp(3), unreadable: part, slices };
                if seq > 0 {
                    self.both(|store| told(store.put_snapshot(&snapshot).map(drop)));
                }
            }
            Operation::DropSnapshot { session: number, part } => {
                let seq = self.head(number) * part / 4;
                self.both(|store| told(store.drop_snapshot(session(number), seq)));
            }
            Operation::Look { session: number, part } => self.look(number, self.head(number) * part / 3),
            Operation::Read(bytes) => {
                let digest = bytes.content().digest;
                self.both(|store| store.has_content(&digest).unwrap());
                self.both(|store| told(store.content(&digest)));
            }
        }
    }

    fn look_at_events(&self, number: u64) {
        let id = session(number);
        self.both(|store| told(store.head(id)));
        self.both(|store| told(store.entry(id)));
        self.both(|store| told(store.entries()));
        let (short, whole) = (id.short(), id.to_string());
        for (query, limit) in [SessionQuery::After(None), SessionQuery::After(Some(id)), SessionQuery::Named(&short)]
            .into_iter()
            .chain([&whole[..1], &whole[..2], &whole].map(SessionQuery::IdPrefix))
            .chain([SessionQuery::NamedNear(&short), SessionQuery::ChildrenOf(id)])
            .flat_map(|query| [1, 2, 100].map(|limit| (query, limit)))
        {
            self.both(|store| told(store.select(query, limit)));
        }
        // The list of a cluster has older heads.
        if let Some(Other::Local(store)) = &self.other {
            assert_eq!(store.totals().unwrap(), self.memory.totals().unwrap());
        }
        self.both(|store| told(super::events(store, id, 0)));
    }

    fn look(&self, number: u64, from: u64) {
        let id = session(number);
        self.look_at_events(number);
        self.both(|store| told(super::events(store, id, from)));
        self.both(|store| told(store.snapshots(id)));
        self.both(|store| told(store.snapshot(id, from)));
        for bytes in [0, 1, 500, 1 << 20] {
            self.both(|store| match store.read(id, from, u64::MAX, bytes) {
                // How much comes at once is the store's affair; that something comes is not.
                Ok(batch) => {
                    let events: Vec<Recorded> = batch.events().map(|event| event.to_recorded()).collect();
                    assert!(events.iter().zip(events.iter().skip(1)).all(|(one, other)| one.seq + 1 == other.seq));
                    assert!(events.first().is_none_or(|first| first.seq <= from.max(1)));
                    Ok((batch.is_empty(), events.into_iter().find(|event| event.seq == from.max(1))))
                }
                Err(error) => Err(error.to_string()),
            });
        }
        self.both(|store| {
            let mut seen: Vec<Recorded> = Vec::new();
            let outcome = store.visit(id, from, &mut |event| {
                seen.push(event.to_recorded());
                if seen.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            (told(outcome), seen)
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(16) as u32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn memory_and_local_store_agree(operations in prop::collection::vec(operation(), 1..60)) {
        agree(&operations);
    }
}

fn agree(operations: &[Operation]) {
    let mut pair = Pair::new();
    operations.iter().for_each(|operation| pair.apply(operation));
    (0..5).for_each(|number| pair.look(number, 0));
    pair.apply(&Operation::Reopen);
    (0..5).for_each(|number| pair.look(number, 0));
    let directory = pair.directory;
    drop(pair.other);
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, vec![]);
    // The journal alone gives the same.
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let store = open(directory.path());
    assert_eq!(store.entries().unwrap(), pair.memory.entries().unwrap());
    drop(store);
    // So does what a collection leaves of it, with the new index and without one.
    LocalStore::collect(directory.path(), false).unwrap();
    let expected = history(&pair.memory);
    assert_same(&history(&open(directory.path())), &expected, "collected");
    assert_same(&history(&open(directory.path())), &expected, "collected and opened again");
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    assert_same(&history(&LocalStore::open_reading(directory.path()).unwrap()), &expected, "read only");
}

/// The same with a store on the NATS cluster of `FOLDSPACE_NATS`; each time with a stream of its own.
#[cfg(feature = "nats")]
#[test]
fn memory_and_store_on_cluster_agree() {
    let Ok(servers) = std::env::var("FOLDSPACE_NATS") else {
        return crate::rig::skip("no NATS cluster; tests/nats/ready.sh prints the settings of one");
    };
    let mut runner = TestRunner::new(ProptestConfig {
        cases: rounds(8) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let operations = prop::collection::vec(operation(), 1..60);
    let agreed = runner.run(&operations, |operations| {
        let mut pair = Pair::new();
        let id = CommitId::from_bytes(foldspace::event::Clock::fresh_id(&foldspace::event::SystemClock::default()));
        pair.address = Some(format!("{servers}?stream=model-{id}").parse().unwrap());
        pair.directory = tempfile::tempdir().unwrap();
        pair.reopen();
        // A cluster does not know for whom a removed session is kept: its id is not used again.
        let mut removed = std::collections::BTreeSet::new();
        for operation in &operations {
            match operation {
                Operation::Remove(session) => drop(removed.insert(*session)),
                Operation::Submit { session, .. } if removed.contains(session) => continue,
                Operation::Fork { session, parent, .. } if removed.contains(session) || removed.contains(parent) => {
                    continue;
                }
                _ => {}
            }
            pair.apply(operation);
        }
        (0..5).for_each(|number| pair.look(number, 0));
        // A copy that is thrown away is made again.
        pair.directory = tempfile::tempdir().unwrap();
        pair.reopen();
        (0..5).for_each(|number| pair.look_at_events(number));
        Ok(())
    });
    agreed.unwrap();
}

#[test]
fn collection_keeps_only_the_present_life_of_a_parent() {
    let submit =
        |session| Operation::Submit { session, expected: Wanted::Any, id: None, events: 1, content: None, time: 0 };
    let fork = |session, parent| Operation::Fork { session, parent, part: 1, id: None, time: 0 };
    agree(&[submit(1), fork(2, 1), Operation::Remove(1), Operation::Remove(2), submit(2), fork(0, 2)]);
    let first_life = [submit(1), fork(2, 1), Operation::Remove(1), Operation::Remove(2)];
    agree(&[&first_life[..], &[submit(1), fork(2, 1), Operation::Remove(1)]].concat());
    agree(&[submit(2), Operation::Remove(2), submit(2), fork(1, 2), Operation::Remove(2)]);
}

#[test]
fn commit_retry_is_recognised_among_last_1024_ids() {
    let mut pair = Pair::new();
    let named = |number: u64| {
        let mut id = [1; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        let mut commit = Commit::new(session(1), Timestamp(0)).with_id(CommitId::from_bytes(id));
        (0..10).for_each(|_| commit.push_encoded("Odd", 1, b"").unwrap());
        commit
    };
    for number in 0..1024 {
        pair.both(|store| told(store.submit(named(number)).map(|pending| pending.last())));
    }
    for reopened in [false, true, true] {
        for number in [0, 1, 500, 1023] {
            let again = pair.answer(|store| told(store.submit(named(number)).and_then(|pending| pending.wait())));
            let first = number * 10 + 1;
            let expected = Committed { first, last: first + 9, repeated: true };
            assert_eq!(again, Ok(expected), "commit {number}, reopened: {reopened}");
        }
        pair.apply(&Operation::Reopen);
    }
}
