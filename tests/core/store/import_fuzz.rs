//! Random files for `import`: it never panics, and imports whole or not at all.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use foldspace::event::{CallFinished, CallStarted, CallStatus, Digest, Node, SystemClock, WriteFile, WriteMode};
use foldspace::history::import_session;
use foldspace::session::SnapshotPolicy;
use foldspace::{EntryPath, Event, MemoryStore, Registry, Sessions};
use proptest::prelude::*;
use serde_json::json;

use super::unpacked;
use crate::rig::portable::{PortableFile, packed};

/// Mutation of a file.
#[derive(Debug, Clone)]
enum Mutation {
    Set(usize, u8),
    Number(usize, u64),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy(usize, usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0..4096usize;
    let numbers = prop_oneof![
        Just(0),
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
        Just(1 << 63),
        Just(u64::MAX),
        Just(1 << 30),
        0..64u64
    ];
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at.clone(), numbers).prop_map(|(at, number)| Mutation::Number(at, number)),
        (at.clone(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at.clone(), 1..200usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (at.clone(), at, 1..200usize).prop_map(|(from, to, count)| Mutation::Copy(from, to, count)),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let within = |at: usize| at % bytes.len().max(1);
        match self {
            Self::Set(at, byte) => {
                let at = within(*at);
                bytes.get_mut(at).into_iter().for_each(|old| *old = *byte);
            }
            Self::Number(at, number) => {
                let at = within(*at);
                bytes.iter_mut().skip(at).zip(number.to_le_bytes()).for_each(|(old, byte)| *old = byte);
            }
            Self::Insert(at, new) => {
                let at = within(*at);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = within(*at);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Self::Copy(from, to, count) => {
                let (from, to) = (within(*from), within(*to));
                let part: Vec<u8> = bytes.iter().skip(from).take(*count).copied().collect();
                bytes.splice(to..to, part);
            }
        }
    }
}

fn encoded<E: Event>(event: &E) -> Vec<u8> {
    let mut bytes = Vec::new();
    event.encode(&mut bytes).unwrap();
    bytes
}

/// A file with something of everything, own events with and without their references among it.
fn valid() -> Vec<u8> {
    let text = "long ".repeat(80);
    let params = json!({ "content": { "$content": Digest::of(text.as_bytes()), "bytes": 400 } });
    let node = Node::file(text.as_bytes(), false);
    let path = EntryPath::lookup("a/b.txt").unwrap();
    let declared = [&b"mine"[..], &Digest::of(b"own").as_bytes()[..], &1u32.to_le_bytes()[..]].concat();
    let finished =
        CallFinished { status: CallStatus::Ok, result: json!(1), message: String::new(), micros: 1, reason: None };
    PortableFile::named("valid")
        .content(text.as_bytes())
        .event(CallStarted::KIND, 1, &encoded(&CallStarted { tool: "write_file".to_owned(), params }))
        .together(&[
            (WriteFile::KIND, 1, &encoded(&WriteFile { path, mode: WriteMode::Create, node })),
            (CallFinished::KIND, 1, &encoded(&finished)),
        ])
        .content(b"own")
        .event("own/Declared", 1 | 1 << 15, &declared)
        .event("own/Silent", 1, Digest::of(b"own").as_bytes())
        .whole()
}

/// Imports a file into a fresh store; what is taken can be looked at, and exported again.
fn import(file: &[u8]) -> bool {
    let store = Arc::new(MemoryStore::default());
    let clock = Arc::new(SystemClock::default());
    let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
    let imported = import_session(&sessions, &mut Cursor::new(file), None);
    let entries = sessions.list().unwrap();
    let Ok(summary) = imported else {
        assert!(entries.is_empty(), "nothing is half imported");
        return false;
    };
    assert_eq!((entries.len(), entries[0].head), (1, summary.events));
    let session = sessions.session(entries[0].id).unwrap();
    session.state().unwrap();
    let look = |event: &foldspace::event::EventRef<'_>| {
        session.event_json(event);
        ControlFlow::Continue(())
    };
    sessions.store().visit(session.id(), 1, &mut { look }).unwrap();
    sessions.verify(None).unwrap();
    let mut again = Vec::new();
    foldspace::history::export_session(&sessions, session.id(), &mut again).unwrap();
    true
}

#[test]
fn import_fuzz_seed_file_is_accepted() {
    assert!(import(&valid()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn import_fuzz_mutated_file_with_right_checksum_does_no_harm(
        mutations in prop::collection::vec(mutation(), 1..4),
        mends_counts in any::<bool>(),
    ) {
        let mut bytes = unpacked(&valid());
        let end = bytes.split_off(bytes.len() - 49);
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes.extend_from_slice(if mends_counts { &end[..17] } else { &[] });
        let checksum = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(&checksum);
        import(&packed(&bytes));
    }

    #[test]
    fn import_fuzz_mutated_file_is_refused_or_unchanged(mutations in prop::collection::vec(mutation(), 1..4)) {
        let mut bytes = unpacked(&valid());
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        let same = bytes.starts_with(&unpacked(&valid()));
        prop_assert!(!import(&packed(&bytes)) || same);
        let mut file = valid();
        mutations.iter().for_each(|mutation| mutation.apply(&mut file));
        import(&file);
    }

    #[test]
    fn import_fuzz_arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(!import(&bytes));
        prop_assert!(!import(&packed(&bytes)));
        let headed = PortableFile::named("s").bytes;
        prop_assert!(!import(&packed(&[headed, bytes].concat())));
    }
}
