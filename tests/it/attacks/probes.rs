//! The attacks on the sandbox that need no story: many in one container, each with what came of it.

use std::collections::BTreeMap;

use foldspace::backends::{EngineKind, PodmanOptions};
use serde_json::json;

use crate::rig::{Kind, Rig, engine_cli, named};

/// Probes that may succeed. A signal to the runner, and a note of an overlay in the workspace, have no effect.
const DONE: [&str; 12] = [
    ".wh..wh..opq",
    ".wh.f",
    "AF_NETLINK",
    "AF_UNIX",
    "kill SIGKILL 1",
    "kill SIGSTOP 1",
    "kill SIGTERM 1",
    "loopback",
    "pidfd SIGKILL 1",
    "pidfd SIGSTOP 1",
    "pidfd SIGTERM 1",
    "user.overlay.opaque",
];

#[test]
fn hostile_command_is_confined_at_every_probe() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    let step = rig.python(include_str!("probes.py"));
    let told: BTreeMap<_, _> = step.stdout().lines().map(|line| line.split_once('\t').unwrap()).collect();
    for named in ["ptrace", "AF_VSOCK", "AF_VSOCK with high bits", "/sys/fs/cgroup/x", "mknod whiteout", "setuid"] {
        assert_eq!(told.get(named), Some(&"held"), "{named}");
    }
    let of = |outcome| told.iter().filter(move |(_, other)| **other == outcome).map(|(name, _)| *name);
    assert_eq!(of("done").collect::<Vec<_>>(), DONE);
    let other: Vec<_> = told.iter().filter(|(_, outcome)| !["done", "held"].contains(outcome)).collect();
    assert!(other.is_empty(), "{other:?}");
    assert!(of("held").count() > 300, "{}", told.len());
    assert_eq!(rig.ok("echo still here").stdout(), "still here");
    rig.verify();
}

/// An image may say that a directory of it is to be kept elsewhere: on the host, where there is no limit and no history.
#[test]
fn image_volumes_are_read_only() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    rig.ok("true");
    let tag = rig.name();
    let image = format!("localhost/volumes:{tag}");
    engine_cli(&["commit", "--change", "VOLUME /var/tmp", &rig.name(), &image]).unwrap();
    let other = Rig::container(|options| PodmanOptions { image: image.clone(), ..options }).unwrap();
    assert!(other.sh("touch /var/tmp/x").outcome.text.contains("Read-only file system"));
    assert_eq!(other.printed("grep ' /var/tmp ' /proc/mounts | grep -c ' rw' || true"), "0");
    let name = other.name();
    drop(other);
    assert_eq!(named(&name), Vec::<String>::new());
    engine_cli(&["rmi", &image]).unwrap();
    let within = format!("localhost/volumes-within:{tag}");
    engine_cli(&["commit", "--change", "VOLUME /workspace/data", &rig.name(), &within]).unwrap();
    let other = Rig::container(|options| PodmanOptions { image: within.clone(), ..options }).unwrap();
    let told = other.bare("shell_execute", json!({ "command": "ls" }));
    match crate::engine::kind() {
        EngineKind::Podman => assert!(told.is_ok(), "it makes none: {}", told.text),
        EngineKind::Docker => assert!(told.text.contains("the volume /workspace/data"), "{}", told.text),
    }
    drop(other);
    engine_cli(&["rmi", &within]).unwrap();
}

/// Links that lead out of the workspace, and what is no file, before every tool that would follow or read them.
const ENTRIES: &str = "ln -s /etc/shadow shadow && ln -s / root && ln -s /proc/1/root runner && ln -s ../../.. up && \
    ln -s loop loop && ln -s /workspace/../etc/passwd passwd && mkfifo fifo && \
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'";

#[test]
fn special_files_are_refused_at_once() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    rig.ok(ENTRIES);
    for file in ["shadow", "root/etc/shadow", "runner/etc/shadow", "up/etc/shadow", "loop", "passwd", "fifo", "socket"]
    {
        let edit = json!({ "file_path": file, "old_string": "root", "new_string": "x" });
        let write = json!({ "file_path": file, "content": "x" });
        for (tool, params) in [("read_file", json!({ "file_path": file })), ("edit_file", edit), ("write_file", write)]
        {
            let step = rig.call(tool, params);
            assert!(!step.outcome.is_ok(), "{tool} {file}: {}", step.outcome.text);
        }
    }
    for directory in ["root", "runner", "up", "loop"] {
        assert!(!rig.call("ls", json!({ "path": directory })).outcome.text.contains("etc"), "{directory}");
    }
    let found = rig.call("grep", json!({ "pattern": "root:" })).outcome;
    assert!(found.is_ok() && !found.text.contains("root:"), "{}", found.text);
    rig.verify();
}

/// Makes a file of each name that is hard to show, and a tree that is closed to everybody.
const NAMES: &str = r"
import os
names = [b'\n', b'\x1b[31m', b'\xff\xfe', b'n' * 255, b'\xe2\x80\xae.txt', b'.wh.f', b'-rf', b' ', b'*', b'~', b'$(id)', b'`id`',
         b'a\tb', b'\\', b'%s', b'..x']
for name in names: open(name, 'w').write('x')
os.makedirs('closed/within')
open('closed/within/f', 'w').write('x')
for path in ('closed/within/f', 'closed/within', 'closed'): os.chmod(path, 0)
print(len(names))
";

#[test]
fn odd_names_and_unreadable_trees_are_recorded() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    let step = rig.python(NAMES);
    assert_eq!(step.stdout(), "16");
    // Two of them are directories that are shut.
    assert_eq!(step.paths().0.len(), 19, "{:?}", step.paths());
    let listed = rig.call("ls", json!({})).outcome.text;
    assert!(!listed.contains('\u{1b}') && listed.lines().count() == 18, "{listed:?}");
    rig.verify();
}

#[test]
fn command_environment_reaches_no_other_command() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    rig.ok("echo 'touch /workspace/sourced' > startup");
    let env = json!({ "LD_PRELOAD": "/workspace/none.so", "BASH_ENV": "/workspace/startup", "PATH": "/workspace" });
    let step = rig.call("shell_execute", json!({ "command": "/bin/bash -c :", "env": env }));
    assert_eq!((step.exit_code(), step.paths().0), (0, vec![]), "touch is in no directory of its PATH");
    let long = json!({ "command": "echo ${#LONG}", "env": { "LONG": "x".repeat(48_000) } });
    assert_eq!(rig.call("shell_execute", long).stdout(), "48000");
    assert_eq!(rig.ok("echo $LD_PRELOAD$BASH_ENV$LONG; command -v touch").stdout(), "/usr/bin/touch");
}

fn root_is_opened_again(rig: &Rig) {
    rig.ok("echo kept > f");
    for mode in ["000", "077", "u-x", "u-r"] {
        rig.ok(&format!("chmod {mode} ."));
        assert_eq!(rig.ok("cat f && stat -c %a . && chmod 755 .").stdout().lines().next(), Some("kept"), "{mode}");
        let written = rig.call("write_file", json!({ "file_path": format!("after-{mode}"), "content": "x" }));
        assert!(written.outcome.is_ok(), "{mode}: {}", written.outcome.text);
    }
    // What keeps no command from starting stays as it is.
    assert_eq!(rig.ok("chmod 555 . && true").exit_code(), 0);
    assert_eq!(rig.printed("stat -c %a ."), "555");
    rig.verify();
}

#[test]
fn workspace_root_closed_in_container_is_opened_again() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        root_is_opened_again(&rig);
    }
}

#[test]
fn workspace_root_closed_on_host_is_opened_again() {
    root_is_opened_again(&Rig::new(Kind::Host).unwrap());
}
