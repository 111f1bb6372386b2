//! Processes that end during a fork, a removal or a collection, and manifests of earlier programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::sharing::{Family, in_directory, rest, text, view, world};
use crate::backends::disk::OverlayDisk;
use crate::backends::disk::overlay::cut_after;
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::testing::eventually;

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

/// Creates overlays in the layout before the pool: each has its own layers by number next to its list, which refers to
/// others' as `OWNER/NUMBER`, and marks in the owner's `users`.
fn lay_out_as_before(family: &Family, names: &[&str]) {
    let pool = family.all().join("layers");
    for name in names {
        let list = family.root(name).join("list");
        let text = fs::read(&list).unwrap();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let lines = String::from_utf8(text[..end].to_vec()).unwrap();
        let (boot, layers) = lines.split_once('\n').unwrap();
        let mut old = format!("{boot}\n");
        for layer in layers.lines() {
            let (owner, number) = layer.rsplit_once('.').unwrap();
            if owner == *name {
                old += &format!("{number}\n")
            } else {
                old += &format!("{owner}/{number}\n")
            }
            mark(family, owner, name, number);
        }
        fs::write(&list, [old.as_bytes(), &text[end..]].concat()).unwrap();
    }
    for layer in family.layers() {
        let (owner, number) = layer.rsplit_once('.').unwrap();
        fs::create_dir_all(family.root(owner).join("layers")).unwrap();
        fs::rename(pool.join(&layer), family.root(owner).join("layers").join(number)).unwrap();
    }
    fs::remove_dir_all(&pool).unwrap();
}

fn mark(family: &Family, owner: &str, user: &str, number: &str) {
    if owner != user {
        let users = family.root(owner).join("users");
        fs::create_dir_all(&users).unwrap();
        drop(fs::remove_file(users.join(user)));
        symlink(number, users.join(user)).unwrap();
    }
}

fn is_migrated(root: &Path) -> bool {
    !["layers", "users", "gone"].iter().any(|name| root.join(name).exists())
}

#[test]
fn opening_cut_off_leaves_every_overlay_as_it_was() {
    let open = |family: &Family, (): ()| drop(opened(family, "parent"));
    let check = |family: &Family, _| assert!(has(family, "child", "a/one") && has(family, "parent", "parent's"));
    cut_everywhere(|family| drop(parent_with_child(family)), open, check);
    let before = |family: &Family| {
        drop(parent_with_child(family));
        lay_out_as_before(family, &["parent", "child"]);
    };
    let child = |family: &Family, (): ()| drop(opened(family, "child"));
    cut_everywhere(before, child, check);
}

/// Opens an overlay and mounts it, if possible.
fn opened(family: &Family, name: &str) -> Option<OverlayDisk> {
    let disk = OverlayDisk::open(family.options(name)).ok().flatten()?;
    disk.tree().is_ok().then_some(disk)
}

#[test]
fn lists_of_earlier_programs_migrate_when_they_are_opened() {
    for first in ["parent", "child", "grandchild"] {
        let Some(family) = Family::new() else { return };
        let parent = parent_with_child(&family);
        let mut child = family.open("child").unwrap();
        fs::write(view(&child).join("a/one"), "child's").unwrap();
        rest(&mut child);
        assert!(child.share("grandchild").unwrap());
        drop((parent, child));
        lay_out_as_before(&family, &["parent", "child", "grandchild"]);

        let others = ["grandchild", "child", "parent"].into_iter().filter(|name| *name != first);
        for name in [first].into_iter().chain(others) {
            let one = if name == "parent" { "parent's" } else { "child's" };
            let mut disk = family.open(name).unwrap();
            assert_eq!(
                (text(&disk, "a/one").unwrap(), text(&disk, "a/b/two").unwrap()),
                (one.into(), "a/b/two".into())
            );
            if name == "grandchild" {
                assert_eq!(disk.dirty().unwrap(), [], "{first}: known files stay known");
            }
            drop(disk);
            // Overlays that were not opened yet keep their layers.
            family.sweep();
        }
        assert!(["parent", "child", "grandchild"].iter().all(|name| is_migrated(&family.root(name))), "{first}");
        for name in ["parent", "child", "grandchild"] {
            family.dir(name).remove().unwrap();
        }
        assert_eq!((in_directory(&family.all()), family.layers()), (vec!["layers".to_owned()], Vec::new()));
    }
}

#[test]
fn overlay_that_an_earlier_program_removed_goes_with_the_next_sweep() {
    let Some(family) = Family::new() else { return };
    drop(parent_with_child(&family));
    lay_out_as_before(&family, &["parent", "child"]);
    let root = family.root("parent");
    fs::remove_file(root.join("list")).unwrap();
    fs::write(root.join("gone"), "").unwrap();
    let held = family.dir("parent").try_hold().unwrap().unwrap();
    family.sweep();
    assert!(root.join("gone").exists(), "another process may be creating it again");
    drop(held);
    // A new process of another test inherits the lock until it executes its program.
    eventually("a sweep removes it", || {
        family.sweep();
        !family.home("parent").exists()
    });
    assert!(has(&family, "child", "a/one"));
    family.dir("child").remove().unwrap();
    assert_eq!(family.layers(), Vec::<String>::new());
}

#[test]
fn removal_of_an_overlay_of_an_earlier_program_leaves_what_others_name() {
    let Some(family) = Family::new() else { return };
    drop(parent_with_child(&family));
    lay_out_as_before(&family, &["parent", "child"]);
    family.dir("parent").remove().unwrap();
    assert!(!family.home("parent").exists());
    assert_eq!(family.layers(), ["parent.0"]);
    assert!(has(&family, "child", "a/one"));
}
