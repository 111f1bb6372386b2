//! Random operations: every difference between two walks is reported.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::rig::{IN_NAMESPACE, WATCHED, on_each_with};

#[derive(Debug, Clone)]
pub(super) enum Act {
    Write(usize, u8),
    Remove(usize),
    Make(usize),
    Rename(usize, usize),
    Link(usize, u8),
    Hard(usize, usize),
    Execute(usize, bool),
    Again(usize),
    Settle,
}

/// Few paths, so that operations collide.
pub(super) const PATHS: [&str; 12] =
    ["a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/a", "a/a/b", "b/a/a", "b/b/b", "c", "c/c"];

pub(super) fn act() -> impl Strategy<Value = Act> {
    let at = || 0..PATHS.len();
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(path, byte)| Act::Write(path, byte % 3)),
        2 => at().prop_map(Act::Remove),
        3 => at().prop_map(Act::Make),
        4 => (at(), at()).prop_map(|(from, to)| Act::Rename(from, to)),
        1 => (at(), any::<u8>()).prop_map(|(path, byte)| Act::Link(path, byte % 2)),
        1 => (at(), at()).prop_map(|(from, to)| Act::Hard(from, to)),
        1 => (at(), any::<bool>()).prop_map(|(path, bit)| Act::Execute(path, bit)),
        2 => at().prop_map(Act::Again),
        3 => Just(Act::Settle),
    ]
}

/// Performs an action; impossible ones fail, as for any program.
pub(super) fn perform(top: &Path, act: &Act) {
    let at = |path: &usize| top.join(PATHS[*path]);
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let _ = match act {
        Act::Write(path, byte) if !is_link(&at(path)) => fs::write(at(path), [*byte]),
        Act::Write(..) | Act::Settle => Ok(()),
        Act::Remove(path) if at(path).is_dir() && !is_link(&at(path)) => fs::remove_dir_all(at(path)),
        Act::Remove(path) => fs::remove_file(at(path)),
        Act::Make(path) => fs::create_dir(at(path)),
        Act::Rename(from, to) => fs::rename(at(from), at(to)),
        Act::Link(path, byte) => symlink(format!("to{byte}"), at(path)),
        Act::Hard(from, to) => fs::hard_link(at(from), at(to)),
        Act::Execute(path, bit) if at(path).is_file() => {
            fs::set_permissions(at(path), fs::Permissions::from_mode(if *bit { 0o755 } else { 0o644 }))
        }
        Act::Execute(..) => Ok(()),
        Act::Again(path) => fs::remove_dir_all(at(path)).and_then(|()| fs::create_dir(at(path))),
    };
}

pub(super) fn begin(top: &Path) {
    for directory in ["a/a", "b/a"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    for file in ["a/b", "a/a/a", "b/a/a", "b/b"] {
        fs::write(top.join(file), file).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os(IN_NAMESPACE).is_some() { 8 } else { 32 }, ..ProptestConfig::default() })]

    #[test]
    fn scan_reports_random_changes(acts in proptest::collection::vec(act(), 1..60)) {
        on_each_with(&begin, |rig| {
            for step in acts.split(|act| matches!(act, Act::Settle)) {
                // The kernel does not report the other names of a file; see watching.rs.
                let is_told = |act: &&Act| rig.kind != WATCHED || !matches!(act, Act::Hard(..));
                let step: Vec<&Act> = step.iter().filter(is_told).collect();
                rig.watch(|top| step.iter().for_each(|act| perform(top, act)));
            }
        });
    }
}
