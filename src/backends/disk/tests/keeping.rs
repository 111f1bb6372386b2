//! Scan results stored for another process.

use std::fs;
use std::path::{Path, PathBuf};

use super::rig::{names, path, plain_in, tick, unknown};
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::backends::disk::{KeptIndex, PlainDisk, PlainOptions};
use crate::backends::{DirtyPath, KeptAt};
use crate::engine::clock::Timestamp;
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;

const AT: KeptAt = KeptAt { session: SessionId::from_bytes([3; 16]), seq: 8, time: Timestamp(5) };

fn files(top: &Path) {
    fs::create_dir_all(top.join("a/b")).unwrap();
    for file in ["one", "a/two", "a/b/three"] {
        fs::write(top.join(file), file).unwrap();
    }
}

fn all() -> Vec<DirtyPath> {
    vec![DirtyPath::Subtree(EntryPath::root())]
}

struct Place(tempfile::TempDir);

impl Place {
    /// A directory with a stored index and without fresh files.
    fn kept() -> Self {
        let place = Self(unknown(&files).directory);
        tick();
        let mut disk = place.open(true);
        assert_eq!(look(&mut disk), all());
        disk.keep(&AT);
        assert!(place.index().exists());
        place
    }

    fn index(&self) -> PathBuf {
        self.0.path().join("kept/index")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join("files").join(path)
    }

    fn open(&self, may_watch: bool) -> PlainDisk {
        let kept = Some(KeptIndex::at(self.index()));
        plain_in(self.0.path(), PlainOptions { kept, may_watch, ..PlainOptions::default() })
    }

    fn resumed(&self) -> PlainDisk {
        let mut disk = self.open(true);
        disk.resume(&|at| (*at == AT).then(Vec::new));
        disk
    }
}

fn look(disk: &mut PlainDisk) -> Vec<DirtyPath> {
    let touched = disk.dirty().unwrap();
    disk.mark_clean().unwrap();
    touched
}

#[test]
fn index_kept_names_only_what_changed_since() {
    let place = Place::kept();
    assert_eq!(look(&mut place.resumed()), []);
    fs::write(place.at("a/two"), "TWO").unwrap();
    fs::remove_file(place.at("one")).unwrap();
    for may_watch in [true, false] {
        let mut disk = place.open(may_watch);
        disk.resume(&|_| Some(Vec::new()));
        let touched = look(&mut disk);
        assert!(names(&touched, "a/two") && names(&touched, "one") && !names(&touched, "a/b/three"), "{touched:?}");
    }
}

#[test]
fn index_kept_names_what_the_history_changed_since() {
    let place = Place::kept();
    let mut disk = place.open(true);
    disk.resume(&|_| Some(vec![path("a/b"), path("gone/below")]));
    let touched = look(&mut disk);
    let below = |path: &EntryPath| touched.iter().any(|one| *one == DirtyPath::Subtree(path.clone()));
    assert!(below(&path("a/b")) && names(&touched, "gone") | names(&touched, "gone/below"), "{touched:?}");
    assert!(!names(&touched, "one"), "{touched:?}");
}

#[test]
fn index_kept_of_unknown_position_is_not_used() {
    let place = Place::kept();
    let mut disk = place.open(true);
    disk.resume(&|_| None);
    assert_eq!(look(&mut disk), all());
}

#[test]
fn index_kept_in_the_tick_of_a_change_reads_it_again() {
    let place = Place(unknown(&files).directory);
    let is_read_again = || {
        let mut disk = place.open(true);
        fs::write(place.at("one"), "1st").unwrap();
        look(&mut disk);
        disk.keep(&AT);
        drop(disk);
        names(&look(&mut place.resumed()), "one")
    };
    // On a busy machine a tick can pass between the change and the scan.
    assert!((0..50).any(|_| is_read_again()), "a change in the same tick does not show");
}

#[test]
fn index_of_another_directory_is_not_used() {
    let place = Place::kept();
    fs::rename(place.at(""), place.0.path().join("old")).unwrap();
    fs::create_dir(place.at("")).unwrap();
    files(&place.at(""));
    assert_eq!(look(&mut place.resumed()), all());
}

#[test]
fn index_damaged_is_not_used() {
    let place = Place::kept();
    let bytes = fs::read(place.index()).unwrap();
    fs::write(place.index(), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(look(&mut place.resumed()), all());
}

#[test]
fn index_distrusted_or_unsettled_is_not_kept() {
    for is_distrusted in [true, false] {
        let place = Place(unknown(&files).directory);
        let mut disk = place.open(is_distrusted);
        disk.dirty().unwrap();
        if is_distrusted {
            disk.mark_clean().unwrap();
            disk.distrust();
        }
        disk.keep(&AT);
        assert!(!place.index().exists(), "{is_distrusted}");
    }
}

#[test]
fn index_keeps_what_was_made_through_the_workspace() {
    use crate::backends::FileChange;
    use crate::engine::event::Node;
    let place = Place::kept();
    let mut disk = place.resumed();
    look(&mut disk);
    let write = FileChange::Write {
        path: path("new/file"),
        node: Node::file(b"made", false),
        bytes: bytes::Bytes::from_static(b"made"),
        modified: None,
    };
    disk.apply(&[write]).unwrap();
    tick();
    assert_eq!(look(&mut disk), [], "it is known");
    disk.keep(&AT);
    drop(disk);
    let touched = look(&mut place.resumed());
    assert!(!names(&touched, "new/file"), "{touched:?}");
}
