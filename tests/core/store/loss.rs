//! Acknowledged events that are gone from the journal's end: told, refused, accepted; and no crash looks like it.

use std::path::Path;
use std::sync::Arc;

use foldspace::event::EventsLost;
use foldspace::store::Loss;
use foldspace::{Event, EventStore, LocalStore, StoreError};

use super::journal::{recorded, segments};
use super::{
    History, Random, assert_same, copied, copy, fresh, history, note, open, record, session, small, snapshot_of_disk,
};

fn refused(directory: &Path, context: &str) -> Arc<Loss> {
    match LocalStore::open(directory, small()) {
        Err(StoreError::Lost(loss)) => loss,
        other => panic!("{context}: {:?}", other.map(|store| store.notes().to_vec())),
    }
}

/// A journal of which only `left` is there of `whole`, as far as something proves it.
pub(super) fn lost(directory: &Path, left: &History, whole: &History, context: &str) {
    let journal = directory.join("journal");
    let before = snapshot_of_disk(&journal);
    let loss = refused(directory, context);
    let report = LocalStore::fsck(directory, false).unwrap();
    assert_eq!(report.loss.as_ref(), Some(&*loss), "{context}");
    assert!(LocalStore::fsck(directory, true).unwrap().repaired.is_empty(), "{context}");
    assert_eq!(*refused(directory, context), *loss, "{context}: the second time");
    assert!(snapshot_of_disk(&journal) == before, "{context}: something was changed");
    assert!(!directory.join("index.bad-1").exists(), "{context}: the proof is still there");
    let told: Vec<_> = loss.sessions.iter().map(|lost| (lost.session, lost.last)).collect();
    let ends = |history: &History, id| history.get(id).map_or(0, |events| events.len() as u64);
    let missing = whole.iter().filter(|(id, events)| ends(left, id) < events.len() as u64);
    assert_eq!(told, missing.map(|(id, events)| (*id, events.len() as u64)).collect::<Vec<_>>(), "{context}");
    for lost in loss.sessions.iter().filter(|lost| left.contains_key(&lost.session)) {
        assert_eq!(lost.first, ends(left, &lost.session) + 1, "{context}");
        let session = Some(lost.session);
        assert!(report.problems.iter().any(|problem| problem.session == session), "{context}: {:?}", report.problems);
    }
    assert_same(&history(&LocalStore::open_reading(directory).unwrap()), left, context);
    accepted(directory, left, whole, &loss, context);
}

fn accepted(directory: &Path, left: &History, whole: &History, loss: &Loss, context: &str) {
    LocalStore::accept_loss(directory).unwrap();
    assert_eq!(LocalStore::fsck(directory, false).unwrap().problems, [], "{context}");
    let store = open(directory);
    for (id, events) in history(&store) {
        let lost = loss.sessions.iter().find(|lost| lost.session == id);
        let said = events.iter().find(|event| event.event.kind == EventsLost::KIND.into());
        let Some(lost) = lost.filter(|lost| left.contains_key(&id) || lost.first < lost.last) else {
            assert_eq!(said, None, "{context}: {id}");
            continue;
        };
        let said = said.unwrap_or_else(|| panic!("{context}: {id} does not tell"));
        let event = EventsLost::decode(said.event.version, &said.event.bytes).unwrap();
        assert_eq!((event.first, event.last), (said.seq, lost.last), "{context}");
        assert_eq!(said.seq, events.len() as u64, "{context}: it is the last");
        let kept = &events[..events.len() - 1];
        assert_eq!(kept, &whole[&id][..kept.len()], "{context}: {id}");
        record(&store, note(id, b"life goes on"));
    }
    for id in left.keys() {
        assert!(store.entry(*id).unwrap().is_some(), "{context}: {id}");
    }
    let after = history(&store);
    drop(store);
    assert_same(&history(&open(directory)), &after, context);
}

#[test]
fn last_segment_missing_or_empty_is_a_loss() {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 3, 31);
    drop(store);
    let paths = segments(directory.path());
    let last = paths.len() - 1;
    let frames = |path: &std::path::PathBuf| super::journal::frames_of(path);
    let left: Vec<_> = paths[..last].iter().flat_map(frames).collect();
    let all: Vec<_> = paths.iter().flat_map(frames).collect();
    let (left, whole) = (recording.of(&left), recording.of(&all));
    for (bytes, with_index) in [(None, true), (None, false), (Some(0), true), (Some(0), false), (Some(64), true)] {
        let copy = copied(directory.path(), with_index);
        let target = segments(copy.path()).pop().unwrap();
        match bytes {
            None => std::fs::remove_file(target).unwrap(),
            Some(length) => std::fs::OpenOptions::new().write(true).open(target).unwrap().set_len(length).unwrap(),
        }
        let context = format!("{bytes:?} bytes, with its index: {with_index}");
        lost(copy.path(), &left, if with_index { &whole } else { &left }, &context);
    }
}

#[test]
fn journal_without_segments_is_a_loss_where_the_index_knows_more() {
    for length in [None, Some(0), Some(40)] {
        let (directory, store) = fresh();
        record(&store, note(session(1), b"one"));
        let whole = history(&store);
        drop(store);
        let only = segments(directory.path()).pop().unwrap();
        match length {
            None => std::fs::remove_file(only).unwrap(),
            Some(length) => std::fs::OpenOptions::new().write(true).open(only).unwrap().set_len(length).unwrap(),
        }
        lost(directory.path(), &History::new(), &whole, &format!("{length:?} bytes"));
    }
}

#[test]
fn journal_older_than_its_index_is_a_loss() {
    let (directory, store) = fresh();
    record(&store, note(session(1), b"one"));
    let left = history(&store);
    drop(store);
    let early = copied(directory.path(), false);
    let store = open(directory.path());
    for number in 0..50 {
        record(&store, note(session(1 + number % 2), b"more"));
    }
    let whole = history(&store);
    drop(store);
    std::fs::remove_dir_all(directory.path().join("journal")).unwrap();
    copy(&early.path().join("journal"), &directory.path().join("journal"));
    lost(directory.path(), &left, &whole, "an old copy");
}

#[test]
fn append_after_a_loss_is_refused() {
    let (directory, store) = fresh();
    record(&store, note(session(1), b"one"));
    drop(store);
    std::fs::write(segments(directory.path()).pop().unwrap(), b"").unwrap();
    for _ in 0..2 {
        let opened = LocalStore::open(directory.path(), small());
        assert!(matches!(opened, Err(StoreError::Lost(_))), "{:?}", opened.err());
        assert!(matches!(LocalStore::collect(directory.path(), false), Err(StoreError::Lost(_))));
    }
}

/// A crash between the creation of a segment and the seal of the one before leaves the new one empty.
#[test]
fn segment_created_before_a_crash_is_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = recorded(directory.path(), 2, 32);
    let whole = history(&store);
    drop(store);
    let head = std::fs::read(&segments(directory.path())[0]).unwrap()[..64].to_vec();
    let number = u32::try_from(segments(directory.path()).len() + 1).unwrap();
    let next = |at: &Path| at.join(format!("journal/{number:08}.seg"));
    let mut head_of_next = head;
    head_of_next[12..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&head_of_next[..60]);
    head_of_next[60..].copy_from_slice(&crc.to_le_bytes());
    for (length, with_index) in [(0, true), (40, false), (64, true), (64, false), (4096, true)] {
        let copy = copied(directory.path(), with_index);
        let mut bytes = head_of_next.clone();
        bytes.resize(length, 0);
        std::fs::write(next(copy.path()), bytes).unwrap();
        let context = format!("{length} bytes, with its index: {with_index}");
        assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, [], "{context}");
        let store = open(copy.path());
        assert_same(&history(&store), &whole, &context);
        record(&store, note(session(1), b"life goes on"));
        drop(store);
        assert!(!next(copy.path()).exists(), "{context}");
        assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, [], "{context}");
    }
}

/// The disk refuses the next segment: what was acknowledged is there, and nothing says that more was.
#[test]
fn segment_that_cannot_be_created_is_no_loss() {
    let (directory, store) = fresh();
    let mut random = Random(33);
    let mut acknowledged = 0;
    std::fs::create_dir(directory.path().join("journal/00000002.seg")).unwrap();
    let refused = loop {
        match store.submit(note(session(1), &random.bytes(100_000))).and_then(|pending| pending.wait()) {
            Ok(committed) => acknowledged = committed.last,
            Err(error) => break error,
        }
        assert!(acknowledged < 100, "there is no second segment");
    };
    assert!(matches!(refused, StoreError::Io { .. } | StoreError::Poisoned(_)), "{refused:?}");
    drop(store);
    std::fs::remove_dir(directory.path().join("journal/00000002.seg")).unwrap();
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let store = open(directory.path());
    assert_eq!(history(&store)[&session(1)].len() as u64, acknowledged);
    for _ in 0..20 {
        record(&store, note(session(1), &random.bytes(100_000)));
    }
    assert_eq!(segments(directory.path()).len(), 3);
    drop(store);
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, []);
}
