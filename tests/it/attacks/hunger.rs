//! Commands that take all there is: processes, memory, disk, output; and such that do not want to end.

use std::process::{Command, Stdio};
use std::time::Duration;

use foldspace::{ContainerStarted, PodmanOptions};
use serde_json::json;

use crate::rig::{Kind, Rig, walk};

const SURVIVORS: &str = "
import os, signal, time
for how in range(4):
    if os.fork() == 0:
        if how != 0: os.setsid()
        if how == 2 and os.fork() != 0: os._exit(0)
        for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
        if how == 3:
            for fd in range(3, 100):
                try: os.close(fd)
                except OSError: pass
            os.chdir('/')
        while True:
            time.sleep(0.05)
            open('/workspace/alive', 'a').write('x') if os.path.isdir('/workspace') else None
print('left')
";

const OTHERS: &str = "
import os
for entry in os.listdir('/proc'):
    if entry.isdigit() and int(entry) not in (1, os.getpid(), os.getppid()):
        try: print(entry, open(f'/proc/{entry}/comm').read().strip())
        except OSError: pass
";

#[test]
fn nobody_survives_a_command() {
    let Some(rig) = Rig::new(Kind::Overlay) else { return };
    rig.python(SURVIVORS);
    assert_eq!(rig.python(OTHERS).stdout(), "");
    let alive = walk(&rig.root());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(walk(&rig.root()), alive, "somebody still writes");
    rig.sh("setsid sleep 1000 & (sleep 1000 &) ; nohup sleep 1000 > /dev/null 2>&1 & exit 3");
    assert_eq!(rig.python(OTHERS).stdout(), "");
    rig.verify();
}

#[test]
fn a_fork_bomb_ends_with_its_command() {
    let Some(rig) = Rig::podman(|options| PodmanOptions { pids: 64, ..options }) else { return };
    let made = rig.ok("true").of::<ContainerStarted>();
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n";
    let step = rig.call("shell_execute", json!({ "command": "python3 -", "stdin": bomb, "timeout_seconds": 2 }));
    assert_eq!(step.exit_code(), 124);
    assert_eq!(rig.ok("echo next").stdout(), "next");
    assert_eq!(rig.python(OTHERS).stdout(), "");
    assert_eq!(crate::rig::named(&rig.name()), [made[0].id.clone()]);
    rig.verify();
}

#[test]
fn a_memory_hog_is_killed_and_nothing_else() {
    let Some(rig) = Rig::podman(|options| PodmanOptions { memory_bytes: 96 << 20, ..options }) else { return };
    rig.ok("echo kept > f");
    let hog =
        "import os\nopen('begun', 'w').write('1')\nb = []\nwhile True: b.append(bytearray(os.urandom(1 << 20)))\n";
    let step = rig.python_any(hog);
    assert_eq!((step.exit_code(), step.paths().0), (137, vec!["begun".to_owned()]));
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}

#[test]
fn a_full_tmp_is_an_error_of_the_command() {
    let Some(rig) = Rig::podman(|options| PodmanOptions { tmp_bytes: 16 << 20, ..options }) else { return };
    let step = rig.sh("head -c 20M /dev/zero > /tmp/full; echo kept > f");
    assert!(step.outcome.text.contains("No space left"), "{}", step.outcome.text);
    assert_eq!(rig.ok("rm /tmp/full && cat f").stdout(), "kept");
    let shared = "import os\nv = os.statvfs('/dev/shm')\nprint(v.f_blocks * v.f_frsize <= 64 << 20)\n";
    assert_eq!(rig.python(shared).stdout(), "True");
    rig.verify();
}

/// The most memory that a process has had so far, in KiB.
fn most_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Runs a command that prints a gibibyte in a process of its own, and gives what that took at most.
fn memory_for_a_gibibyte(options: &[&str]) -> u64 {
    let data = tempfile::tempdir().unwrap();
    let story = data.path().join("story.jsonl");
    let call = json!({ "tool": "shell_execute", "params": { "command": "yes | head -c 1G", "timeout_seconds": 120 } });
    std::fs::write(&story, format!("{call}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    command.env("FOLDSPACE_DATA", data.path().join("data")).env("FOLDSPACE_CACHE", data.path().join("cache"));
    command.args(["run", "--yes"]).args(options).arg(&story);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(most_memory(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    most
}

#[test]
fn a_gibibyte_of_output_takes_little_memory() {
    let mut ways = vec![vec!["--backend", "host"]];
    if crate::engine::options().is_some() {
        ways.push(vec!["--backend", "podman"]);
    }
    for options in ways {
        let most = memory_for_a_gibibyte(&options);
        assert!((1 << 10..192 << 10).contains(&most), "{options:?} took {most} KiB");
    }
}
