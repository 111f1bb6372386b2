//! What an overlay that others have shared with is before anything is done in it.

use std::fs;

use super::rig::path;
use super::sharing::{Family, file, in_directory, rest, text, view};
use crate::backends::disk::{DirtyPath, LazyOverlay, WorkspaceDisk};

fn open(family: &Family, name: &str) -> LazyOverlay {
    LazyOverlay::open(family.options(name)).unwrap().unwrap()
}

#[test]
fn lazy_child_has_no_layer() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let mut child = open(&family, "child");
    assert_eq!(child.touched().unwrap(), []);
    child.settle().unwrap();
    assert!(!child.seal_if_large().unwrap());
    child.detach(1).unwrap();
    assert_eq!(in_directory(&family.root("child")), ["list"]);
    // A grandchild has it from the parent.
    assert!(child.share("grandchild").unwrap() && !child.share("grandchild").unwrap());
    assert_eq!(in_directory(&family.root("child")), ["list"]);
    assert_eq!(family.users("parent"), ["child", "grandchild"]);
    drop(child);

    let mut grandchild = open(&family, "grandchild");
    grandchild.apply(&[file("top", "grandchild's")]).unwrap();
    assert_eq!(text(&grandchild, "top").unwrap(), "grandchild's");
    assert_eq!(grandchild.touched().unwrap(), []);
    assert_eq!(text(&open(&family, "child"), "top").unwrap(), "top");
    assert_eq!(text(&parent, "top").unwrap(), "top");
}

#[test]
fn lazy_child_reports_unknown_changes_until_settled() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    fs::write(view(&parent).join("a/one"), "by somebody").unwrap();
    assert!(parent.share("child").unwrap());
    let named = |touched: &[DirtyPath]| touched.contains(&DirtyPath::Entry(path("a/one")));
    let mut child = open(&family, "child");
    child.settle().unwrap();
    assert!(named(&child.touched().unwrap()), "nobody has looked before that was settled");
    assert!(child.share("grandchild").unwrap() && named(&open(&family, "grandchild").touched().unwrap()));
    child.settle().unwrap();
    assert_eq!(child.touched().unwrap(), []);
    drop(child);
    assert!(named(&open(&family, "child").touched().unwrap()), "nothing was recorded, as far as the next one knows");
}

#[test]
fn lazy_child_without_layers_is_none() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let mut early = open(&family, "child");
    drop(parent);
    fs::remove_dir_all(family.root("parent").join("layers")).unwrap();
    let error = early.apply(&[file("top", "x")]).unwrap_err().to_string();
    assert!(error.contains("the layers that it shares are gone"), "{error}");
    assert!(LazyOverlay::open(family.options("child")).unwrap().is_none());
}
