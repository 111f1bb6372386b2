//! The index is a cache: whatever becomes of it, everything in the journal is there.

use std::path::{Path, PathBuf};

use foldspace::event::Digest;
use foldspace::store::Snapshot;
use foldspace::{EventStore, LocalStore};

use super::journal::recorded;
use super::{
    History, Random, assert_same, copied, copy, files_below, fresh, history, note, open, record, rounds, session,
    try_history,
};

/// Bytes of a snapshot.
const SNAPSHOT: usize = 300_000;

struct IndexedFixture {
    directory: tempfile::TempDir,
    whole: History,
    contents: Vec<Digest>,
}

/// A store with everything in its index, and so many snapshots that not all of it is read on opening.
fn fixture(seed: u64) -> IndexedFixture {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 2, seed);
    let mut random = Random(seed);
    for (id, events) in history(&store) {
        for part in 1..4 {
            let snapshot = snapshot(id, events.len() as u64 * part / 4, random.bytes(SNAPSHOT));
            store.put_snapshot(&snapshot).unwrap();
        }
    }
    store.settle().unwrap();
    let whole = history(&store);
    drop(store);
    IndexedFixture { directory, whole, contents: recording.contents }
}

fn snapshot(session: foldspace::SessionId, seq: u64, bytes: Vec<u8>) -> Snapshot {
    let slice = foldspace::fold::EncodedSlice { name: "Odd".into(), version: 1, blocks: vec![bytes.into()] };
    Snapshot { session, seq, time: foldspace::Timestamp(1), unreadable: 0, slices: vec![slice] }
}

fn index_files(directory: &Path) -> Vec<PathBuf> {
    files_below(&directory.join("index"))
}

impl IndexedFixture {
    /// Opens a copy with a changed index; everything must be there, also after it was opened again.
    fn check(&self, context: &str, change: impl FnOnce(&Path)) -> Vec<String> {
        let copy = copied(self.directory.path(), true);
        change(copy.path());
        let store = open(copy.path());
        let notes = store.notes().to_vec();
        self.check_open(&store, context);
        drop(store);
        let again = open(copy.path());
        self.check_open(&again, &format!("{context}, again"));
        notes
    }

    fn check_open(&self, store: &LocalStore, context: &str) {
        assert_same(&try_history(store).unwrap_or_else(|e| panic!("{context}: {e}")), &self.whole, context);
        for digest in &self.contents {
            assert!(store.has_content(digest).unwrap(), "{context}");
            let bytes = store.content(digest).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(Digest::of(&bytes), *digest, "{context}");
        }
        for id in self.whole.keys() {
            let latest = store.snapshot(*id, u64::MAX).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(latest.is_none_or(|latest| latest.slices[0].blocks[0].len() == SNAPSHOT), "{context}");
        }
        let seq = self.whole[&session(0)].len() as u64 + 1;
        let pending = store.submit(note(session(0), b"life goes on")).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(pending.wait().unwrap().first >= seq, "{context}");
        store.remove(session(0)).unwrap();
        // As it was, for the next look.
        for event in &self.whole[&session(0)] {
            record(store, note(session(0), &event.event.bytes));
        }
    }
}

#[test]
fn index_in_order_is_used_silently() {
    assert_eq!(fixture(20).check("untouched", |_| {}), &[] as &[String]);
}

#[test]
fn index_of_empty_store_reports_nothing() {
    let (directory, store) = fresh();
    drop(store);
    for _ in 0..3 {
        assert_eq!(open(directory.path()).notes(), &[] as &[String]);
    }
}

#[test]
fn index_missing_or_foreign_is_rebuilt() {
    let fixture = fixture(21);
    let (other, store) = fresh();
    record(&store, note(session(77), b"of another store"));
    store.settle().unwrap();
    drop(store);
    let gone = |at: &Path| std::fs::remove_dir_all(at.join("index")).unwrap();
    let empty = |at: &Path| index_files(at).iter().for_each(|file| std::fs::write(file, b"").unwrap());
    let foreign = |at: &Path| {
        gone(at);
        copy(&other.path().join("index"), &at.join("index"));
    };
    let a_file = |at: &Path| {
        gone(at);
        std::fs::write(at.join("index"), b"what is this?").unwrap();
    };
    type Harm<'a> = &'a dyn Fn(&Path);
    let changes: [(&str, Harm<'_>, usize); 4] =
        [("deleted", &gone, 0), ("emptied", &empty, 0), ("of another store", &foreign, 1), ("a file", &a_file, 1)];
    for (context, change, told) in changes {
        let notes = fixture.check(context, change);
        assert_eq!(notes.len(), told, "{context}: {notes:?}");
        assert!(notes.iter().all(|note| note.contains("index") && !note.contains('\n')), "{context}: {notes:?}");
    }
}

#[test]
fn index_unfinished_files_are_ignored() {
    let fixture = fixture(22);
    let notes = fixture.check("unfinished", |at| {
        for name in ["snap.0000000000000123.generating", "snap.generating"] {
            std::fs::write(at.join("index").join(name), Random(5).bytes(999)).unwrap();
        }
    });
    assert_eq!(notes, &[] as &[String]);
}

#[test]
fn index_behind_the_journal_catches_up() {
    let (directory, store) = fresh();
    record(&store, note(session(1), b"one"));
    let removed = record(&store, note(session(2), b"to be removed")).last;
    assert_eq!(removed, 1);
    store.settle().unwrap();
    drop(store);
    let early = copied(directory.path(), true);
    let (store, _) = recorded(directory.path(), 2, 23);
    store.remove(session(2)).unwrap();
    record(&store, note(session(1), b"two"));
    let whole = history(&store);
    drop(store);
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    copy(&early.path().join("index"), &directory.path().join("index"));
    for round in 0..3 {
        let store = open(directory.path());
        assert_eq!(store.notes(), &[] as &[String]);
        assert_same(&history(&store), &whole, &format!("opened for the {round}. time"));
    }
}

/// Two copies of a store went on apart; one got the other's journal, which goes further or not so far.
#[test]
fn index_of_another_journal_is_rebuilt() {
    twins(37);
    twins(400);
}

fn twins(events_of_twin: u64) {
    let (directory, store) = fresh();
    record(&store, note(session(1), b"one"));
    drop(store);
    let twin = copied(directory.path(), true);
    for (at, events, text) in [(directory.path(), 40, "a longer text"), (twin.path(), events_of_twin, "text")] {
        let store = open(at);
        (0..events).for_each(|number| {
            record(&store, note(session(number % 3), text.as_bytes()));
        });
    }
    let expected = history(&open(directory.path()));
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    copy(&twin.path().join("index"), &directory.path().join("index"));
    let store = open(directory.path());
    assert_same(&history(&store), &expected, "with the twin's index");
    assert_eq!(store.notes().len(), 1, "{:?}", store.notes());
}

#[test]
fn index_damaged_is_rebuilt() {
    let fixture = fixture(24);
    let files = index_files(fixture.directory.path()).len() as u64;
    let mut random = Random(25);
    for round in 0..rounds(20) {
        let which = random.below(files) as usize;
        let change = |at: &Path| {
            let file = &index_files(at)[which];
            let mut bytes = std::fs::read(file).unwrap();
            let length = bytes.len() as u64;
            match round % 4 {
                0 => bytes.truncate(random.below(length) as usize),
                1 => (0..=random.below(8)).for_each(|_| bytes[random.below(length) as usize] ^= 1 << random.below(8)),
                2 => {
                    let (at, noise) = (random.below(length) as usize, random.bytes(5000));
                    bytes[at..].iter_mut().zip(noise).for_each(|(byte, noise)| *byte = noise);
                }
                _ => {
                    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
                    (0..20).for_each(|_| bytes[random.below(used) as usize] ^= 0xff);
                }
            }
            std::fs::write(file, bytes).unwrap();
        };
        let notes = fixture.check(&format!("round {round}, file {which}"), change);
        assert!(notes.len() <= 1, "{notes:?}");
    }
}

#[test]
fn index_damaged_while_open_gives_no_wrong_events() {
    let fixture = fixture(26);
    let copy = copied(fixture.directory.path(), true);
    let store = open(copy.path());
    for file in index_files(copy.path()) {
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        std::fs::write(file, Random(27).bytes(length)).unwrap();
    }
    fixture.check_open(&store, "while open");
    drop(store);
    fixture.check_open(&open(copy.path()), "opened again");
}

/// Their ids say nothing of their order, and neither do their times.
#[test]
fn session_list_of_equal_times_keeps_creation_order() {
    let (directory, store) = fresh();
    let begun: Vec<_> = (0..40).map(|number| session(number * 7 % 41)).collect();
    for (at, id) in begun.iter().enumerate() {
        record(&store, note(*id, b"begun"));
        if at == 20 {
            store.settle().unwrap();
        }
    }
    let listed = |store: &LocalStore| -> Vec<_> { store.entries().unwrap().iter().map(|entry| entry.id).collect() };
    assert_eq!(listed(&store), begun);
    let times: std::collections::BTreeSet<_> = store.entries().unwrap().iter().map(|e| e.origin.time).collect();
    assert_eq!(times.len(), 1);
    store.remove(begun[3]).unwrap();
    record(&store, note(begun[3], b"begun again"));
    let begun: Vec<_> = begun.iter().copied().filter(|id| *id != begun[3]).chain([begun[3]]).collect();
    assert_eq!(listed(&store), begun);
    drop(store);
    assert_eq!(listed(&open(directory.path())), begun, "as the index knows it");
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    assert_eq!(listed(&open(directory.path())), begun, "as the journal has it");
    LocalStore::collect(directory.path(), false).unwrap();
    assert_eq!(listed(&open(directory.path())), begun, "as it was collected");
    assert_eq!(listed(&LocalStore::open_reading(directory.path()).unwrap()), begun, "as others read it");
}
