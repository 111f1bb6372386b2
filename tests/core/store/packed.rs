//! Packed segments that were damaged: named and repaired like any other.

use std::path::{Path, PathBuf};

use foldspace::store::{Content, LocalStoreOptions};
use foldspace::{EventStore, LocalStore, StoreError};

use super::journal::{Recording, frames_of, recorded, segments};
use super::{
    Random, assert_beginning, assert_kept, assert_same, copied, history, is_lost, note, open, record, rounds, session,
    small, snapshot_of_disk, try_history,
};

struct PackedFixture {
    directory: tempfile::TempDir,
    recording: Recording,
    /// The same journal before it was packed.
    raw: tempfile::TempDir,
}

fn fixture(seed: u64) -> PackedFixture {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 3, seed);
    drop(store);
    let raw = copied(directory.path(), false);
    let store = LocalStore::open(directory.path(), LocalStoreOptions { pack: true, ..small() }).unwrap();
    let packed = |path: &PathBuf| path.extension().unwrap() == "pak";
    crate::rig::eventually("all but the last segment are packed", || {
        segments(directory.path()).iter().rev().skip(1).all(packed)
    });
    drop(store);
    PackedFixture { directory, recording, raw }
}

fn packed(directory: &Path) -> PathBuf {
    directory.join("journal/00000002.pak")
}

impl PackedFixture {
    fn changed(&self, change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
        let copy = copied(self.directory.path(), false);
        let mut bytes = std::fs::read(packed(copy.path())).unwrap();
        change(&mut bytes);
        std::fs::write(packed(copy.path()), bytes).unwrap();
        copy
    }
}

/// Sessions in turn, read from anywhere and in pieces of any length: as they were recorded, with the index and without.
#[test]
fn packed_sessions_in_turn_read_as_recorded() {
    const SESSIONS: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    let store = LocalStore::open(directory.path(), LocalStoreOptions { pack: true, ..small() }).unwrap();
    let mut random = Random(105);
    let mut digests = Vec::new();
    while segments(directory.path()).len() < 4 {
        for number in 0..SESSIONS {
            let length = if random.below(400) == 0 { 60_000 } else { random.below(500) as usize };
            let mut commit = note(session(number), &random.bytes(length));
            if random.below(4) == 0 {
                let content = Content::of(random.bytes(300));
                digests.push(content.digest);
                commit.keep(content);
            }
            let pending = store.submit(commit).unwrap();
            if number + 1 == SESSIONS {
                pending.wait().unwrap();
            }
        }
    }
    let originals = history(&store);
    let is_packed = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.ends_with(b"FOLDPAK\n"));
    crate::rig::eventually("all but the last segment are packed", || {
        segments(directory.path()).iter().rev().skip(1).all(is_packed)
    });
    drop(store);
    for has_index in [true, false] {
        if !has_index {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let store = open(directory.path());
        assert_same(&history(&store), &originals, "packed");
        for _ in 0..rounds(300) {
            let (id, events) = originals.iter().nth(random.below(SESSIONS) as usize).unwrap();
            let from = 1 + random.below(events.len() as u64);
            let until = from + random.below(events.len() as u64 + 1 - from);
            let bytes = 1 << random.below(19);
            let batch = store.read(*id, from, until, bytes).unwrap();
            assert!(batch.last() >= from && batch.events().next().unwrap().seq <= from);
            for event in batch.events() {
                assert!(event.to_recorded() == events[event.seq as usize - 1], "event {} of {id}", event.seq);
            }
        }
        for digest in &digests {
            assert_eq!(foldspace::event::Digest::of(&store.content(digest).unwrap()), *digest);
        }
    }
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, []);
}

#[test]
fn packed_block_damaged_loses_only_its_events() {
    let fixture = fixture(100);
    let length = std::fs::metadata(packed(fixture.directory.path())).unwrap().len() as usize;
    for at in [5, length / 3, length / 2] {
        let copy = fixture.changed(|bytes| bytes[at..at + 40].iter_mut().for_each(|byte| *byte ^= 0xa5));
        let before = snapshot_of_disk(&copy.path().join("journal"));
        let error = LocalStore::open(copy.path(), small()).err().unwrap();
        let StoreError::Damaged { segment: 2, offset, .. } = error else {
            assert!(at == 5 && matches!(error, StoreError::Format { .. }), "byte {at}: {error}");
            continue;
        };
        let report = LocalStore::fsck(copy.path(), false).unwrap();
        assert_eq!((report.problems[0].segment, report.problems[0].offset), (2, offset), "byte {at}");
        assert!(snapshot_of_disk(&copy.path().join("journal")) == before, "something was changed");
        let report = LocalStore::fsck(copy.path(), true).unwrap();
        let store = open(copy.path());
        let found = history(&store);
        assert_kept(&found, &fixture.recording.originals, "repaired");
        // Segments behind it are whole, and so are the sessions in them.
        let frames: Vec<_> = segments(fixture.raw.path()).iter().flat_map(|path| frames_of(path)).collect();
        let expected = fixture.recording.of(&frames);
        assert!(expected.iter().all(|(id, events)| found[id].len() == events.len()), "byte {at}");
        let lost = found.values().flatten().filter(|event| is_lost(event)).count();
        assert_eq!(lost as u64, report.gaps.iter().map(|gap| gap.last - gap.first + 1).sum::<u64>(), "byte {at}");
        assert!(lost < expected.values().map(Vec::len).sum::<usize>() / 2, "byte {at}: {lost}");
        record(&store, note(session(0), b"life goes on"));
        drop(store);
        assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, [], "byte {at}");
    }
}

#[test]
fn packed_table_damaged_is_rebuilt_from_blocks() {
    let fixture = fixture(101);
    for back in [1, 10, 20, 30, 33, 36, 40] {
        let copy = fixture.changed(|bytes| {
            let at = bytes.len() - back;
            bytes[at] ^= 0x11;
        });
        let error = LocalStore::open(copy.path(), small()).err().unwrap();
        assert!(matches!(error, StoreError::Format { .. }), "{back} from the end: {error}");
        LocalStore::fsck(copy.path(), true).unwrap();
        let mut expected = fixture.recording.originals.clone();
        expected.remove(&session(99));
        assert_same(&history(&open(copy.path())), &expected, &format!("{back} from the end"));
    }
}

#[test]
fn packed_segment_flipped_bits_never_show_wrong_events() {
    let fixture = fixture(102);
    let mut random = Random(103);
    for round in 0..rounds(24) {
        let copy = fixture.changed(|bytes| {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            if round % 8 == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
        });
        let context = format!("round {round}");
        if let Ok(store) = LocalStore::open(copy.path(), small()) {
            assert_beginning(&try_history(&store).unwrap(), &fixture.recording.originals, &context);
        }
        LocalStore::fsck(copy.path(), false).unwrap_or_else(|e| panic!("{context}: {e}"));
        LocalStore::fsck(copy.path(), true).unwrap_or_else(|e| panic!("{context}: {e}"));
        let store = LocalStore::open(copy.path(), small()).unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = history(&store);
        assert_kept(&found, &fixture.recording.originals, &context);
        for digest in &fixture.recording.contents {
            let outcome = store.content(digest);
            let fine = match &outcome {
                Ok(bytes) => foldspace::event::Digest::of(bytes) == *digest,
                Err(error) => matches!(error, StoreError::NoContent(_) | StoreError::Damaged { .. }),
            };
            assert!(fine, "{context}: {outcome:?}");
        }
    }
}

/// The last segment is gone, and what is left last is packed: there is nothing to append to.
#[test]
fn packed_last_segment_goes_on_in_new_one_after_accepted_loss() {
    let fixture = fixture(104);
    let copy = copied(fixture.directory.path(), false);
    for round in 0..3 {
        std::fs::remove_file(segments(copy.path()).pop().unwrap()).unwrap();
        drop(std::fs::remove_dir_all(copy.path().join("index")));
        assert!(matches!(LocalStore::open(copy.path(), small()), Err(StoreError::Lost(_))));
        LocalStore::accept_loss(copy.path()).unwrap();
        for written in [false, true, true] {
            let store = open(copy.path());
            let mut found = history(&store);
            assert_eq!(found.remove(&session(200 + round)).is_some(), written);
            assert_beginning(&found, &fixture.recording.originals, "cut short");
            if !written {
                record(&store, note(session(200 + round), b"life goes on"));
            }
        }
    }
}
