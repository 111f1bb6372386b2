//! Processes that end during a fork, a removal or a collection.

use std::fs;

use super::sharing::{Family, in_directory, rest, text, view, world};
use crate::backends::disk::OverlayDisk;
use crate::backends::disk::overlay::cut_after;
use crate::backends::disk::workspace_disk::WorkspaceDisk;

/// Runs an action on fresh overlays, interrupted after each of its steps in turn. `check` gets the remains, and true if
/// nothing was interrupted.
fn cut_everywhere<T>(prepare: impl Fn(&Family) -> T, act: impl Fn(&Family, T), check: impl Fn(&Family, bool)) {
    for steps in 0.. {
        let Some(family) = Family::new() else { return };
        let disk = prepare(&family);
        cut_after(Some(steps));
        act(&family, disk);
        let is_whole = cut_after(None);
        check(&family, is_whole);
        family.sweep();
        check(&family, is_whole);
        let named: String = in_directory(&family.all())
            .iter()
            .filter_map(|name| fs::read_to_string(family.root(name).join("list")).ok())
            .collect();
        for layer in family.layers() {
            assert!(named.lines().any(|line| line == layer), "after {steps} steps {layer} remains");
        }
        if is_whole {
            assert!(steps > 1);
            return;
        }
    }
}

/// A parent with changes in its upper layer, and a child.
fn parent_with_child(family: &Family) -> OverlayDisk {
    let mut parent = family.parent_of(&["child"]);
    fs::write(view(&parent).join("a/one"), "parent's").unwrap();
    rest(&mut parent);
    parent
}

fn has(family: &Family, name: &str, one: &str) -> bool {
    family.open(name).is_some_and(|disk| {
        assert_eq!((text(&disk, "a/one").unwrap(), text(&disk, "top").unwrap()), (one.to_owned(), "top".to_owned()));
        true
    })
}

#[test]
fn fork_cut_off_leaves_the_parent_as_it_was_and_the_fork_whole_or_blank() {
    let act = |_: &Family, mut parent: OverlayDisk| {
        let before = world(&parent);
        drop(parent.share("fork"));
        assert_eq!(world(&parent), before);
    };
    cut_everywhere(parent_with_child, act, |family, is_whole| {
        assert!(has(family, "parent", "parent's") && has(family, "child", "a/one"));
        assert!(has(family, "fork", "parent's") || !is_whole);
    });
}

#[test]
fn removal_cut_off_leaves_others_as_they_were() {
    let act = |family: &Family, parent: OverlayDisk| {
        drop(parent);
        drop(family.dir("parent").remove());
    };
    cut_everywhere(parent_with_child, act, |family, is_whole| {
        assert!(has(family, "child", "a/one"));
        assert!(!is_whole || !family.home("parent").exists());
        if !is_whole {
            // Complete or blank.
            has(family, "parent", "parent's");
        }
    });
}

#[test]
fn flatten_cut_off_leaves_the_files_as_they_were() {
    let act = |_: &Family, mut parent: OverlayDisk| {
        let before = world(&parent);
        drop(parent.seal());
        assert_eq!(world(&parent), before);
    };
    let prepare = |family: &Family| {
        let mut parent = parent_with_child(family);
        for round in 0..3 {
            parent.seal().unwrap();
            fs::write(view(&parent).join("round"), round.to_string()).unwrap();
        }
        rest(&mut parent);
        parent
    };
    cut_everywhere(prepare, act, |family, _| {
        assert!(has(family, "parent", "parent's") && has(family, "child", "a/one"))
    });
}

#[test]
fn collection_cut_off_leaves_every_overlay_as_it_was() {
    let prepare = |family: &Family| {
        let parent = parent_with_child(family);
        for stray in ["parent.77", "gone.0", ".gone.1"] {
            fs::create_dir_all(family.all().join("layers").join(stray).join("tree/a")).unwrap();
        }
        parent
    };
    let act = |family: &Family, _: OverlayDisk| {
        drop(crate::backends::disk::OverlayDir::sweep(&family.all(), "layers/overlay"))
    };
    cut_everywhere(prepare, act, |family, _| {
        assert!(has(family, "parent", "parent's") && has(family, "child", "a/one"))
    });
}

#[test]
fn opening_cut_off_leaves_every_overlay_as_it_was() {
    let open = |family: &Family, (): ()| drop(opened(family, "parent"));
    let check = |family: &Family, _| assert!(has(family, "child", "a/one") && has(family, "parent", "parent's"));
    cut_everywhere(|family| drop(parent_with_child(family)), open, check);
}

/// Opens an overlay and mounts it, if possible.
fn opened(family: &Family, name: &str) -> Option<OverlayDisk> {
    let disk = OverlayDisk::open(family.options(name)).ok().flatten()?;
    disk.tree().is_ok().then_some(disk)
}
