//! The hash chains of histories, compared with a reader written from docs/FORMAT.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldspace::event::{Digest, Isolation, SystemClock};
use foldspace::history::{
    HistoryChain, chain_at, chain_before_export, chain_of_export, export_session, import_session,
};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{LocalStoreOptions, RemoteStore, StoreServer};
use foldspace::{Commit, EventStore, ForkOptions, LocalStore, NewSession, Registry, Seq, SessionId, Sessions};

use super::journal::{COMMIT, FORK, frames_of, segments};
use super::{open, small};
use crate::rig::{Random, eventually};

fn sessions(store: Arc<dyn EventStore>) -> Sessions {
    Sessions::new(store, Registry::standard(), Arc::new(SystemClock::default()), SnapshotPolicy::default()).unwrap()
}

/// Chains of all sessions at the ends of their commits, computed from the bytes of the segments.
fn by_format(directory: &std::path::Path) -> BTreeMap<SessionId, BTreeMap<Seq, Digest>> {
    let start = Digest::of(b"foldspace chain of commits v1\n");
    let mut chains = BTreeMap::<SessionId, BTreeMap<Seq, Digest>>::new();
    for path in segments(directory) {
        for frame in frames_of(&path).into_iter().filter(|frame| [COMMIT, FORK].contains(&frame.kind)) {
            let (session, first, last) = frame.commit();
            let mut own = chains.get(&session).cloned().unwrap_or_default();
            let mut commit = &frame.payload[..];
            if frame.kind == FORK {
                let (parent, seq) = frame.parent();
                own = chains[&parent].range(..=seq).map(|(seq, value)| (*seq, *value)).collect();
                commit = &frame.payload[24..];
            }
            let before = own.get(&(first - 1)).copied().unwrap_or(start);
            let value = Digest::of(&[before.as_bytes(), &commit[16..32], &commit[48..]].concat());
            own.insert(last, value);
            chains.insert(session, own);
        }
    }
    chains
}

fn assert_chains(store: &dyn EventStore, expected: &BTreeMap<SessionId, BTreeMap<Seq, Digest>>, context: &str) {
    for (session, chain) in expected {
        let positions: Vec<Seq> = chain.keys().copied().collect();
        let found = chain_at(store, *session, &positions).unwrap();
        let values: Vec<_> = chain.values().map(|value| Some(*value)).collect();
        assert_eq!(found, values, "{context}: {}", session.short());
    }
}

#[test]
fn chain_is_that_of_the_format_in_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let all = sessions(Arc::new(open(directory.path())));
    let mut random = Random(31);
    let root = all.create(NewSession::named("root")).unwrap();
    let agents: [Arc<str>; 2] = ["".into(), "coder".into()];
    let mut grow = |session: &foldspace::Session, commits: u64| {
        for _ in 0..commits {
            let mut commit: Commit = session.commit().as_agent(&agents[random.below(2) as usize]);
            for _ in 0..=random.below(4) {
                let length = random.below(20_000) as usize;
                commit.push_encoded("Note", 1, &random.bytes(length)).unwrap();
            }
            session.record(commit).unwrap();
        }
    };
    grow(&root, 40);
    let fork = all.child_of(&root, ForkOptions::new(Isolation::Fork)).unwrap();
    grow(&root, 40);
    grow(&fork, 40);
    let ids = (root.id(), fork.id());
    drop((root, fork));
    all.close();
    let (root, fork) = ids;

    let expected = by_format(directory.path());
    assert!(expected[&fork].len() > 80 && expected[&root].len() > 80, "{expected:?}");
    let shared = expected[&fork].iter().filter(|(seq, value)| expected[&root].get(seq) == Some(value)).count();
    assert!((41..=42).contains(&shared), "a fork continues its parent's chain: {shared}");
    assert_chains(&open(directory.path()), &expected, "unpacked");

    let store = LocalStore::open(directory.path(), LocalStoreOptions { pack: true, ..small() }).unwrap();
    let packed = || segments(directory.path()).iter().any(|path| path.extension().unwrap() == "pak");
    eventually("a segment is packed", packed);
    assert_chains(&store, &expected, "packed");
    let all = sessions(Arc::new(store));
    let server = StoreServer::start(&all, directory.path()).unwrap();
    assert_chains(&RemoteStore::connect(directory.path()).unwrap().unwrap(), &expected, "through the owner");
    drop(server);

    for id in [root, fork] {
        let mut file = Vec::new();
        export_session(&all, id, &mut file).unwrap();
        let start = chain_before_export(all.store().as_ref(), id).unwrap();
        assert_eq!(start == HistoryChain::start(), id == root);
        for (seq, value) in expected[&id].range(start.seq + 1..) {
            let found = chain_of_export(&mut &file[..], start, *seq, *seq).unwrap();
            assert_eq!((found.session, found.value), (id, Some(*value)), "exported, at {seq}");
            assert_eq!(found.event.unwrap().seq, *seq);
        }
        if id == root {
            let other = tempfile::tempdir().unwrap();
            let imported = sessions(Arc::new(open(other.path())));
            import_session(&imported, &mut std::io::Cursor::new(file), None).unwrap();
            let expected = BTreeMap::from([(root, expected[&root].clone())]);
            assert_chains(imported.store().as_ref(), &expected, "imported");
        }
    }
}

#[test]
fn chain_inside_a_commit_has_no_value() {
    let directory = tempfile::tempdir().unwrap();
    let all = sessions(Arc::new(open(directory.path())));
    let session = all.create(NewSession::named("one")).unwrap();
    let mut commit = session.commit();
    (0..3).for_each(|_| commit.push_encoded("Note", 1, b"x").unwrap());
    session.record(commit).unwrap();
    let found = chain_at(all.store().as_ref(), session.id(), &[0, 1, 2, 4, 9]).unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true, false]);
}
