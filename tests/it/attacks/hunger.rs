//! Commands that take all there is: processes, memory, disk, output; and such that do not want to end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use foldspace::backends::PodmanOptions;
use foldspace::event::{CommandResult, ContainerStarted};
use foldspace::{Recorded, Registry, Sessions};
use serde_json::json;

use crate::rig::{Kind, Rig, walk};

const SURVIVORS: &str = "
import os, signal, time
here = os.getcwd()
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
            open(here + '/alive', 'a').write('x')
print('left')
";

const OTHERS: &str = "
import os
for entry in os.listdir('/proc'):
    if entry.isdigit() and int(entry) not in (1, os.getpid(), os.getppid()):
        try: print(entry, open(f'/proc/{entry}/comm').read().strip())
        except OSError: pass
";

/// The processes of this machine, in containers too, that have this in their environment.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("MARK={mark}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_marked = |process: &std::path::PathBuf| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let shown = |process: std::path::PathBuf| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        format!("{}: {}", process.display(), String::from_utf8_lossy(&line).replace('\0', " "))
    };
    processes.filter(is_marked).map(shown).collect()
}

fn nobody_survives(rig: &Rig) {
    let mark = rig.name();
    let params = |command: &str| json!({ "command": command, "env": { "MARK": mark }, "timeout_seconds": 100 });
    // It is seen where it is to be seen, or nobody would ever be found.
    let root = {
        rig.ok("true");
        rig.root()
    };
    let tool_runner = rig.tool_runner().clone();
    let call = foldspace::ToolCall::new("shell_execute", params("touch begun; exec sleep 100"));
    let cancel = call.cancel.clone();
    let called = rig.runtime.spawn(async move { tool_runner.call(call).await });
    crate::rig::eventually("the command has begun", || root.join("begun").exists());
    crate::rig::eventually("it is found", || !marked(&mark).is_empty());
    cancel.cancel();
    rig.runtime.block_on(called).unwrap().unwrap();
    assert_eq!(marked(&mark), Vec::<String>::new(), "cancelled");
    let with_input = |program: &str| {
        let mut params = params("python3 -");
        params["stdin"] = json!(program);
        params
    };
    let step = rig.call("shell_execute", with_input(SURVIVORS));
    step.assert_ok("survivors");
    assert_eq!(marked(&mark), Vec::<String>::new());
    let alive = walk(&rig.root());
    // The time is the subject: a survivor would write twenty times a second.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(walk(&rig.root()), alive, "somebody still writes");
    let text = "setsid sleep 1000 & (sleep 1000 &) ; setsid setsid sh -c 'sleep 1000 & sleep 1000' & nohup sleep 1000 > /dev/null 2>&1 & exit 3";
    assert_eq!(rig.call("shell_execute", params(text)).exit_code(), 3);
    assert_eq!(marked(&mark), Vec::<String>::new());
    let mut too_long = with_input(&SURVIVORS.replace("print('left')", "time.sleep(1000)"));
    too_long["timeout_seconds"] = json!(1);
    assert_eq!(rig.call("shell_execute", too_long).exit_code(), 124);
    assert_eq!(marked(&mark), Vec::<String>::new());
    rig.verify();
}

#[test]
fn processes_end_with_their_command_on_host() {
    nobody_survives(&Rig::new(Kind::Host).unwrap());
}

#[test]
fn processes_end_with_their_command_in_container() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = Rig::new(kind) else { return };
        nobody_survives(&rig);
        assert_eq!(rig.python(OTHERS).stdout(), "");
    }
}

#[test]
fn fork_bomb_ends_with_its_command() {
    let Some(rig) = Rig::container(|options| PodmanOptions { pids: 64, ..options }) else { return };
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
fn memory_limit_kills_only_offending_process() {
    let Some(rig) = Rig::container(|options| PodmanOptions { memory_bytes: 96 << 20, ..options }) else { return };
    rig.ok("echo kept > f");
    let hog =
        "import os\nopen('begun', 'w').write('1')\nb = []\nwhile True: b.append(bytearray(os.urandom(1 << 20)))\n";
    let step = rig.python_any(hog);
    assert_eq!((step.exit_code(), step.paths().0), (137, vec!["begun".to_owned()]));
    assert_eq!(rig.ok("cat f").stdout(), "kept");
    rig.verify();
}

#[test]
fn full_tmp_fails_only_the_command() {
    let Some(rig) = Rig::container(|options| PodmanOptions { tmp_bytes: 16 << 20, ..options }) else { return };
    let step = rig.sh("head -c 20M /dev/zero > /tmp/full; echo kept > f");
    assert!(step.outcome.text.contains("No space left"), "{}", step.outcome.text);
    assert_eq!(rig.ok("rm /tmp/full && cat f").stdout(), "kept");
    let shared = "import os\nv = os.statvfs('/dev/shm')\nprint(v.f_blocks * v.f_frsize <= 64 << 20)\n";
    assert_eq!(rig.python(shared).stdout(), "True");
    rig.verify();
}

/// The most memory that a process of the program has had so far, in KiB. None as long as it has this process's memory:
/// one just spawned shares it until its program is loaded.
fn most_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let status = status.strip_prefix("Name:\tfoldspace\n")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Runs a command that prints a gibibyte in a process of its own, and gives what that took at most.
fn memory_for_much_output(options: &[&str]) -> u64 {
    let data = tempfile::tempdir().unwrap();
    let story = data.path().join("story.jsonl");
    let call =
        json!({ "tool": "shell_execute", "params": { "command": "yes | head -c 512M", "timeout_seconds": 120 } });
    std::fs::write(&story, format!("{call}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    command.env("FOLDSPACE_DATA", data.path().join("data")).env("FOLDSPACE_CACHE", data.path().join("cache"));
    command.env("FOLDSPACE_IN_PROCESS", "1");
    command.args(["run", "--yes"]).args(options).arg(&story);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(most_memory(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // A sample each few milliseconds.
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    assert_printed_much(&data.path().join("data"));
    most
}

/// Else there was nothing to measure.
fn assert_printed_much(data: &Path) {
    let sessions = Sessions::open(data, Registry::standard()).unwrap();
    let id = sessions.list().unwrap()[0].id;
    let events = sessions.session(id).unwrap().events(1, 100).unwrap();
    let results: Vec<_> = events.iter().filter_map(Recorded::typed::<CommandResult>).collect();
    let [result] = &results[..] else { panic!("one command ran: {events:?}") };
    let result = &result.as_ref().unwrap().event;
    assert_eq!((result.exit_code, result.stdout.bytes), (0, 512 << 20), "{result:?}");
}

#[test]
fn output_of_512_mib_takes_bounded_memory() {
    let engine = crate::engine::url().unwrap_or_default();
    let mut ways = vec![vec!["--backend", "host"]];
    if crate::engine::options().is_some() {
        ways.push(vec!["--backend", crate::engine::kind().name(), "--engine", &engine]);
    }
    for options in ways {
        let most = memory_for_much_output(&options);
        assert!((1 << 10..192 << 10).contains(&most), "{options:?} took {most} KiB");
    }
}
