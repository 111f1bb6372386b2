//! What the world does to a store: other processes, directories that can't be written, full disks.

use std::path::Path;
use std::process::{Command, Stdio};

use foldspace::event::{Diagnostic, Digest};
use foldspace::store::{Durability, LocalStoreOptions};
use foldspace::{EventStore, LocalStore, StoreError};

use super::{Random, assert_same, fresh, history, note, open, record, session, small, try_history, with_content};
use crate::rig::{Disk, eventually, process};

fn refused<T>(outcome: Result<T, StoreError>) -> StoreError {
    outcome.err().expect("it should have been refused")
}

/// Remounts a disk. It is in use for a moment when another test starts a process, which has all open files until its
/// program begins.
fn remount(disk: &Disk, how: &str) {
    let mut mount = Command::new("mount");
    mount.args(["-o", &format!("remount,{how}")]).arg(disk.root());
    eventually("no process has its files open", || mount.status().unwrap().success());
}

/// Holds a store until the process is killed.
pub(crate) fn hold(directory: &str) {
    let _store = open(Path::new(directory));
    std::fs::write(Path::new(directory).join("held"), b"").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn store_in_use_names_its_lock_owner() {
    let (directory, store) = fresh();
    record(&store, note(session(1), b"one"));
    let here = format!("process {}", std::process::id());
    let tries: [(&str, &dyn Fn() -> StoreError); 4] = [
        ("open", &|| refused(LocalStore::open(directory.path(), small()))),
        ("check", &|| refused(LocalStore::fsck(directory.path(), false))),
        ("repair", &|| refused(LocalStore::fsck(directory.path(), true))),
        ("collect", &|| refused(LocalStore::collect(directory.path(), true))),
    ];
    for (what, attempt) in tries {
        let error = attempt();
        let StoreError::Locked { path, owner } = &error else { panic!("{what}: {error}") };
        assert!(path == directory.path() && here == format!("process {}", owner.process), "{what}: {error}");
        assert!(error.advice().is_some());
    }
    assert_same(&history(&LocalStore::open_reading(directory.path()).unwrap()), &history(&store), "reading beside it");
    drop(store);
    let mut child = process("hold", directory.path()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the child holds it", || directory.path().join("held").exists());
    let error = refused(LocalStore::open(directory.path(), small()));
    assert!(error.to_string().contains(&format!("process {}", child.id())), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(history(&open(directory.path())).len(), 1, "a dead owner.command holds nothing");
}

#[test]
fn store_on_read_only_disk_can_be_read() {
    let Some(disk) = Disk::new(16) else { return };
    let store = open(&disk.root().join("store"));
    record(&store, note(session(1), b"one"));
    let expected = history(&store);
    drop(store);
    remount(&disk, "ro");
    let error = refused(LocalStore::open(disk.root().join("store"), small()));
    let StoreError::Io { path, .. } = &error else { panic!("{error:?}") };
    assert!(path.starts_with(disk.root().join("store")) && error.to_string().contains("Read-only"), "{error}");
    let error = refused(LocalStore::open(disk.root().join("another"), small()));
    assert!(error.to_string().contains("another"), "{error}");
    assert_same(&history(&LocalStore::open_reading(disk.root().join("store")).unwrap()), &expected, "reading only");
    remount(&disk, "rw");
    assert_same(&history(&open(&disk.root().join("store"))), &expected, "writable again");
}

#[test]
fn open_of_a_file_names_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for path in [&file, &file.join("below")] {
        let error = refused(LocalStore::open(path, small()));
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
    let nowhere = directory.path().join("nowhere");
    assert!(refused(LocalStore::open_reading(&nowhere)).to_string().contains("nowhere"));
    assert!(refused(LocalStore::fsck(&nowhere, true)).to_string().contains("nowhere"));
    assert!(!nowhere.exists());
    // One that is there and not a store becomes one; what is in it stays.
    drop(open(directory.path()));
    assert!(file.exists());
}

/// Fills the disk with commits until one is refused; gives how many were acknowledged, and the error.
fn fill(store: &LocalStore, random: &mut Random) -> (u64, StoreError) {
    let mut done = store.head(session(1)).unwrap_or(0);
    for _ in 0..100_000 {
        let length = random.below(40_000) as usize;
        let (commit, _) = with_content(session(1), random.bytes(length));
        match store.submit(commit).and_then(|pending| pending.wait()) {
            Ok(committed) => {
                assert_eq!(committed.first, done + 1);
                done = committed.last;
            }
            Err(error) => return (done, error),
        }
    }
    panic!("the disk was never full");
}

fn check(store: &LocalStore, done: u64, context: &str) {
    let found = try_history(store).unwrap_or_else(|e| panic!("{context}: {e}"));
    let events = found.get(&session(1)).map_or(&[][..], Vec::as_slice);
    assert!(events.len() as u64 >= done, "{context}: {done} were acknowledged, {} are there", events.len());
    for event in events {
        let digest = Digest::from_bytes(event.event.bytes[..].try_into().unwrap());
        let content = store.content(&digest).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(Digest::of(&content), digest);
    }
}

#[test]
fn store_on_full_disk_keeps_every_acknowledged_event() {
    for (megabytes, durability) in (4..9).map(|n| (n, Durability::Synced)).chain([(6, Durability::Buffered)]) {
        let Some(disk) = Disk::new(megabytes) else { return };
        let context = format!("{megabytes} MiB, {durability:?}");
        let ballast = disk.root().join("ballast");
        std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
        let mut random = Random(80 + megabytes);
        let options = || LocalStoreOptions { durability, ..small() };
        let store = LocalStore::open(disk.root().join("store"), options()).unwrap_or_else(|e| panic!("{context}: {e}"));
        let (mut done, error) = fill(&store, &mut random);
        if durability == Durability::Buffered {
            // Taken is not written: only what was written is safe.
            done = 0;
        } else {
            assert!(matches!(&error, StoreError::Io { .. }), "{context}: {error:?}");
            assert!(
                error.to_string().contains("No space left") && error.advice().unwrap().to_string().contains("room"),
                "{error}"
            );
            check(&store, done, &context);
        }
        for _ in 0..2 {
            let error = refused(store.submit(note(session(1), b"no")).and_then(|pending| pending.wait()));
            assert!(matches!(error, StoreError::Poisoned(_)), "{context}: {error:?}");
            assert!(error.to_string().contains("No space left"), "{context}: {error}");
        }
        drop(store);
        still_full(&disk, done, &context);
        std::fs::remove_file(&ballast).unwrap();
        let store = LocalStore::open(disk.root().join("store"), options()).unwrap_or_else(|e| panic!("{context}: {e}"));
        check(&store, done, &format!("{context}, room made"));
        let head = store.head(session(1)).unwrap();
        assert_eq!(record(&store, note(session(2), b"usable again")).first, 1);
        assert_eq!(record(&store, with_content(session(1), &b"usable again"[..]).0).first, head + 1);
        drop(store);
        check(
            &LocalStore::open(disk.root().join("store"), options()).unwrap(),
            head + 1,
            &format!("{context}, opened again"),
        );
    }
}

/// While the disk is full a store opens or says why not, and is no worse afterwards.
fn still_full(disk: &Disk, done: u64, context: &str) {
    for _ in 0..3 {
        match LocalStore::open(disk.root().join("store"), small()) {
            Ok(store) => check(&store, done, &format!("{context}, still full")),
            Err(error) => assert!(error.to_string().contains("No space left"), "{context}: {error}"),
        }
    }
    check(&LocalStore::open_reading(disk.root().join("store")).unwrap(), done, &format!("{context}, reading only"));
}
