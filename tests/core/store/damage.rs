//! Damage in the middle of a journal: named, never passed over, and repaired on request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use foldspace::store::Content;
use foldspace::{EventStore, LocalStore, SessionId, StoreError};

use super::journal::{COMMIT, FORK, Frame, Recording, frames_of, recorded, segments};
use super::{
    History, Random, assert_beginning, assert_kept, assert_same, copied, fresh, history, is_lost, note, open, record,
    rounds, session, small, snapshot_of_disk, try_history,
};

fn refused(directory: &Path) -> StoreError {
    LocalStore::open(directory, small()).err().unwrap_or_else(|| panic!("{} opened", directory.display()))
}

/// Everything that was recorded and is not, or not as it was.
pub(super) struct DamagedFixture {
    pub(super) directory: tempfile::TempDir,
    pub(super) recording: Recording,
    pub(super) frames: Vec<(PathBuf, Vec<Frame>)>,
}

pub(super) fn fixture(segments_wanted: usize, seed: u64) -> DamagedFixture {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), segments_wanted, seed);
    drop(store);
    let frames = segments(directory.path()).into_iter().map(|path| (path.clone(), frames_of(&path))).collect();
    DamagedFixture { directory, recording, frames }
}

impl DamagedFixture {
    /// A copy of the journal in which the bytes at a place of a segment are changed.
    pub(super) fn changed(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
        let copy = copied(self.directory.path(), false);
        let target = copy.path().join("journal").join(path.file_name().unwrap());
        let mut bytes = std::fs::read(&target).unwrap();
        change(&mut bytes);
        std::fs::write(target, bytes).unwrap();
        copy
    }

    /// Checks that a repaired history has every event but those of the lost frames, at its position.
    pub(super) fn check_kept(&self, found: &History, lost: &BTreeSet<(usize, usize)>, context: &str) {
        let frames = || self.frames.iter().enumerate().flat_map(|(n, (_, frames))| frames.iter().map(move |f| (n, f)));
        let is_lost_frame = |number: usize, frame: &Frame| lost.contains(&(number, frame.at));
        let forks: BTreeMap<SessionId, (SessionId, u64)> =
            frames().filter(|(_, f)| f.kind == FORK).map(|(_, f)| (f.commit().0, f.parent())).collect();
        let mut gone = BTreeSet::new();
        let mut begun_in_loss = BTreeSet::new();
        for (_, frame) in frames().filter(|(n, f)| is_lost_frame(*n, f) && [COMMIT, FORK].contains(&f.kind)) {
            let (session, first, last) = frame.commit();
            gone.extend((first..=last).map(|seq| (session, seq)));
            begun_in_loss.extend((frame.kind == FORK).then_some(session));
        }
        // The position in its owner's history, or none behind a fork of which nothing is known any more.
        let may_be_lost = |session: SessionId, seq: u64| {
            let mut owner = session;
            while let Some((parent, _)) = forks.get(&owner).filter(|(_, at)| seq <= *at) {
                if begun_in_loss.contains(&owner) {
                    return true;
                }
                owner = *parent;
            }
            gone.contains(&(owner, seq))
        };
        assert_kept(found, &self.recording.originals, context);
        for (session, expected) in self.recording.of(&self.all_but(&BTreeSet::new())) {
            let events = found.get(&session).map_or(&[][..], Vec::as_slice);
            for original in &expected {
                let is_there = events.get(original.seq as usize - 1) == Some(original);
                assert!(
                    is_there || may_be_lost(session, original.seq),
                    "{context}: event {} of {session}",
                    original.seq
                );
            }
        }
    }

    pub(super) fn all_but(&self, lost: &BTreeSet<(usize, usize)>) -> Vec<Frame> {
        let frames = self.frames.iter().enumerate();
        let frames = frames.flat_map(|(number, (_, frames))| frames.iter().map(move |frame| (number, frame)));
        frames.filter(|(number, frame)| !lost.contains(&(*number, frame.at))).map(|(_, frame)| frame.clone()).collect()
    }
}

/// The damage of one frame, by what is done to it.
fn damages(frame: &Frame) -> Vec<(&'static str, usize, usize)> {
    let mut places = vec![("head", frame.at + 9, 1), ("length", frame.at, 3), ("head's checksum", frame.at + 21, 2)];
    if !frame.payload.is_empty() {
        places.push(("payload", (frame.at + 24 + frame.end) / 2, 1));
        places.push(("all of it", frame.at, frame.end - frame.at));
    }
    places
}

#[test]
fn fsck_damage_is_named_and_unchanged_until_repair() {
    let fixture = fixture(3, 11);
    let last_group = fixture.frames.last().unwrap().1.last().unwrap().group;
    let mut random = Random(3);
    for (number, (path, frames)) in fixture.frames.iter().enumerate() {
        for frame in frames.iter().filter(|frame| frame.group < last_group) {
            if random.below(frames.len() as u64) >= 5 {
                continue;
            }
            let damages = damages(frame);
            let (what, at, length) = damages[random.below(damages.len() as u64) as usize];
            let copy = fixture.changed(path, |bytes| bytes[at..at + length].iter_mut().for_each(|byte| *byte ^= 0x5a));
            let context = format!("{what} of the frame at {} of segment {} is damaged", frame.at, number + 1);
            damaged(&fixture, copy.path(), number, frame, &context);
        }
    }
}

fn damaged(fixture: &DamagedFixture, directory: &Path, number: usize, frame: &Frame, context: &str) {
    let before = snapshot_of_disk(&directory.join("journal"));
    for _ in 0..2 {
        let StoreError::Damaged { segment, offset, .. } = refused(directory) else { panic!("{context}") };
        assert_eq!((segment as usize, offset as usize), (number + 1, frame.at), "{context}");
    }
    assert!(!directory.join("index.bad-1").exists(), "{context}: the index is no worse than before");
    let report = LocalStore::fsck(directory, false).unwrap();
    let named = |problem: &foldspace::store::JournalProblem| (problem.segment as usize, problem.offset as usize);
    assert_eq!(report.problems.first().map(named), Some((number + 1, frame.at)), "{context}");
    assert!(report.repaired.is_empty());
    assert!(snapshot_of_disk(&directory.join("journal")) == before, "{context}: something was changed");

    let report = LocalStore::fsck(directory, true).unwrap();
    assert!(!report.repaired.is_empty(), "{context}");
    let store = open(directory);
    let found = history(&store);
    fixture.check_kept(&found, &BTreeSet::from([(number, frame.at)]), context);
    let lost: u64 = report.gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
    let told = found.values().flatten().filter(|event| is_lost(event)).count() as u64;
    assert!(told >= lost && (lost > 0 || told == 0), "{context}: {told} of {lost}");
    for session in found.keys() {
        record(&store, note(*session, b"life goes on"));
    }
    drop(store);
    assert_eq!(LocalStore::fsck(directory, false).unwrap().problems, [], "{context}");
    assert_eq!(open(directory).notes(), &[] as &[String], "{context}: all was told before");
}

#[test]
fn fsck_of_intact_journal_finds_nothing() {
    let fixture = fixture(2, 12);
    let report = LocalStore::fsck(fixture.directory.path(), false).unwrap();
    assert_eq!((report.problems.len(), report.repaired.len(), report.segments), (0, 0, fixture.frames.len() as u64));
    let expected = fixture.recording.of(&fixture.all_but(&BTreeSet::new()));
    let all = fixture.all_but(&BTreeSet::new());
    let commits = all.iter().filter(|frame| [COMMIT, FORK].contains(&frame.kind)).map(Frame::commit);
    let events: u64 = commits.map(|(_, first, last)| last - first + 1).sum();
    assert_eq!((report.sessions, report.events), (expected.len() as u64, events));
}

/// What the index knows is not read again on opening: damage there shows when somebody looks.
#[test]
fn indexed_event_damaged_fails_on_read() {
    let fixture = fixture(2, 18);
    let (path, frames) = &fixture.frames[0];
    let frame = frames.iter().filter(|frame| frame.kind == COMMIT).nth(5).unwrap();
    let (touched, first, _) = frame.commit();
    let copy = copied(fixture.directory.path(), true);
    let target = copy.path().join("journal").join(path.file_name().unwrap());
    let mut bytes = std::fs::read(&target).unwrap();
    bytes[frame.end - 1] ^= 1;
    std::fs::write(&target, bytes).unwrap();
    let store = open(copy.path());
    assert_eq!(store.notes(), &[] as &[String]);
    for entry in store.entries().unwrap() {
        let (mut seen, original) = (0, &fixture.recording.originals[&entry.id]);
        let outcome = store.visit(entry.id, 1, &mut |event| {
            seen = event.seq;
            assert_eq!(event.to_recorded(), original[seen as usize - 1]);
            std::ops::ControlFlow::Continue(())
        });
        match outcome {
            Err(StoreError::Damaged { segment: 1, offset, .. }) => {
                assert_eq!((entry.id, offset as usize), (touched, frame.at));
                assert!(seen < first);
            }
            other => assert!(other.is_ok() && entry.id != touched, "{other:?}"),
        }
        record(&store, note(entry.id, b"life goes on"));
    }
}

/// The end of a segment that is not the last is missing: also when no session has a gap from it.
#[test]
fn full_segment_ending_early_is_damaged() {
    let (directory, store) = fresh();
    let mut number = 0;
    while segments(directory.path()).len() < 4 {
        // Each session has one event: no gap in a session tells of a loss.
        record(&store, note(session(number), &Random(number).bytes(20_000)));
        number += 1;
    }
    let expected = history(&store);
    drop(store);
    for (at, path) in segments(directory.path()).iter().enumerate().take(3) {
        let frames = frames_of(path);
        for (kept, zeroed) in [(frames.len() - 1, false), (frames.len() - 2, false), (10, true), (0, true)] {
            let copy = copied(directory.path(), false);
            let target = copy.path().join("journal").join(path.file_name().unwrap());
            let mut bytes = std::fs::read(&target).unwrap();
            let length = bytes.len();
            bytes.truncate(frames[kept].at);
            bytes.resize(if zeroed { length } else { frames[kept].at }, 0);
            std::fs::write(target, bytes).unwrap();
            let context = format!("{kept} of {} frames of segment {}, zeroed: {zeroed}", frames.len(), at + 1);
            let StoreError::Damaged { segment, offset, .. } = refused(copy.path()) else { panic!("{context}") };
            assert_eq!((segment as usize, offset as usize), (at + 1, frames[kept].at), "{context}");
            let report = LocalStore::fsck(copy.path(), false).unwrap();
            assert_eq!((report.problems[0].segment, report.problems[0].offset), (segment, offset), "{context}");
            LocalStore::fsck(copy.path(), true).unwrap();
            let found = history(&open(copy.path()));
            let lost = frames[kept..].iter().filter(|frame| frame.kind == COMMIT).count();
            assert_eq!(found.len(), expected.len() - lost, "{context}");
            assert_beginning(&found, &expected, &context);
            assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, [], "{context}");
        }
    }
}

#[test]
fn fsck_names_missing_or_odd_segment() {
    let fixture = fixture(3, 13);
    let (other, other_store) = fresh();
    record(&other_store, note(session(50), b"foreign"));
    drop(other_store);
    let in_copy = |copy: &Path, number: usize| copy.join("journal").join(format!("{number:08}.seg"));
    type Change<'a> = Box<dyn Fn(&Path) + 'a>;
    let changes: Vec<(&str, &str, Change<'_>)> = vec![
        ("the first is missing", "missing", Box::new(|at| std::fs::remove_file(in_copy(at, 1)).unwrap())),
        ("one is missing", "missing", Box::new(|at| std::fs::remove_file(in_copy(at, 2)).unwrap())),
        (
            "one was renamed",
            "renamed",
            Box::new(|at| {
                std::fs::copy(in_copy(at, 1), in_copy(at, 2)).unwrap();
            }),
        ),
        (
            "another store's",
            "another journal",
            Box::new(|at| {
                std::fs::copy(in_copy(other.path(), 1), in_copy(at, 1)).unwrap();
            }),
        ),
        (
            "a newer format",
            "format 2",
            Box::new(|at| {
                let mut bytes = std::fs::read(in_copy(at, 2)).unwrap();
                bytes[8] = 2;
                std::fs::write(in_copy(at, 2), bytes).unwrap();
            }),
        ),
    ];
    for (context, says, change) in changes {
        let copy = copied(fixture.directory.path(), false);
        change(copy.path());
        let before = snapshot_of_disk(&copy.path().join("journal"));
        for _ in 0..2 {
            let error = refused(copy.path());
            assert!(matches!(error, StoreError::Format { .. }), "{context}: {error:?}");
            assert!(error.to_string().contains(says), "{context}: {error}");
        }
        let report = LocalStore::fsck(copy.path(), false).unwrap();
        assert!(report.problems.iter().any(|problem| problem.what.contains(says)), "{context}: {:?}", report.problems);
        assert!(snapshot_of_disk(&copy.path().join("journal")) == before, "{context}: something was changed");
        assert!(!copy.path().join("index.bad-1").exists(), "{context}");
    }
}

#[test]
fn repair_goes_on_without_missing_segment() {
    let fixture = fixture(3, 14);
    for gone in [0, 1] {
        let copy = copied(fixture.directory.path(), false);
        std::fs::remove_file(&segments(copy.path())[gone]).unwrap();
        LocalStore::fsck(copy.path(), true).unwrap();
        let store = open(copy.path());
        let lost = fixture.frames[gone].1.iter().map(|frame| (gone, frame.at)).collect();
        fixture.check_kept(&history(&store), &lost, "after the repair");
        record(&store, note(session(50), b"life goes on"));
        drop(store);
        assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, []);
    }
}

#[test]
fn repair_mends_damaged_segment_head() {
    let fixture = fixture(3, 15);
    for (number, (path, _)) in fixture.frames.iter().enumerate() {
        let copy = fixture.changed(path, |bytes| bytes[17 + number] ^= 4);
        assert!(matches!(refused(copy.path()), StoreError::Format { .. }));
        LocalStore::fsck(copy.path(), true).unwrap();
        let everything = fixture.recording.of(&fixture.all_but(&BTreeSet::new()));
        assert_same(&history(&open(copy.path())), &everything, "nothing but the head was damaged");
    }
}

/// Bits are flipped anywhere; whatever is shown then is what was recorded at that position.
#[test]
fn raw_segment_flipped_bits_never_show_wrong_events() {
    let fixture = fixture(2, 16);
    let mut random = Random(17);
    for round in 0..rounds(90) {
        let with_index = round % 3 == 0;
        let copy = copied(fixture.directory.path(), with_index);
        let paths = segments(copy.path());
        let path = &paths[random.below(paths.len() as u64) as usize];
        let mut bytes = std::fs::read(path).unwrap();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        std::fs::write(path, bytes).unwrap();
        let context = format!("round {round} on {}", path.file_name().unwrap().display());
        check_flipped(&fixture, copy.path(), &context);
        if round % 4 == 0 {
            LocalStore::fsck(copy.path(), true).unwrap_or_else(|e| panic!("{context}: {e}"));
            let store = LocalStore::open(copy.path(), small()).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_kept(&try_history(&store).unwrap(), &fixture.recording.originals, &context);
        }
    }
}

fn check_flipped(fixture: &DamagedFixture, directory: &Path, context: &str) {
    let store = match LocalStore::open(directory, small()) {
        Ok(store) => store,
        Err(StoreError::Damaged { .. } | StoreError::Format { .. }) => return,
        Err(other) => panic!("{context}: {other}"),
    };
    for entry in store.entries().unwrap() {
        let original = &fixture.recording.originals[&entry.id];
        let outcome = store.visit(entry.id, 1, &mut |event| {
            assert_eq!(event.to_recorded(), original[event.seq as usize - 1], "{context}");
            std::ops::ControlFlow::Continue(())
        });
        assert!(matches!(outcome, Ok(()) | Err(StoreError::Damaged { .. })), "{context}: {outcome:?}");
    }
    for digest in &fixture.recording.contents {
        match store.content(digest) {
            Ok(bytes) => assert_eq!(Content::of(bytes).digest, *digest, "{context}"),
            Err(StoreError::NoContent(_) | StoreError::Damaged { .. }) => {}
            Err(other) => panic!("{context}: {other}"),
        }
    }
}
