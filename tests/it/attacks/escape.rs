//! Links that lead out of the workspace, also such that come and go.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};
use serde_json::{Value, json};

use crate::rig::{Kind, Rig, walk};

/// A directory beside everything, with a secret in it that must stay one, and stay as it is.
pub(super) struct Victim(tempfile::TempDir);

pub(super) const SECRET: &str = "the secret of the victim";
/// The name of an entry that nobody names: whoever says it has looked.
pub(super) const ENTRY: &str = "seen-by-nobody";

impl Victim {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), SECRET).unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::create_dir(directory.path().join(ENTRY)).unwrap();
        Self(directory)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn assert_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.path().join("secret")).unwrap(), SECRET);
        assert_eq!(walk(self.path()).len(), 3);
    }
}

/// Every file tool, at a path that leads out by a link to a directory and one to a file.
pub(super) fn calls(directory: &str, file: &str) -> Vec<(&'static str, Value)> {
    let below = |name: &str| format!("{directory}/{name}");
    vec![
        ("read_file", json!({ "file_path": below("secret") })),
        ("read_file", json!({ "file_path": file })),
        ("write_file", json!({ "file_path": below("new"), "content": "x" })),
        ("write_file", json!({ "file_path": below("sub/new"), "content": "x" })),
        ("write_file", json!({ "file_path": below("secret"), "content": "x" })),
        ("write_file", json!({ "file_path": file, "content": "x" })),
        ("edit_file", json!({ "file_path": below("secret"), "old_string": "secret", "new_string": "x" })),
        ("edit_file", json!({ "file_path": file, "old_string": "secret", "new_string": "x" })),
        ("ls", json!({ "path": directory })),
        ("glob", json!({ "pattern": "**", "path": directory })),
        ("grep", json!({ "pattern": "secret of", "path": directory })),
        ("grep", json!({ "pattern": "secret of", "path": "/" })),
        ("rm", json!({ "path": below("secret") })),
        ("rm", json!({ "path": below("sub") })),
        ("shell_execute", json!({ "command": "cat secret; rm -f secret; touch new", "cwd": directory })),
    ]
}

fn links_lead_nowhere(rig: &Rig) {
    let victim = Victim::new();
    let absolute = victim.path().display().to_string();
    rig.ok("true");
    let up = "../".repeat(40);
    for (target, name) in [(absolute.clone(), "absolute"), (format!("{up}{absolute}"), "relative")] {
        rig.ok(&format!("ln -s {target} {name} && ln -s {target}/secret {name}-file"));
        rig.ok(&format!("ln -s {name} {name}-again && ln -s {name}-file {name}-file-again"));
        for (directory, file) in
            [(name.to_owned(), format!("{name}-file")), (format!("{name}-again"), format!("{name}-file-again"))]
        {
            for (tool, params) in calls(&directory, &file) {
                let step = rig.call(tool, params.clone());
                let shown = &step.outcome.text;
                assert!(!shown.contains(SECRET) && !shown.contains(ENTRY), "{tool} {params}: {shown}");
                let only_looks = ["glob", "grep", "ls"].contains(&tool);
                assert!(only_looks || !step.outcome.is_ok(), "{tool} {params}: {}", step.outcome.text);
                victim.assert_untouched();
            }
        }
    }
    // A link itself may go; what it points to stays.
    for name in ["absolute", "relative-file"] {
        assert!(rig.call("rm", json!({ "path": name })).outcome.is_ok());
    }
    victim.assert_untouched();
    rig.verify();
}

#[test]
fn links_on_host_lead_nowhere() {
    links_lead_nowhere(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn links_in_container_lead_nowhere() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        links_lead_nowhere(&rig);
    }
}

/// Ends a loop of another thread, also when a test fails: else that would be waited for without end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes `d` a directory, a link to the victim, and nothing, as fast as it can. Gives how often it was a link.
fn flip(root: &Path, done: &AtomicBool) -> usize {
    let mut links = 0;
    let (d, link, kept) = (root.join("d"), root.join("link"), root.join("kept"));
    let rename = |from: &Path, to: &Path, how| rustix::fs::renameat_with(CWD, from, CWD, to, how).is_ok();
    while !done.load(Ordering::Relaxed) {
        if rename(&d, &link, RenameFlags::EXCHANGE) {
            links += 1;
            rename(&d, &link, RenameFlags::EXCHANGE);
        }
        let is_gone = rename(&d, &kept, RenameFlags::NOREPLACE);
        while is_gone && !rename(&kept, &d, RenameFlags::NOREPLACE) && !done.load(Ordering::Relaxed) {
            // A tool has made one of its own where there was none.
            drop(std::fs::remove_dir_all(&d));
        }
    }
    links
}

fn tools_of_round(n: usize) -> Vec<(&'static str, Value)> {
    vec![
        ("write_file", json!({ "file_path": format!("d/{n}"), "content": "x" })),
        ("edit_file", json!({ "file_path": "d/secret", "old_string": "the secret", "new_string": "an open secret" })),
        ("edit_file", json!({ "file_path": "d/secret", "old_string": "an open secret", "new_string": "the secret" })),
        ("read_file", json!({ "file_path": "d/secret" })),
        ("ls", json!({ "path": "d" })),
        ("glob", json!({ "pattern": "**" })),
        ("grep", json!({ "pattern": "of the victim" })),
        ("shell_execute", json!({ "command": "cat secret; pwd -P", "cwd": "d" })),
        ("rm", json!({ "path": format!("d/{n}") })),
        ("rm", json!({ "path": "d/sub" })),
    ]
}

/// Uses `d` with every tool while it changes.
fn flipping_leads_nowhere(rig: &Rig) {
    let victim = Victim::new();
    rig.ok("mkdir d && echo 'the secret of nobody' > d/secret && mkdir d/sub");
    let root = rig.root();
    std::os::unix::fs::symlink(victim.path(), root.join("link")).unwrap();
    let done = AtomicBool::new(false);
    let (mut inside, mut refused) = (0, 0);
    let links = std::thread::scope(|scope| {
        let flipping = scope.spawn(|| flip(&root, &done));
        let ends = StopOnDrop(&done);
        // For long enough that what is raced for was met in both its states.
        for n in 0..600 {
            if n >= 40 && inside > 0 && refused > 0 {
                break;
            }
            for (tool, params) in tools_of_round(n) {
                let outcome = rig.bare(tool, params);
                // On the host a command may follow links itself; where it begins is what is checked.
                let shown = if tool == "shell_execute" { "" } else { &outcome.text };
                assert!(!shown.contains(SECRET) && !shown.contains(ENTRY), "{tool}: {shown}");
                let began = outcome.result["stdout"].as_str().unwrap_or_default();
                assert!(!began.contains(&*victim.path().to_string_lossy()), "{began}");
                inside += usize::from(tool == "read_file" && outcome.text.contains("secret of nobody"));
                refused += usize::from(tool == "read_file" && !outcome.is_ok());
                victim.assert_untouched();
            }
        }
        drop(ends);
        flipping.join().unwrap()
    });
    assert!(links > 0 && inside > 0 && refused > 0, "there was no race: {links} links, {inside} reads, {refused} not");
    rig.ok("true");
    rig.verify();
}

#[test]
fn links_swapped_on_host_lead_nowhere() {
    flipping_leads_nowhere(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn links_swapped_in_container_lead_nowhere() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        flipping_leads_nowhere(&rig);
    }
}

const PROCESSES: &str = "
import os
for name in ['environ', 'maps', 'mem', 'stack', 'syscall', 'io']:
    try:
        f = open('/proc/1/' + name, 'rb'); f.read(1); print(name, 'was read')
    except OSError:
        pass
for name in ['root', 'cwd', 'exe', 'fd']:
    try:
        os.listdir('/proc/1/' + name); print(name, 'was listed')
    except OSError:
        pass
try:
    open('/proc/1/mem', 'r+b'); print('mem was opened')
except OSError:
    pass
for entry in os.listdir('/proc'):
    if entry.isdigit() and int(entry) not in (1, os.getpid(), os.getppid()):
        print('sees', entry)
";

#[test]
fn container_init_is_not_readable() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    assert_eq!(rig.python(PROCESSES).stdout(), "");
}
