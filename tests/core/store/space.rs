//! Removing, collecting, packing: space comes back and nothing else goes.

use std::path::Path;

use foldspace::event::Digest;
use foldspace::fold::EncodedSlice;
use foldspace::store::{Expected, GcReport, LocalStoreOptions, Snapshot};
use foldspace::{EventStore, LocalStore, StoreError, Timestamp};

use super::journal::{COMMIT, REMOVAL, frames_of, recorded, segments};
use super::{
    History, Random, assert_same, copied, fresh, history, note, open, record, rounds, session, small, snapshot_of_disk,
    with_content,
};
use crate::rig::{eventually, process};

fn packing() -> LocalStoreOptions {
    LocalStoreOptions { pack: true, ..small() }
}

fn disk_bytes(directory: &Path) -> u64 {
    snapshot_of_disk(&directory.join("journal")).values().map(|bytes| bytes.len() as u64).sum()
}

/// Two sessions with contents of their own and shared ones, over several segments; the first is removed.
fn half_removed(directory: &Path) -> (Vec<Digest>, Vec<Digest>, History) {
    let store = open(directory);
    let mut random = Random(40);
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for round in 0..12 {
        let shared = random.bytes(100_000);
        for number in [1, 2] {
            let (commit, digest) = with_content(session(number), shared.clone());
            record(&store, commit);
            kept.push(digest);
            let (commit, digest) = with_content(session(number), random.bytes(150_000));
            record(&store, commit);
            if number == 1 { gone.push(digest) } else { kept.push(digest) }
        }
        // Digests as text are respected too.
        let (_, digest) = with_content(session(2), random.bytes(50_000 + round));
        let (mut hidden, _) = with_content(session(1), Random(round as u64).bytes(60_000));
        hidden.keep(foldspace::store::Content::of(Random(round as u64 + 90).bytes(70_000)));
        record(&store, hidden);
        let named = Digest::of(&Random(round as u64 + 90).bytes(70_000));
        record(&store, note(session(2), format!("{{\"content\":\"{named}\",\"other\":\"{digest}\"}}").as_bytes()));
        kept.push(named);
        gone.push(Digest::of(&Random(round as u64).bytes(60_000)));
    }
    store.remove(session(1)).unwrap();
    let history = history(&store);
    drop(store);
    (kept, gone, history)
}

fn check(directory: &Path, kept: &[Digest], expected: &History, context: &str) {
    let store = open(directory);
    assert_same(&history(&store), expected, context);
    for digest in kept {
        let bytes = store.content(digest).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(Digest::of(&bytes), *digest);
    }
    drop(store);
    assert_eq!(LocalStore::fsck(directory, false).unwrap().problems, [], "{context}");
}

#[test]
fn collection_removes_only_unreferenced_contents() {
    let directory = tempfile::tempdir().unwrap();
    let (kept, gone, expected) = half_removed(directory.path());
    let before = snapshot_of_disk(&directory.path().join("journal"));
    let rehearsed = LocalStore::collect(directory.path(), true).unwrap();
    assert_eq!(rehearsed.commits, 36);
    assert!(rehearsed.bytes > 12 * 210_000 && rehearsed.contents >= 24, "{rehearsed:?}");
    let marks = |disk: std::collections::BTreeMap<_, Vec<u8>>| disk.values().map(Vec::len).sum::<usize>();
    assert!(marks(snapshot_of_disk(&directory.path().join("journal"))).abs_diff(marks(before)) < 200);
    check(directory.path(), &kept, &expected, "after the rehearsal");
    let size = disk_bytes(directory.path());
    let collected = LocalStore::collect(directory.path(), false).unwrap();
    assert_eq!((collected.commits, collected.contents), (rehearsed.commits, rehearsed.contents));
    assert!(size - disk_bytes(directory.path()) > collected.bytes * 9 / 10);
    check(directory.path(), &kept, &expected, "after the collection");
    let store = open(directory.path());
    for digest in gone {
        assert!(matches!(store.content(&digest), Err(StoreError::NoContent(_))));
    }
    drop(store);
    let again = LocalStore::collect(directory.path(), true).unwrap();
    assert_eq!((again.commits, again.contents, again.bytes), (0, 0, 0), "there is nothing left to collect");
}

/// Collects what a store does not need any more, and may be killed at that.
pub(crate) fn collect(directory: &str) {
    LocalStore::collect(directory, false).unwrap();
}

#[test]
fn collection_killed_leaves_intact_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut random = Random(41);
    let mut kept = Vec::new();
    for _ in 0..30 {
        for number in [1, 2] {
            let (commit, digest) = with_content(session(number), random.bytes(90_000 * number as usize));
            record(&store, commit);
            kept.extend((number == 2).then_some(digest));
        }
    }
    store.remove(session(1)).unwrap();
    record(&store, note(session(1), b"another life").expecting(Expected::NoSession));
    let expected = history(&store);
    drop(store);
    let last = segments(directory.path()).pop().unwrap();
    let finished = |at: &Path| {
        let last = at.join("journal").join(last.file_name().unwrap());
        frames_of(&last).iter().all(|frame| frame.kind != REMOVAL)
    };
    let mut outcomes = [0, 0];
    for round in 0..rounds(10) {
        let copy = copied(directory.path(), true);
        let mut child = process("collect", copy.path()).stdout(std::process::Stdio::null()).spawn().unwrap();
        // The index goes when the rewriting begins, and is there again at its end, which may come between two looks.
        eventually("the rewriting begins", || {
            !copy.path().join("index").exists() || child.try_wait().unwrap().is_some()
        });
        // The time is the subject: it is killed at any moment.
        std::thread::sleep(std::time::Duration::from_millis(random.below(150)));
        child.kill().unwrap();
        child.wait().unwrap();
        outcomes[usize::from(finished(copy.path()))] += 1;
        check(copy.path(), &kept, &expected, &format!("round {round}"));
    }
    println!("{} collections were cut off, {} had ended", outcomes[0], outcomes[1]);
}

#[test]
fn session_created_again_survives_collection() {
    let (directory, store) = fresh();
    for life in 0..3 {
        for number in 0..5 {
            record(&store, note(session(1), format!("life {life}, event {number}").as_bytes()));
        }
        if life < 2 {
            store.remove(session(1)).unwrap();
        }
    }
    record(&store, note(session(2), b"by the way"));
    let expected = history(&store);
    drop(store);
    assert_same(&history(&open(directory.path())), &expected, "opened again");
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    assert_same(&history(&open(directory.path())), &expected, "without the index");
    assert_eq!(LocalStore::collect(directory.path(), false).unwrap().commits, 10);
    check(directory.path(), &[], &expected, "after the collection");
}

/// A removal that the index has not heard of when the process ends.
#[test]
fn removed_session_stays_removed_after_crash() {
    let (directory, store) = fresh();
    for number in 1..4 {
        record(&store, note(session(number), b"one"));
    }
    store.settle().unwrap();
    drop(store);
    let store = open(directory.path());
    let indexed = copied(directory.path(), true);
    store.remove(session(2)).unwrap();
    assert!(matches!(store.remove(session(2)), Err(StoreError::NoSession(_))));
    let as_after_a_crash = tempfile::tempdir().unwrap();
    super::copy(&indexed.path().join("index"), &as_after_a_crash.path().join("index"));
    super::copy(&directory.path().join("journal"), &as_after_a_crash.path().join("journal"));
    for opened in 0..3 {
        let store = open(as_after_a_crash.path());
        assert!(!history(&store).contains_key(&session(2)), "opened {opened} times");
        store.settle().unwrap();
    }
}

#[test]
fn collection_of_damaged_journal_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (kept, _, expected) = half_removed(directory.path());
    let path = &segments(directory.path())[1];
    let commits: Vec<_> = frames_of(path).into_iter().filter(|frame| frame.kind == COMMIT).collect();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[commits[0].at + 30] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let before = snapshot_of_disk(&directory.path().join("journal"));
    for rehearse in [true, false] {
        let refused = LocalStore::collect(directory.path(), rehearse);
        assert!(matches!(refused, Err(StoreError::Damaged { segment: 2, .. })), "{refused:?}");
        assert!(snapshot_of_disk(&directory.path().join("journal")) == before, "something was changed");
    }
    bytes[commits[0].at + 30] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    check(directory.path(), &kept, &expected, "after the damage was undone by hand");
}

#[test]
fn packed_segment_reads_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 3, 42);
    let expected = history(&store);
    drop(store);
    let raw = segments(directory.path());
    let store = LocalStore::open(directory.path(), packing()).unwrap();
    let packed = |number: u32| directory.path().join(format!("journal/{number:08}.pak"));
    let done = || packed(1).exists() && packed(2).exists() && !raw[0].exists() && !raw[1].exists();
    eventually("two segments are packed", done);
    assert_same(&history(&store), &expected, "while open");
    assert!(raw[2].exists(), "the last one is not packed");
    record(&store, note(session(0), b"more"));
    drop(store);
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let store = open(directory.path());
    for digest in &recording.contents {
        assert_eq!(Digest::of(&store.content(digest).unwrap()), *digest);
    }
    store.remove(session(3)).unwrap();
    let mut expected = history(&store);
    drop(store);
    expected.remove(&session(3));
    LocalStore::collect(directory.path(), false).unwrap();
    check(directory.path(), &[], &expected, "after a collection of packed segments");
    assert_eq!(LocalStore::collect(directory.path(), true).unwrap(), GcReport::default());
}

#[test]
fn packing_leftovers_are_removed_on_open() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = recorded(directory.path(), 2, 43);
    let expected = history(&store);
    drop(store);
    let raw = copied(directory.path(), false);
    let journal = directory.path().join("journal");
    let packing = LocalStore::open(directory.path(), packing()).unwrap();
    let done = || journal.join("00000001.pak").exists() && !journal.join("00000001.seg").exists();
    eventually("the first segment is packed", done);
    drop(packing);
    std::fs::copy(raw.path().join("journal/00000001.seg"), journal.join("00000001.seg")).unwrap();
    std::fs::write(journal.join("00000002.tmp"), b"unfinished").unwrap();
    check(directory.path(), &[], &expected, "both .seg and .pak");
    let names: Vec<_> = segments(directory.path()).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["00000001.pak", "00000002.seg"]);
}

/// The base of a patch must stay, also without its own snapshot; other bases must go.
#[test]
fn collection_keeps_what_snapshots_are_patches_of() {
    let (directory, store) = fresh();
    let mut random = Random(44);
    for _ in 0..9 {
        record(&store, note(session(1), b"event"));
    }
    let mut bytes = random.bytes(400_000);
    let put = |seq: u64, bytes: Vec<u8>| {
        let slice = EncodedSlice { name: "Odd".into(), version: 1, blocks: vec![bytes.into()] };
        let (session, time) = (session(1), Timestamp(seq as i64));
        let snapshot = Snapshot { session, seq, time, unreadable: 0, slices: vec![slice] };
        (store.put_snapshot(&snapshot).unwrap(), snapshot)
    };
    let (whole, _) = put(1, bytes.clone());
    bytes[200_000] ^= 1;
    let (patch, second) = put(2, bytes.clone());
    let (whole_again, _) = put(3, random.bytes(400_000));
    assert!(whole > 400_000 && patch < 1_000 && whole_again > 400_000, "{whole} {patch} {whole_again}");
    store.drop_snapshot(session(1), 1).unwrap();
    store.drop_snapshot(session(1), 3).unwrap();
    drop(store);
    let report = LocalStore::collect(directory.path(), false).unwrap();
    assert!((30..50).contains(&report.snapshot_blocks), "the third in rows: {report:?}");
    assert_eq!(LocalStore::collect(directory.path(), false).unwrap(), GcReport::default());
    let store = open(directory.path());
    assert_eq!(store.snapshots(session(1)).unwrap(), [2]);
    assert_eq!(store.snapshot(session(1), 9).unwrap(), Some(second));
    store.drop_snapshot(session(1), 2).unwrap();
    drop(store);
    assert!(LocalStore::collect(directory.path(), false).unwrap().snapshot_blocks > 30);
    assert_eq!(LocalStore::fsck(directory.path(), false).unwrap().problems, []);
    let used = open(directory.path()).usage().unwrap();
    assert!(used.iter().all(|used| used.what != "snapshots" || used.disk_bytes == 0), "{used:?}");
}
