//! The reducer of the files against a plain map, and every way to a state against every other.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldspace::event::{DeleteEntry, Digest, FileMode, Node, Special, StepClock, WriteFile, WriteMode};
use foldspace::reducers::{Mounts, ToolCalls, Usage};
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::{
    Commit, EntryPath, Event, EventStore, MemoryStore, NewSession, Registry, Session, Sessions, Slice, State,
    Timestamp, VirtualFileSystem,
};
use proptest::prelude::*;

use super::Random;
use super::rounds;

/// What happens to the files; paths are raw bytes, as a hostile journal may have them.
#[derive(Debug, Clone)]
enum Change {
    Write(Vec<u8>, Node),
    Delete(Vec<u8>),
    /// The payload of a write, damaged.
    Damaged(usize),
}

#[derive(Debug, Clone, PartialEq)]
struct Plain {
    node: Node,
    version: u64,
    created: i64,
    updated: i64,
}

/// The same rules on a plain map, in the plainest way.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Vec<u8>, Plain>,
    unreadable: u64,
}

fn normal(raw: &[u8]) -> Option<Vec<u8>> {
    let segments: Vec<&[u8]> = raw.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect();
    let fine = !raw.contains(&0) && segments.iter().all(|segment| *segment != b"." && *segment != b"..");
    fine.then(|| segments.join(&b'/'))
}

impl Model {
    fn put(&mut self, path: &[u8], node: Node, time: i64) {
        let entry = self.entries.entry(path.to_vec());
        let entry = entry.or_insert(Plain { node: Node::DIRECTORY, version: 0, created: time, updated: time });
        entry.node = node;
        entry.version += 1;
        entry.updated = time;
    }

    fn apply(&mut self, change: &Change, time: i64) {
        let below = |path: &[u8]| [path, b"/"].concat();
        match change {
            Change::Write(raw, node) => {
                let Some(path) = normal(raw).filter(|path| !path.is_empty()) else {
                    self.unreadable += 1;
                    return;
                };
                for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                    if self.entries.get(&path[..at]).is_none_or(|parent| !parent.node.is_directory()) {
                        self.put(&path[..at], Node::DIRECTORY, time);
                    }
                }
                if !node.is_directory() {
                    self.entries.retain(|other, _| !other.starts_with(&below(&path)));
                }
                self.put(&path, node.clone(), time);
            }
            Change::Delete(raw) => match normal(raw) {
                None => self.unreadable += 1,
                Some(path) => self.entries.retain(|other, _| *other != path && !other.starts_with(&below(&path))),
            },
            Change::Damaged(_) => self.unreadable += 1,
        }
    }

    fn check(&self, state: &State) {
        let files = state.slice::<VirtualFileSystem>().unwrap();
        let found: BTreeMap<Vec<u8>, Plain> = files
            .iter()
            .map(|(path, entry)| {
                let (created, updated) = (entry.created_at.0, entry.updated_at.0);
                (path.as_bytes().to_vec(), Plain { node: entry.node.clone(), version: entry.version, created, updated })
            })
            .collect();
        assert_eq!(found, self.entries);
        assert_eq!(state.unreadable(), self.unreadable);
        assert!(files.iter().map(|(path, _)| path).is_sorted() && files.len() == self.entries.len());
        let directories = std::iter::once(EntryPath::root()).chain(files.iter().map(|(path, _)| path.clone()));
        for directory in directories.step_by(7) {
            let inside = |path: &&EntryPath| path.is_below(&directory);
            let all: Vec<&EntryPath> = files.iter().map(|(path, _)| path).filter(inside).collect();
            assert!(files.below(&directory).map(|(path, _)| path).eq(all.iter().copied()));
            let right_in = all.into_iter().filter(|path| path.parent().as_ref() == Some(&directory));
            assert!(files.children(&directory).map(|(path, _)| path).eq(right_in), "children of {directory}");
        }
    }
}

/// The encoding of an event whose path is put in afterwards, as it can't be by way of an [`EntryPath`].
fn with_raw_path(raw: &[u8], encode: impl Fn(&EntryPath) -> Vec<u8>) -> Vec<u8> {
    let stand_in = vec![b'Q'; raw.len()];
    let mut payload = encode(&EntryPath::from_bytes(&stand_in).unwrap());
    if !raw.is_empty() {
        let at = payload.windows(raw.len()).position(|window| window == stand_in).unwrap();
        payload[at..at + raw.len()].copy_from_slice(raw);
    }
    payload
}

fn encoded<E: Event>(event: &E) -> Vec<u8> {
    let mut payload = Vec::new();
    event.encode(&mut payload).unwrap();
    payload
}

fn push(commit: &mut Commit, change: &Change) {
    let write = |path: &EntryPath, node: Node| WriteFile { path: path.clone(), mode: WriteMode::Create, node };
    match change {
        Change::Write(raw, node) => {
            let payload = with_raw_path(raw, |path| encoded(&write(path, node.clone())));
            commit.push_encoded(WriteFile::KIND, 1, &payload).unwrap();
        }
        Change::Delete(raw) => {
            let payload = with_raw_path(raw, |path| encoded(&DeleteEntry { path: path.clone() }));
            commit.push_encoded(DeleteEntry::KIND, 1, &payload).unwrap();
        }
        Change::Damaged(cut) => {
            let whole = encoded(&write(&EntryPath::lookup("damaged").unwrap(), Node::DIRECTORY));
            commit.push_encoded(WriteFile::KIND, 1, &whole[..cut % whole.len()]).unwrap();
        }
    }
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let segment = prop_oneof![
        30 => prop::sample::select(vec!["a", "b", "c", "a.b", "a0", "a-", "\u{e4}", " "]).prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::sample::select(vec![&b""[..], b".", b"..", b"\0", b"\xff", b"...", b"Q", b"\\x41"]).prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(segment, 0..5).prop_map(|segments| segments.join(&b'/'))
}

fn change() -> impl Strategy<Value = Change> {
    let node = prop_oneof![
        4 => (0..9u8, any::<bool>(), any::<bool>()).prop_map(|(content, executable, text)| {
            Node::File { content: Digest::of(&[content]), size: u64::from(content), mode: FileMode::of(if executable { 0o4711 } else { 0o644 }), text, incomplete: text && executable }
        }),
        1 => path().prop_map(|target| Node::Symlink { target }),
        2 => Just(Node::DIRECTORY),
        1 => prop::sample::select(vec![Special::Fifo, Special::Socket, Special::Device])
            .prop_map(|special| Node::Special { special }),
    ];
    prop_oneof![
        8 => (path(), node).prop_map(|(path, node)| Change::Write(path, node)),
        3 => path().prop_map(Change::Delete),
        1 => any::<usize>().prop_map(Change::Damaged),
    ]
}

fn sessions(store: Arc<dyn EventStore>, every: u64, keep: Keep) -> Sessions {
    let clock = Arc::new(StepClock::new(Timestamp(1_000), 3));
    Sessions::new(store, Registry::standard(), clock, SnapshotPolicy { every, keep }).unwrap()
}

fn begin(sessions: &Sessions) -> Session {
    sessions.create(NewSession::named("files")).unwrap()
}

fn again(store: &Arc<dyn EventStore>, every: u64, keep: Keep) -> (Sessions, Session) {
    let sessions = sessions(Arc::clone(store), every, keep);
    let session = sessions.session(sessions.find("files").unwrap().id).unwrap();
    (sessions, session)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(16) as u32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn file_slice_equals_a_plain_map(changes in prop_oneof![
        4 => prop::collection::vec(change(), 1..80),
        1 => prop::collection::vec(change(), 700..1500),
    ]) {
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
        let first = sessions(Arc::clone(&store), 0, Keep::All);
        let session = begin(&first);
        let mut model = Model::default();
        let (mut time, mut left) = (0, &changes[..]);
        while !left.is_empty() {
            let mut commit = session.commit();
            let (now, later) = left.split_at(left.len().min(1 + left.len() % 5));
            now.iter().for_each(|change| push(&mut commit, change));
            session.record(commit).unwrap();
            let recorded = session.event(session.head().unwrap()).unwrap().time.0;
            assert!(recorded >= time);
            time = recorded;
            now.iter().for_each(|change| model.apply(change, time));
            left = later;
            if changes.len() < 100 {
                model.check(&session.state().unwrap());
            }
        }
        model.check(&session.state().unwrap());
        // All at once, which takes another way through the code.
        let (_sessions, fresh) = again(&store, 0, Keep::All);
        model.check(&fresh.state().unwrap());
        prop_assert_eq!(fresh.state().unwrap().digests().unwrap(), session.state().unwrap().digests().unwrap());
        round_trip(&fresh.state().unwrap());
    }
}

/// Slices come back from their encoding, and the encoding of what came back is the same.
fn round_trip(state: &State) {
    fn check<S: Slice>(state: &State) {
        let blocks: Vec<bytes::Bytes> =
            state.slice::<S>().unwrap().encode().unwrap().into_iter().map(bytes::Bytes::from).collect();
        let back = S::decode(&blocks).unwrap();
        assert_eq!(back.encode().unwrap(), blocks, "{}", S::NAME);
        assert_eq!(serde_json::to_value(&back).unwrap(), state.slice_json(S::NAME).unwrap().unwrap());
        let mut random = Random(blocks.len() as u64);
        for _ in 0..20 {
            let mut damaged: Vec<Vec<u8>> = blocks.iter().map(|block| block.to_vec()).collect();
            let many = damaged.len() as u64;
            if let Some(block) = damaged.get_mut(random.below(many) as usize).filter(|block| !block.is_empty()) {
                let at = random.below(block.len() as u64) as usize;
                if random.below(2) == 0 { block.truncate(at) } else { block[at] ^= 1 << random.below(8) }
            }
            // Anything but a panic.
            drop(S::decode(&damaged.into_iter().map(bytes::Bytes::from).collect::<Vec<_>>()));
        }
    }
    check::<VirtualFileSystem>(state);
    check::<ToolCalls>(state);
    check::<Usage>(state);
    check::<Mounts>(state);
}
