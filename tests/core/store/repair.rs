//! Repairs: what is whole stays, at its position and for every reader.

use std::collections::BTreeSet;
use std::path::Path;

use foldspace::event::Digest;
use foldspace::{EventStore, LocalStore, StoreError};

use super::damage::{DamagedFixture, fixture};
use super::journal::{COMMIT, CONTENT, FORK, Frame, LIST};
use super::{History, Random, copied, history, is_lost, note, open, record, rounds, session, snapshot_of_disk};

/// Damages a frame; returns the bytes of its segment, and the offset behind which everything is cut off.
fn spoiled(random: &mut Random, frame: &Frame, mut bytes: Vec<u8>) -> (&'static str, Vec<u8>, usize) {
    let at = frame.at + random.below((frame.next - frame.at) as u64) as usize;
    match random.below(4) {
        0 => bytes[at.min(frame.end - 1)] ^= 1 << random.below(8),
        1 => {
            bytes[frame.at..frame.next].fill(0);
            return ("zeros", bytes, usize::MAX);
        }
        2 => {
            bytes[frame.at..frame.at + 24].fill(0xff);
            return ("head", bytes, usize::MAX);
        }
        _ => {
            bytes.truncate(at);
            return ("cut", bytes, frame.at);
        }
    }
    ("changed", bytes, usize::MAX)
}

/// One damaged frame costs its own commit: all others are read as they were, those of children too.
#[test]
fn repair_of_one_damaged_frame_keeps_every_other_commit() {
    let fixture = fixture(3, 19);
    let last_group = fixture.frames.last().unwrap().1.last().unwrap().group;
    let mut random = Random(20);
    for round in 0..rounds(60) {
        let number = random.below(fixture.frames.len() as u64) as usize;
        let (path, frames) = &fixture.frames[number];
        let commits: Vec<_> =
            frames.iter().filter(|f| f.group < last_group && [COMMIT, FORK].contains(&f.kind)).collect();
        let frame = commits[random.below(commits.len() as u64) as usize];
        let copy = copied(fixture.directory.path(), round % 2 == 0);
        let target = copy.path().join("journal").join(path.file_name().unwrap());
        let (what, bytes, cut) = spoiled(&mut random, frame, std::fs::read(&target).unwrap());
        if what == "cut" && number + 1 == fixture.frames.len() {
            continue;
        }
        std::fs::write(&target, bytes).unwrap();
        let context = format!("round {round}: {what} at {} of segment {}", frame.at, number + 1);
        check_readers(&fixture, copy.path(), &context);
        let report = LocalStore::fsck(copy.path(), true).unwrap();
        assert!(report.contradictions.is_empty() && !report.repaired.is_empty(), "{context}: {report:?}");
        let lost = frames.iter().filter(|f| f.at == frame.at || f.at >= cut).map(|f| (number, f.at)).collect();
        let found = history(&open(copy.path()));
        fixture.check_kept(&found, &lost, &context);
        if round % 2 == 0 && what != "cut" {
            // The index knows where sessions begin, and how far they go.
            let expected = fixture.recording.of(&fixture.all_but(&BTreeSet::new()));
            let lengths =
                |history: &History| history.iter().map(|(id, events)| (*id, events.len())).collect::<Vec<_>>();
            assert_eq!(lengths(&found), lengths(&expected), "{context}");
            let (session, first, last) = frame.commit();
            let lost = found.get(&session).into_iter().flatten().filter(|event| is_lost(event)).count() as u64;
            assert!(lost <= last - first + 1, "{context}: {lost}");
        }
        assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, [], "{context}");
    }
}

/// Readers see every session of a damaged store, and each event but the damaged ones.
fn check_readers(fixture: &DamagedFixture, directory: &Path, context: &str) {
    let store = LocalStore::open_reading(directory).unwrap_or_else(|error| panic!("{context}: {error}"));
    for entry in store.entries().unwrap() {
        let original = &fixture.recording.originals[&entry.id];
        for seq in 1..=entry.head {
            match store.read(entry.id, seq, seq, 1) {
                Ok(batch) => {
                    let event = batch.events().find(|event| event.seq == seq).unwrap();
                    assert_eq!(event.to_recorded(), original[seq as usize - 1], "{context}");
                }
                Err(StoreError::Damaged { .. } | StoreError::Format { .. } | StoreError::Io { .. }) => {}
                Err(error) => panic!("{context}: event {seq} of {}: {error}", entry.id),
            }
        }
    }
}

/// The owner takes a frame with one flipped bit as what it was; no other session pays for it.
#[test]
fn flipped_bit_without_index_shuts_no_other_session() {
    let fixture = fixture(2, 21);
    let (path, frames) = &fixture.frames[0];
    let frame = frames.iter().filter(|frame| frame.kind == COMMIT).nth(9).unwrap();
    let (touched, first, _) = frame.commit();
    let copy = fixture.changed(path, |bytes| bytes[frame.end - 1] ^= 4);
    let store = open(copy.path());
    assert!(store.notes()[0].contains("one bit is flipped"), "{:?}", store.notes());
    for (session, events) in fixture.recording.of(&fixture.all_but(&BTreeSet::new())) {
        assert_eq!(store.head(session).unwrap(), events.len() as u64);
        record(&store, note(session, b"life goes on"));
    }
    let error = store.read(touched, first, first, 1).unwrap_err().to_string();
    assert!(error.contains(&format!("event {first} of session {touched} can't be read")), "{error}");
    drop(store);
    let report = LocalStore::fsck(copy.path(), true).unwrap();
    assert_eq!((report.gaps.len(), report.problems.len()), (0, 1), "{report:?}");
    let everything = history(&open(copy.path()));
    assert!(everything.values().flatten().all(|event| !is_lost(event)));
}

/// A copy of a cluster has nothing of its own that could be lost.
#[test]
fn copy_of_cluster_gets_no_gap() {
    let fixture = fixture(2, 23);
    let (path, frames) = &fixture.frames[0];
    let frame = frames.iter().filter(|frame| frame.kind == COMMIT).nth(9).unwrap();
    let copy = fixture.changed(path, |bytes| bytes[frame.at..frame.next].fill(0));
    std::fs::write(copy.path().join("nats-host"), "h").unwrap();
    let before = snapshot_of_disk(&copy.path().join("journal"));
    let refused = LocalStore::fsck(copy.path(), true).unwrap_err();
    assert!(refused.to_string().contains("copy of a cluster"), "{refused}");
    assert!(snapshot_of_disk(&copy.path().join("journal")) == before);
}

/// Two histories of one id: neither is dropped before a person names the session.
#[test]
fn contradicting_commits_stay_until_their_session_is_named() {
    let fixture = fixture(2, 24);
    let (path, frames) = &fixture.frames[0];
    let frame = frames.iter().filter(|frame| frame.kind == COMMIT).nth(20).unwrap();
    let (touched, first, _) = frame.commit();
    let (last_path, last_frames) = fixture.frames.last().unwrap();
    let at = last_frames[0].at;
    let bytes = std::fs::read(path).unwrap()[frame.at..frame.next].to_vec();
    // The bytes of an old commit once more.
    let copy = fixture.changed(last_path, |all| drop(all.splice(at..at, bytes)));
    let report = LocalStore::fsck(copy.path(), true).unwrap();
    assert_eq!(report.contradictions.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [touched], "{report:?}");
    assert!(report.repaired.is_empty(), "{report:?}");
    let problems = LocalStore::fsck(copy.path(), false).unwrap().problems;
    assert!(problems[0].what.contains(&format!("event {first} occurs twice")), "{problems:?}");
    let dropped = LocalStore::repair(copy.path(), &[session(77), touched]).unwrap();
    assert_eq!(dropped.repaired.len(), 1, "{dropped:?}");
    open(copy.path());
    assert_eq!(LocalStore::fsck(copy.path(), false).unwrap().problems, []);
}

/// Contents of a lost commit outlive a collection, and so do bytes that were cut off the journal.
#[test]
fn contents_of_lost_commit_survive_collection() {
    let fixture = fixture(2, 22);
    let (path, frames) = &fixture.frames[0];
    let at = frames.windows(2).position(|two| [CONTENT, LIST].contains(&two[0].kind) && two[1].kind == COMMIT).unwrap();
    let frame = &frames[at + 1];
    let copy = fixture.changed(path, |bytes| bytes[frame.at..frame.next].fill(0));
    let report = LocalStore::fsck(copy.path(), true).unwrap();
    assert_eq!(report.gaps.len(), 1, "{report:?}");
    LocalStore::collect(copy.path(), false).unwrap();
    let store = open(copy.path());
    let named = [&frames[at].payload[..32], &frame.payload[frame.payload.len() - 32..]];
    for digest in named.map(|bytes| Digest::from_bytes(bytes.try_into().unwrap())) {
        assert!(store.has_content(&digest).unwrap(), "{digest}");
    }
    drop(store);
    assert_eq!(LocalStore::discard_torn(copy.path(), true).unwrap(), 1, "a collection keeps it");
    assert_eq!(LocalStore::discard_torn(copy.path(), false).unwrap(), 1);
    assert_eq!(LocalStore::discard_torn(copy.path(), false).unwrap(), 0);
}
