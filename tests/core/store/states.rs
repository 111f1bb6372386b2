//! Every way to a state gives the same one: from zero, from snapshots, live, on one thread or two.

use std::sync::Arc;

use foldspace::event::{
    CallFinished, CallStarted, CallStatus, DeleteEntry, Digest, FileMode, MountHydrated, MountPreview, Node, StepClock,
    WriteFile, WriteMode,
};
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::store::CallLink;
use foldspace::{
    EntryPath, EventStore, LocalStore, MemoryStore, NewSession, Registry, Session, Sessions, State, Timestamp,
};

use super::{Random, open};

fn sessions(store: &Arc<dyn EventStore>, every: u64, keep: Keep) -> Sessions {
    let clock = Arc::new(StepClock::new(Timestamp(1_000), 7));
    Sessions::new(Arc::clone(store), Registry::standard(), clock, SnapshotPolicy { every, keep }).unwrap()
}

fn found(sessions: &Sessions) -> Session {
    sessions.session(sessions.list().unwrap()[0].id).unwrap()
}

/// Records one commit of some kind.
fn act(session: &Session, random: &mut Random, open_calls: &mut Vec<u64>) {
    let path = |random: &mut Random| {
        let depth = 1 + random.below(3);
        let names: Vec<String> = (0..depth).map(|_| format!("n{}", random.below(9))).collect();
        EntryPath::for_creation(&names.join("/")).unwrap()
    };
    let mut commit = session.commit();
    match random.below(10) {
        0..4 => {
            for _ in 0..=random.below(3) {
                let node = match random.below(6) {
                    0 => Node::DIRECTORY,
                    1 => Node::Symlink { target: random.bytes(9) },
                    size => Node::File {
                        content: Digest::of(&random.bytes(4)),
                        size,
                        mode: FileMode::FILE,
                        text: true,
                        incomplete: false,
                    },
                };
                commit.push(&WriteFile { path: path(random), mode: WriteMode::Append, node }).unwrap();
            }
        }
        4 => commit.push(&DeleteEntry { path: path(random) }).unwrap(),
        5 | 6 => {
            commit = commit.of_call(CallLink::Opens).as_agent(&Arc::from(["", "one", "two"][random.below(3) as usize]));
            let tool = format!("tool{}", random.below(40));
            commit.push(&CallStarted { tool, params: serde_json::json!({ "n": random.below(5) }) }).unwrap();
            let pending = session.submit(commit).unwrap();
            open_calls.push(pending.first());
            return;
        }
        7 | 8 => {
            let Some(at) = open_calls.len().checked_sub(1) else { return };
            let call = open_calls.swap_remove(random.below(at as u64 + 1) as usize);
            let status = [CallStatus::Ok, CallStatus::Error, CallStatus::Interrupted][random.below(3) as usize];
            let message = format!("m{}", random.below(50));
            let finished =
                CallFinished { status, result: serde_json::Value::Null, message, micros: random.next(), reason: None };
            commit = commit.of_call(CallLink::Of(call));
            commit.push(&finished).unwrap();
        }
        _ => match random.below(3) {
            0 => commit.push_encoded("Unknown", 9, b"?").unwrap(),
            1 => commit.push_encoded("WriteFile", 2, b"newer").unwrap(),
            _ => commit.push(&mount(random.below(99))).unwrap(),
        },
    }
    drop(session.submit(commit).unwrap());
}

fn mount(files: u64) -> MountHydrated {
    MountHydrated {
        host_path: "/srv".to_owned(),
        mount_path: EntryPath::root(),
        include_glob: vec!["*".to_owned()],
        exclude_glob: Vec::new(),
        max_bytes: None,
        follow_symlinks: false,
        files,
        bytes: 1,
        preview: MountPreview::default(),
    }
}

fn told(state: &State) -> (u64, Timestamp, u64, Vec<(&'static str, Digest)>) {
    (state.seq(), state.time(), state.unreadable(), state.digests().unwrap())
}

#[test]
fn state_at_a_seq_is_the_same_by_every_way() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn EventStore> = Arc::new(open(directory.path()));
    let writing = sessions(&store, 7, Keep::All);
    let session = writing.create(NewSession::named("s")).unwrap();
    let (mut random, mut open_calls, mut live) = (Random(50), Vec::new(), Vec::new());
    while session.head().unwrap() < 400 {
        act(&session, &mut random, &mut open_calls);
        store.sync().unwrap();
        live.push(told(&session.state().unwrap()));
    }
    let head = session.head().unwrap();
    writing.close();

    let plain = sessions(&store, 0, Keep::All);
    let mut from_zero = Vec::new();
    for seq in 0..=head {
        let session = found(&plain);
        session.forget_states();
        from_zero.push(told(&session.state_at(seq).unwrap()));
    }
    assert!(live.iter().all(|state| from_zero[state.0 as usize] == *state));
    let snapshots = store.snapshots(session.id()).unwrap();
    assert!(snapshots.len() > 20, "{snapshots:?}");
    for (every, keep) in [(7, Keep::All), (7, Keep::Last(2)), (1, Keep::All)] {
        let other = sessions(&store, every, keep);
        let session = found(&other);
        for seq in (0..=head).rev().chain(0..=head).chain((0..300).map(|_| random.below(head + 1)).collect::<Vec<_>>())
        {
            assert_eq!(told(&session.state_at(seq).unwrap()), from_zero[seq as usize], "{every} {keep:?}");
        }
        session.snapshot().unwrap();
        assert_eq!(told(&session.state().unwrap()), from_zero[head as usize]);
        assert!(session.state_at(head + 1).is_err());
        drop(session);
        other.close();
    }
    let mut differences = plain.verify(None).unwrap().differences;
    // The files of this test have no contents.
    differences.retain(|difference| difference.slice.is_some());
    assert_eq!(differences, []);
}

/// Long enough for hash maps, for two threads, and for calls to be forgotten.
#[test]
fn fold_of_long_history_is_the_same_in_pieces() {
    let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
    let writing = sessions(&store, 0, Keep::All);
    let session = writing.create(NewSession::named("s")).unwrap();
    let (mut random, mut open_calls) = (Random(51), Vec::new());
    while session.head().unwrap() < 24_000 {
        act(&session, &mut random, &mut open_calls);
    }
    let head = session.head().unwrap();
    let whole = told(&session.state().unwrap());
    for step in [300, 511, 5_000, 21_000] {
        session.forget_states();
        let mut seq = 0;
        while seq < head {
            seq = (seq + step).min(head);
            session.state_at(seq).unwrap();
        }
        assert_eq!(told(&session.state_at(head).unwrap()), whole, "in steps of {step}");
    }
}

/// Commits that are longer than a piece of a fold, and than the distance of snapshots.
#[test]
fn history_with_long_commits_folds_the_same_and_has_snapshots_at_their_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn EventStore> = Arc::new(open(directory.path()));
    let writing = sessions(&store, 1_000, Keep::All);
    let session = writing.create(NewSession::named("s")).unwrap();
    let (mut random, mut open_calls, mut long) = (Random(52), Vec::new(), Vec::new());
    for events in [9_000, 1, 12_345, 700, 5_000] {
        (0..30).for_each(|_| act(&session, &mut random, &mut open_calls));
        let mut commit = session.commit();
        for number in 0..events {
            let path = EntryPath::for_creation(&format!("long/{}/{number}", number % 50)).unwrap();
            commit.push(&WriteFile { path, mode: WriteMode::Append, node: Node::DIRECTORY }).unwrap();
        }
        long.push(session.record(commit).unwrap());
    }
    let (head, live) = (session.head().unwrap(), told(&session.state().unwrap()));
    writing.close();
    let snapshots = store.snapshots(session.id()).unwrap();
    assert!(long.iter().filter(|commit| snapshots.contains(&commit.last)).count() >= 3, "{snapshots:?} {long:?}");
    let is_within = |seq: &u64| long.iter().any(|commit| (commit.first..commit.last).contains(seq));
    assert!(!snapshots.iter().any(is_within), "{snapshots:?} {long:?}");
    snapshots.iter().for_each(|seq| store.drop_snapshot(session.id(), *seq).unwrap());
    let plain = sessions(&store, 0, Keep::All);
    for step in [3_000, 4_500, head] {
        let session = found(&plain);
        session.forget_states();
        (1..).map(|count| head.min(count * step)).take_while(|seq| *seq < head).for_each(|seq| {
            session.state_at(seq).unwrap();
        });
        assert_eq!(told(&session.state_at(head).unwrap()), live, "in steps of {step}");
    }
}

/// A snapshot that was tampered with, or is of another program, is not used.
#[test]
fn snapshot_that_is_odd_is_ignored() {
    let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
    let writing = sessions(&store, 0, Keep::All);
    let session = writing.create(NewSession::named("s")).unwrap();
    let (mut random, mut open_calls) = (Random(52), Vec::new());
    while session.head().unwrap() < 700 {
        act(&session, &mut random, &mut open_calls);
    }
    let whole = told(&session.state().unwrap());
    session.snapshot().unwrap();
    let good = store.snapshot(session.id(), u64::MAX).unwrap().unwrap();
    for round in 0..40 {
        let mut odd = good.clone();
        let at = round % odd.slices.len();
        match round / odd.slices.len() % 5 {
            0 => odd.slices[at].version += 1,
            1 => odd.slices[at].name = "Other".into(),
            2 => drop(odd.slices.remove(at)),
            3 => odd.slices[at].blocks = vec![bytes::Bytes::from_static(b"?")],
            _ => odd.slices.swap(0, at),
        }
        store.put_snapshot(&odd).unwrap();
        let other = sessions(&store, 0, Keep::All);
        assert_eq!(told(&found(&other).state().unwrap()), whole, "round {round}");
    }
}

/// A store that was opened on a snapshot of a longer history than the journal has.
#[test]
fn snapshot_of_lost_events_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        foldspace::store::LocalStoreOptions { durability: foldspace::store::Durability::Buffered, ..super::small() };
    let store: Arc<dyn EventStore> = Arc::new(LocalStore::open(directory.path(), options).unwrap());
    let writing = sessions(&store, 0, Keep::All);
    let session = writing.create(NewSession::named("s")).unwrap();
    let (mut random, mut open_calls) = (Random(53), Vec::new());
    for _ in 0..50 {
        act(&session, &mut random, &mut open_calls);
        session.snapshot().unwrap();
        let written = super::journal::segments(directory.path())
            .iter()
            .flat_map(|s| super::journal::frames_of(s))
            .any(|frame| frame.kind == super::journal::COMMIT && frame.commit().2 >= session.head().unwrap());
        assert!(written, "a snapshot must not come to the disk before its events");
    }
}
