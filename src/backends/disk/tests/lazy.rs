//! Forked overlays before their first use.

use std::fs;

use super::rig::path;
use super::sharing::{Family, file, in_directory, rest, text, view};
use crate::backends::DirtyPath;
use crate::backends::disk::OverlayDisk;
use crate::backends::disk::workspace_disk::WorkspaceDisk;

#[test]
fn fork_untouched_has_only_a_manifest() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let layers = family.layers();
    let mut child = family.open("child").unwrap();
    assert_eq!(child.dirty().unwrap(), []);
    child.mark_clean().unwrap();
    child.seal_if_large().unwrap();
    child.detach(1).unwrap();
    assert_eq!(in_directory(&family.root("child")), ["list"]);
    // A grandchild shares the parent's layers.
    assert!(child.share("grandchild").unwrap() && !child.share("grandchild").unwrap());
    assert_eq!((in_directory(&family.root("child")), family.layers()), (vec!["list".to_owned()], layers));
    drop(child);

    let mut grandchild = family.open("grandchild").unwrap();
    grandchild.apply(&[file("top", "grandchild's")]).unwrap();
    assert_eq!(text(&grandchild, "top").unwrap(), "grandchild's");
    assert_eq!(grandchild.dirty().unwrap(), []);
    assert_eq!(text(&family.open("child").unwrap(), "top").unwrap(), "top");
    assert_eq!(text(&parent, "top").unwrap(), "top");
}

#[test]
fn fork_of_dirty_parent_names_it_until_settled() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    fs::write(view(&parent).join("a/one"), "by somebody").unwrap();
    assert!(parent.share("child").unwrap());
    let named = |disk: &mut OverlayDisk| disk.dirty().unwrap().contains(&DirtyPath::Entry(path("a/one")));
    let mut child = family.open("child").unwrap();
    child.mark_clean().unwrap();
    assert!(named(&mut child), "it was settled before a scan");
    assert!(child.share("grandchild").unwrap() && named(&mut family.open("grandchild").unwrap()));
    child.mark_clean().unwrap();
    assert_eq!(child.dirty().unwrap(), []);
    drop(child);
    assert!(named(&mut family.open("child").unwrap()), "the next process does not know that it was recorded");
}

#[test]
fn fork_without_its_layers_is_blank() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let mut early = family.open("child").unwrap();
    drop(parent);
    fs::remove_dir_all(family.all().join("layers")).unwrap();
    let error = early.apply(&[file("top", "x")]).unwrap_err().to_string();
    assert!(error.contains("the layers that it shares are gone"), "{error}");
    assert!(family.open("child").is_none());
}
