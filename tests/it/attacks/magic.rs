//! Links of `/proc`, which lead to another place for everybody: for this process out of every workspace.

use std::fs::File;
use std::os::fd::AsRawFd;

use foldspace::EntryPath;
use foldspace::event::Node;
use foldspace::tools::materialise;
use serde_json::json;

use super::escape::{ENTRY, SECRET, Victim, calls};
use crate::rig::{Kind, Rig, walk};

/// Every file tool by each of them, and what becomes of them in the history.
fn they_lead_nowhere(rig: &Rig) {
    let victim = Victim::new();
    let (directory, file) = (File::open(victim.path()).unwrap(), File::open(victim.path().join("secret")).unwrap());
    let below = victim.path().display().to_string();
    let here = std::process::id();
    let (directory, file) = (directory.as_raw_fd(), file.as_raw_fd());
    rig.ok("true");
    // The targets as links, and where below them the victim is for this process.
    let links = [
        ("root", "/proc/self/root".to_owned(), &below[..]),
        ("thread", "/proc/thread-self/root".to_owned(), &below),
        ("first", "/proc/1/root".to_owned(), &below),
        ("pid", format!("/proc/{here}/root"), &below),
        ("handle", format!("/proc/self/fd/{directory}"), ""),
        ("again", "handle".to_owned(), ""),
        ("by-pid", format!("/proc/{here}/fd/{directory}"), ""),
    ];
    let to_files = [("file", format!("/proc/self/fd/{file}")), ("file-by-pid", format!("/proc/{here}/fd/{file}"))];
    let targets = links.iter().map(|(name, target, _)| (*name, target)).chain(to_files.iter().map(|(n, t)| (*n, t)));
    for (name, target) in targets.chain([("cwd", &"/proc/self/cwd".to_owned()), ("exe", &"/proc/self/exe".to_owned())])
    {
        rig.ok(&format!("ln -s {target} {name}"));
        let known = rig.slice();
        let entry = known.get(&EntryPath::lookup(name).unwrap()).unwrap();
        assert_eq!(entry.node, Node::Symlink { target: target.clone().into_bytes() });
    }
    for (name, _, below) in &links {
        for (tool, params) in calls(&format!("{name}{below}"), "file") {
            let step = rig.call(tool, params.clone());
            let shown = &step.outcome.text;
            assert!(!shown.contains(SECRET) && !shown.contains(ENTRY), "{tool} {params}: {shown}");
            let only_looks = ["glob", "grep", "ls"].contains(&tool);
            assert!(only_looks || !step.outcome.is_ok(), "{tool} {params}: {shown}");
            victim.assert_untouched();
        }
    }
    for path in ["file-by-pid", "exe", "cwd/Cargo.toml", "cwd/src/lib.rs", "root/etc/passwd"] {
        let outcome = rig.bare("read_file", json!({ "file_path": path }));
        assert!(!outcome.is_ok(), "{path}: {}", outcome.text);
    }
    // A tree with them can be made elsewhere, where they are links again.
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    materialise(rig.session(), &rig.session().state().unwrap(), &copy).unwrap();
    assert_eq!(walk(&copy), rig.known());
    // They go as any other link.
    assert!(rig.call("rm", json!({ "path": "handle" })).outcome.is_ok());
    rig.ok("rm root first pid file exe cwd && mkdir root && echo mine > root/secret");
    assert!(rig.call("read_file", json!({ "file_path": "root/secret" })).outcome.text.contains("mine"));
    victim.assert_untouched();
    rig.verify();
}

#[test]
fn proc_links_on_host_lead_nowhere() {
    they_lead_nowhere(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn proc_links_on_overlay_lead_nowhere() {
    if let Some(rig) = Rig::new(Kind::Overlay) {
        they_lead_nowhere(&rig);
    }
}

#[test]
fn proc_links_on_plain_directory_lead_nowhere() {
    if let Some(rig) = Rig::new(Kind::Plain) {
        they_lead_nowhere(&rig);
    }
}

/// Commands, which see `/proc` themselves, are not let in by the directory that they begin in.
#[test]
fn command_directory_behind_proc_link_is_refused() {
    for kind in [Kind::Host, Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        rig.ok("ln -s /proc/self/root root && ln -s /proc/self/cwd cwd && ln -s /proc/1/root/tmp first");
        for cwd in ["root", "root/tmp", "cwd", "first"] {
            let outcome = rig.bare("shell_execute", json!({ "command": "pwd -P", "cwd": cwd }));
            assert!(!outcome.is_ok(), "{cwd}: {}", outcome.text);
        }
    }
}
