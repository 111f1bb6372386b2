//! Overlays that are given a copy of what little another one has changed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::rig::{assert_covered, path};
use super::sharing::{Family, file, in_directory, rest, text, view, world};
use crate::backends::FileChange;
use crate::backends::disk::{LazyOverlay, OverlayDisk, WorkspaceDisk};

#[test]
fn small_layer_is_copied_whole() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    let at = |name: &str| view(&parent).join(name);
    fs::write(at("a/one"), "changed").unwrap();
    fs::set_permissions(at("a/one"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::remove_file(at("top")).unwrap();
    fs::remove_dir_all(at("a/b")).unwrap();
    fs::create_dir(at("a/b")).unwrap();
    fs::write(at("a/b/instead"), "").unwrap();
    symlink("nowhere", at("a/b/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // More than a new one would get.
    fs::set_permissions(at("pipe"), fs::Permissions::from_mode(0o666)).unwrap();
    setxattr(at("a"), "user.overlay.theirs", b"kept", XattrFlags::empty()).unwrap();
    setxattr(at("a/one"), "user.note", b"noted", XattrFlags::empty()).unwrap();
    rest(&mut parent);
    let (before, layers) = (world(&parent), in_directory(&family.root("parent").join("layers")));
    let modified = |disk: &OverlayDisk, name: &str| fs::metadata(view(disk).join(name)).unwrap();
    assert!(parent.share("child").unwrap());

    assert_eq!(in_directory(&family.root("parent").join("layers")), layers, "nothing was sealed");
    assert_eq!(parent.touched().unwrap(), []);
    let mut child = family.open("child").unwrap();
    assert_eq!((world(&child), world(&parent)), (before.clone(), before.clone()));
    assert_eq!(child.touched().unwrap(), []);
    assert!(!view(&child).join("a/b/two").exists(), "what another directory has taken the place of does not show");
    let pipe = fs::metadata(view(&child).join("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo() && pipe.mode() & 0o777 == 0o666, "{:o}", pipe.mode());
    let (theirs, own) = (modified(&parent, "a/one"), modified(&child, "a/one"));
    assert_eq!((theirs.mode(), theirs.mtime_nsec(), theirs.uid()), (own.mode(), own.mtime_nsec(), own.uid()));
    assert_eq!(modified(&parent, "a/b").mtime_nsec(), modified(&child, "a/b").mtime_nsec());
    let mut note = [0; 8];
    assert_eq!(
        getxattr(view(&child).join("a/one"), "user.note", &mut note).map(|length| &note[..length]),
        Ok(&b"noted"[..])
    );

    // In place: not even an inode is shared.
    fs::write(view(&parent).join("a/b/instead"), "parent's").unwrap();
    child.apply(&[file("a/one", "child's"), FileChange::Delete { path: path("pipe") }]).unwrap();
    assert_eq!(
        (text(&child, "a/b/instead").unwrap(), text(&parent, "a/one").unwrap()),
        (String::new(), "changed".to_owned())
    );
    for _ in 0..6 {
        child.seal().unwrap();
    }
    assert_eq!((text(&child, "a/one").unwrap(), text(&child, "top")), ("child's".to_owned(), None));
}

#[test]
fn copied_layer_keeps_moved_directories() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    match fs::rename(view(&parent).join("a"), view(&parent).join("moved")) {
        // In a user namespace a directory of a lower layer can't be renamed.
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => return,
        other => other.unwrap(),
    }
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    let child = family.open("child").unwrap();
    assert_eq!(world(&child), before);
    assert_eq!(text(&child, "moved/b/two").unwrap(), "a/b/two");
    family.kin("parent").remove().unwrap();
    drop(child);
    assert_eq!(world(&family.open("child").unwrap()), before);
}

#[test]
fn large_or_copied_layer_is_sealed() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    let sealed = |parent: &mut OverlayDisk, child: &str| {
        rest(parent);
        let before = in_directory(&family.root("parent").join("layers"));
        assert!(parent.share(child).unwrap());
        assert_eq!(world(&family.open(child).unwrap()), world(parent), "{child}");
        in_directory(&family.root("parent").join("layers")) != before
    };
    fs::write(view(&parent).join("top"), "1").unwrap();
    assert!(!sealed(&mut parent, "copied"));
    assert!(sealed(&mut parent, "again"), "nothing has changed since");
    assert!(!sealed(&mut parent, "empty"), "there is nothing to seal");
    fs::write(view(&parent).join("top"), "2").unwrap();
    assert!(!sealed(&mut parent, "copied-again"));
    parent.apply(&[file("top", "3")]).unwrap();
    assert!(!sealed(&mut parent, "changed-by-us"));
    for number in 0..20 {
        fs::write(view(&parent).join(format!("many{number}")), "").unwrap();
    }
    assert!(sealed(&mut parent, "many"));
    fs::write(view(&parent).join("large"), vec![7; (1 << 20) + 1]).unwrap();
    assert!(sealed(&mut parent, "large"));
    // Large to read, and on the disk nothing.
    fs::File::create(view(&parent).join("sparse")).unwrap().set_len(64 << 20).unwrap();
    assert!(sealed(&mut parent, "sparse"));
}

#[test]
fn copied_layer_keeps_unscanned_changes_touched() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    let before = world(&parent);
    fs::write(view(&parent).join("a/unseen"), "unseen").unwrap();
    assert!(parent.share("child").unwrap());
    for disk in [&mut parent, &mut family.open("child").unwrap()] {
        assert_covered("copied", &before, &world(disk), &disk.touched().unwrap());
    }
}

#[test]
fn copied_layer_outlives_its_owner() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    fs::write(view(&parent).join("a/one"), "changed").unwrap();
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    let mut child = LazyOverlay::open(family.options("child")).unwrap().unwrap();
    assert!(child.share("early").unwrap());
    assert_eq!(in_directory(&family.root("child")), ["layers", "list", "users"]);
    child.apply(&[file("a/b/two", "child's")]).unwrap();
    rest(&mut child);
    assert!(child.share("late").unwrap());
    drop((parent, child));
    for gone in ["parent", "child"] {
        family.kin(gone).remove().unwrap();
    }
    assert_eq!(family.users("child"), ["early", "late"]);
    assert_eq!(world(&family.open("early").unwrap()), before);
    let late = family.open("late").unwrap();
    assert_eq!((text(&late, "a/one").unwrap(), text(&late, "a/b/two").unwrap()), ("changed".into(), "child's".into()));
    drop(late);
    for gone in ["early", "late"] {
        family.kin(gone).remove().unwrap();
    }
    assert_eq!(in_directory(&family.all()), Vec::<String>::new());
}

/// What a process leaves that is killed while it copies: a layer, and no list.
#[test]
fn half_copied_layer_is_ignored() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    fs::write(view(&parent).join("a/one"), "changed").unwrap();
    rest(&mut parent);
    fs::create_dir_all(family.root("child").join("layers/0/tree")).unwrap();
    fs::write(family.root("child").join("layers/0/tree/half"), "half").unwrap();
    assert!(family.open("child").is_none());
    assert!(parent.share("child").unwrap());
    let child = family.open("child").unwrap();
    assert_eq!((text(&child, "a/one").unwrap(), text(&child, "half")), ("changed".to_owned(), None));
    assert_eq!(in_directory(&family.root("child").join("layers")).len(), 1, "only its upper layer");
}
