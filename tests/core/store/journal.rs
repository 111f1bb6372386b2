//! A second reader of the journal's format, written from docs/FORMAT.md alone, and a journal to read.

use std::path::{Path, PathBuf};

use foldspace::event::Digest;
use foldspace::store::{Content, Expected, ForkPoint};
use foldspace::{Commit, EventStore, LocalStore, SessionId};

use super::{History, Random, assert_same, history, note, notes, open, record, session};

pub(crate) const COMMIT: u8 = 1;
pub(crate) const CONTENT: u8 = 2;
pub(crate) const LIST: u8 = 3;
pub(crate) const REMOVAL: u8 = 4;
pub(crate) const CLOSE: u8 = 5;
pub(crate) const SEAL: u8 = 6;
pub(crate) const FORK: u8 = 7;

/// A frame as it lies in a segment.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) at: usize,
    /// Where its payload ends.
    pub(crate) end: usize,
    /// Where the next one begins.
    pub(crate) next: usize,
    pub(crate) kind: u8,
    pub(crate) group: u64,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The session of a commit, with the positions of its first and last events.
    pub(crate) fn commit(&self) -> (SessionId, u64, u64) {
        let payload = match self.kind {
            FORK => &self.payload[24..],
            _ => &self.payload[..],
        };
        assert!([COMMIT, FORK].contains(&self.kind));
        let word = |at: usize, length: usize| {
            payload[at..at + length].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let first = word(16, 8);
        (SessionId::from_bytes(payload[..16].try_into().unwrap()), first, first + word(56, 4) - 1)
    }

    /// The parent of a fork, and the last position of it that the child has.
    pub(crate) fn parent(&self) -> (SessionId, u64) {
        assert_eq!(self.kind, FORK);
        let seq = u64::from_le_bytes(self.payload[16..24].try_into().unwrap());
        (SessionId::from_bytes(self.payload[..16].try_into().unwrap()), seq)
    }
}

pub(crate) fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("journal")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The whole frames of a segment's bytes, up to the first that is not whole.
pub(crate) fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut at = 64;
    while let Some(head) = bytes.get(at..at + 24) {
        let word = |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().unwrap());
        let end = at + 24 + word(0) as usize;
        let whole = word(20) == crc32c::crc32c(&head[..20]);
        let Some(payload) = bytes.get(at + 24..end).filter(|payload| whole && crc32c::crc32c(payload) == word(16))
        else {
            break;
        };
        let group = u64::from(word(8)) | u64::from(word(12)) << 32;
        let next = end.next_multiple_of(8);
        frames.push(Frame { at, end, next, kind: head[4], group, payload: payload.to_vec() });
        at = next;
    }
    frames
}

pub(crate) fn frames_of(path: &Path) -> Vec<Frame> {
    frames(&std::fs::read(path).unwrap())
}

/// What was recorded in a journal.
pub(crate) struct Recording {
    /// Every event that ever was, those of a removed session too.
    pub(crate) originals: History,
    pub(crate) contents: Vec<Digest>,
}

impl Recording {
    /// What must be there when only these frames are.
    pub(crate) fn of(&self, frames: &[Frame]) -> History {
        let mut history = History::new();
        // A removed session's events stay for its children.
        let mut removed = History::new();
        for frame in frames {
            match frame.kind {
                FORK => {
                    let (session, first, last) = frame.commit();
                    let (parent, seq) = frame.parent();
                    assert_eq!(first, seq + 1);
                    let past = history.get(&parent).or_else(|| removed.get(&parent));
                    if past.is_some_and(|past| past.len() as u64 >= seq) {
                        history.insert(session, self.originals[&session][..last as usize].to_vec());
                    }
                }
                COMMIT => {
                    let (session, first, last) = frame.commit();
                    let events = history.entry(session).or_default();
                    if events.len() as u64 + 1 == first {
                        events.extend_from_slice(&self.originals[&session][first as usize - 1..last as usize]);
                    }
                }
                REMOVAL => {
                    let session = SessionId::from_bytes(frame.payload[..].try_into().unwrap());
                    removed.extend(history.remove(&session).map(|events| (session, events)));
                }
                _ => {}
            }
        }
        history.retain(|_, events| !events.is_empty());
        history
    }
}

/// Records a journal of several segments: four sessions, contents small and large, commits of several
/// events, groups of several commits, a session that is removed, children of three, that one among them.
pub(crate) fn recorded(directory: &Path, segments_wanted: usize, seed: u64) -> (LocalStore, Recording) {
    let store = open(directory);
    let mut random = Random(seed);
    let mut digests = Vec::new();
    record(&store, note(session(99), b"to be removed"));
    while segments(directory).len() < segments_wanted || digests.len() < 20 {
        round(&store, &mut random, &mut digests, 60_000);
    }
    record(&store, note(session(99), b"to be removed too"));
    let removed = history(&store).remove(&session(99)).unwrap();
    record(&store, fork(50, 99, 1));
    record(&store, fork(51, 3, store.head(session(3)).unwrap() / 2));
    store.remove(session(99)).unwrap();
    record(&store, fork(52, 50, 2));
    for part in 0..3 {
        round(&store, &mut random, &mut digests, 700);
        record(&store, notes(session(50 + part), &[b"the child's", b"own"]));
    }
    let mut originals = history(&store);
    originals.insert(session(99), removed);
    (store, Recording { originals, contents: digests })
}

/// The first commit of a child.
fn fork(child: u64, parent: u64, seq: u64) -> Commit {
    let point = ForkPoint { session: session(parent), seq };
    note(session(child), b"forked").expecting(Expected::ForkOf(point))
}

/// A group of three commits, one of which has several events and one a content.
fn round(store: &LocalStore, random: &mut Random, digests: &mut Vec<Digest>, size: u64) {
    let of = |random: &mut Random| session(random.below(4));
    let long = random.below(200) as usize;
    let many = notes(of(random), &[&random.bytes(long), b"", &random.bytes(9)]);
    let length = random.below(size) as usize;
    let content = Content::of(random.bytes(length));
    let large = Content::of(vec![random.below(250) as u8; 140_000 + length]);
    let mut keeping = note(of(random), content.digest.as_bytes());
    digests.extend([content.digest, large.digest]);
    keeping.keep(content);
    keeping.keep(large);
    let pending = [note(of(random), &random.bytes(33)), many, keeping].map(|commit| store.submit(commit).unwrap());
    for pending in pending {
        pending.wait().unwrap();
    }
}

#[test]
fn journal_bytes_are_as_format_document_says() {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 2, 1);
    let expected = history(&store);
    drop(store);
    let paths = segments(directory.path());
    let all: Vec<Frame> = paths.iter().flat_map(|path| frames_of(path)).collect();
    assert!(all.is_sorted_by_key(|frame| frame.group));
    for kind in [COMMIT, CONTENT, LIST, REMOVAL, CLOSE, SEAL, FORK] {
        assert!(all.iter().any(|frame| frame.kind == kind), "kind {kind}");
    }
    assert_eq!(all.last().unwrap().kind, CLOSE, "a clean end is marked");
    let length = std::fs::metadata(paths.last().unwrap()).unwrap().len();
    assert_eq!(length, all.last().unwrap().next as u64, "space set aside is given back");
    assert_same(&recording.of(&all), &expected, "the frames alone");
    let kept = |digest: &Digest| {
        all.iter().any(|f| [CONTENT, LIST].contains(&f.kind) && f.payload.starts_with(digest.as_bytes()))
    };
    assert!(recording.contents.iter().all(kept));
    for path in &paths[..paths.len() - 1] {
        assert_eq!(frames_of(path).last().unwrap().kind, SEAL, "a segment that is not the last is sealed");
    }
    for path in &paths {
        let head = std::fs::read(path).unwrap();
        assert_eq!((&head[..8], &head[8..12]), (&b"FOLDSEG\n"[..], &[1, 0, 0, 0][..]));
        assert_eq!(head[60..64], crc32c::crc32c(&head[..60]).to_le_bytes());
    }
}
