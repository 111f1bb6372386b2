//! Links that lead out of the workspace, also such that come and go.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::rig::{Kind, Rig, walk};

/// A directory beside everything, with a secret in it that must stay one, and stay as it is.
struct Victim(tempfile::TempDir);

const SECRET: &str = "the secret of the victim";

impl Victim {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), SECRET).unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn assert_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.path().join("secret")).unwrap(), SECRET);
        assert_eq!(walk(self.path()).len(), 2);
    }
}

/// Every file tool, at a path that leads out by a link to a directory and one to a file.
fn calls(directory: &str, file: &str) -> Vec<(&'static str, Value)> {
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
                assert!(!step.outcome.text.contains(SECRET), "{tool} {params}: {}", step.outcome.text);
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
fn links_lead_nowhere_on_the_host() {
    links_lead_nowhere(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn links_lead_nowhere_from_a_container() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        links_lead_nowhere(&rig);
    }
}

/// Flips `d` between a directory and a link to the victim, as fast as it can, while tools use it.
fn flipping_leads_nowhere(rig: &Rig) {
    let victim = Victim::new();
    rig.ok("mkdir d && echo inside > d/secret && mkdir d/sub");
    let root = rig.root();
    std::os::unix::fs::symlink(victim.path(), root.join("link")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (from, to) in [("d", "kept"), ("link", "d"), ("d", "link"), ("kept", "d")] {
                    drop(std::fs::rename(root.join(from), root.join(to)));
                }
            }
        });
        for n in 0..60 {
            let tools = [
                ("write_file", json!({ "file_path": format!("d/{n}"), "content": "x" })),
                ("edit_file", json!({ "file_path": "d/secret", "old_string": "inside", "new_string": "inside" })),
                ("read_file", json!({ "file_path": "d/secret" })),
                ("grep", json!({ "pattern": "of the victim" })),
                ("shell_execute", json!({ "command": "cat secret; pwd -P", "cwd": "d" })),
                ("rm", json!({ "path": format!("d/{n}") })),
            ];
            for (tool, params) in tools {
                let outcome = rig.bare(tool, params);
                // On the host a command may follow links itself; where it begins is what is checked.
                assert!(!outcome.text.contains(SECRET) || tool == "shell_execute", "{tool}: {}", outcome.text);
                let began = outcome.result["stdout"].as_str().unwrap_or_default();
                assert!(!began.contains(&*victim.path().to_string_lossy()), "{began}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    victim.assert_untouched();
    rig.ok("true");
    rig.verify();
}

#[test]
fn links_that_come_and_go_lead_nowhere_on_the_host() {
    flipping_leads_nowhere(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn links_that_come_and_go_lead_nowhere_from_a_container() {
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
fn the_first_process_can_t_be_looked_into() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    assert_eq!(rig.python(PROCESSES).stdout(), "");
}
