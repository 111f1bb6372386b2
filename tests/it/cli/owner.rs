//! The owner of the data, which the first command that acts starts in the background.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use foldspace::{Registry, Sessions};

use crate::rig::{Program, Running, eventually, report_skip, told};

/// A program with a session in a directory of this machine, made through an owner.
fn world() -> Program {
    let program = Program::new().through_owner();
    program.printed(&["run", &program.file("box.jsonl", ""), "--backend", "host"]);
    program
}

fn slow(program: &Program) -> Running {
    let mut slow = program.spawn(&["exec", "box", "--timeout", "100", "--sh", "--", "echo begun; sleep 90"]);
    let mut begun = [0; 6];
    slow.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    slow
}

#[test]
fn data_that_is_a_file_is_refused() {
    let program = Program::new().through_owner();
    let file = program.file("store", "text");
    for line in [&["sessions"][..], &["log", "x"], &["status"], &["run", "-"]] {
        let told = program.run(&[&["--data", &file], line].concat());
        assert!(told.contains("is not a directory") && told.ends_with("[exit 2]"), "{told}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn owner_is_started_once_and_has_nothing_of_its_starter() {
    let program = Program::new().through_owner();
    let looked = program.run(&["sessions"]);
    assert!(looked.contains("no store found") && program.owners().is_empty(), "{looked}");
    // Its end closes the pipe: the owner does not have it.
    program.printed(&["run", &program.file("box.jsonl", ""), "--backend", "host"]);
    let owners = program.owners();
    assert_eq!(owners.len(), 1);
    let proc = format!("/proc/{}", owners[0]);
    assert_eq!(std::fs::read_link(format!("{proc}/cwd")).unwrap().to_str(), Some("/"));
    let stat = std::fs::read_to_string(format!("{proc}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!((fields[2], fields[3]), (&*owners[0].to_string(), &*owners[0].to_string()), "its group and session");
    assert!(program.printed(&["sessions"]).contains("box"));
    program.printed(&["exec", "box", "--", "true"]);
    assert_eq!(program.owners(), owners);
    eventually("the client is gone", || program.printed(&["status"]).contains("clients: none"));
    assert_eq!(program.json(&["status"])["process"], owners[0]);
    let stopped = program.printed(&["stop"]);
    assert!(stopped.contains(&format!("process {} has ended", owners[0])), "{stopped}");
    assert!(program.printed(&["status"]).contains("no owner is running"));
    assert!(program.printed(&["stop"]).contains("no owner is running"));
    assert!(program.printed(&["ls", "box"]).is_empty() && program.owners().is_empty(), "a look starts none");
}

#[test]
fn owner_started_by_many_at_once_is_one() {
    let program = Program::new().through_owner();
    let script = program.file("same.jsonl", r#"{"tool": "ls"}"#);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|n| {
                let (program, script) = (&program, &script);
                scope.spawn(move || program.run(&["run", script, "--session", &format!("s{n}")]))
            })
            .collect();
        for run in runs {
            let told = run.join().unwrap();
            assert!(told.contains("1 ok") && told.ends_with("[exit 0]"), "{told}");
        }
    });
    assert_eq!(program.owners().len(), 1);
}

#[test]
fn command_has_surroundings_of_its_own_client() {
    let program = world();
    let mut exec = program.command(&["exec", "box", "--sh", "--", "echo $OWN; umask; nice; ulimit -n; touch made"]);
    let inner = exec.env("OWN", "this one's").env("API_KEY", "hunter2");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 027; ulimit -n 500; exec nice -n 3 \"$@\"", "sh"]).arg(inner.get_program());
    shell.args(inner.get_args()).env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.current_dir(program.path("")).output().unwrap();
    assert_eq!(told(&output), "this one's\n0027\n3\n500\n[exit 0]");
    let shown = program.printed(&["show", "box", "2"]);
    let names = shown.lines().skip_while(|line| !line.starts_with("environment, ")).nth(1).unwrap();
    assert!(names.split_whitespace().any(|name| name == "API_KEY") && !shown.contains("hunter2"), "{shown}");
    let decided = program.json_lines(&["log", "box", "--kind", "CommandDecided"]);
    assert_eq!(decided[0]["event"]["environment"].as_str().unwrap().len(), 64, "the digest of names and digests");
    let made = program.data().join("workspaces").read_dir().unwrap().next().unwrap().unwrap().path().join("files/made");
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(program.printed(&["exec", "box", "--sh", "--", "echo \"<$OWN>\"; nice"]), "<>\n0\n");
}

#[test]
fn client_in_other_sandbox_has_no_command_on_host() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    let within = |arguments: &[&str]| {
        let inner = program.command(arguments);
        let mut command = Command::new("unshare");
        command.arg("--net").arg(inner.get_program()).args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        told(&command.current_dir(program.path("")).stdin(Stdio::null()).output().unwrap())
    };
    let refused = within(&["exec", "box", "--", "touch", "made"]);
    assert!(refused.contains("net namespace differs") && refused.contains("in-process"), "{refused}");
    program.file("tree/a.txt", "x");
    let script = program.file("more.jsonl", "");
    let mounted = within(&["run", &script, "--session", "mounted", "--mount", "tree"]);
    assert!(mounted.contains("net namespace differs") && !mounted.ends_with("[exit 0]"), "{mounted}");
    let read = program.file("read.jsonl", r#"{"tool": "ls"}"#);
    assert!(within(&["run", &read, "--session", "box"]).contains("1 ok"), "files of a session are no way out");
    assert_eq!(program.printed(&["ls", "box"]), "");
    program.printed(&["stop"]);
    assert!(within(&["--in-process", "exec", "box", "--", "touch", "made"]).ends_with("[exit 0]"));
    assert_eq!(program.printed(&["ls", "box"]), "made\n");
}

#[test]
fn client_killed_takes_only_its_own_call_back() {
    let program = world();
    let second = program.file("second.jsonl", "");
    program.printed(&["run", &second, "--backend", "host"]);
    let killed = slow(&program);
    let ends = program.data().join("ends");
    let command = format!("echo begun; while [ ! -e {} ]; do sleep 0.02; done; echo ended", ends.display());
    let mut other = program.spawn(&["exec", "second", "--timeout", "100", "--sh", "--", &command]);
    let mut begun = [0; 6];
    other.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    drop(killed);
    let calls = || program.json_lines(&["log", "box", "--calls"]);
    eventually("its call has ended", || calls()[0]["finished"].is_u64());
    assert_eq!(calls()[0]["status"], "interrupted");
    std::fs::write(ends, "").unwrap();
    let mut rest = String::new();
    other.0.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), other.0.wait().unwrap().code()), ("ended\n", Some(0)));
}

#[test]
fn call_is_cancelled_by_name_and_number() {
    let program = world();
    assert!(program.run(&["cancel", "box"]).ends_with("[exit 3]"));
    let mut first = slow(&program);
    let shown = program.json(&["status"]);
    assert_eq!(shown["calls"][0]["name"], "box");
    assert_eq!(shown["clients"][0]["process"], first.0.id());
    assert_eq!(shown["workspaces"][0]["unused_seconds"], serde_json::Value::Null);
    let call = shown["calls"][0]["call"].as_u64().unwrap().to_string();
    assert!(program.run(&["cancel", "box", "1"]).ends_with("[exit 3]"));
    assert!(program.printed(&["cancel", "box", &call]).contains(&format!("cancelled call {call} of box")));
    assert_eq!(first.0.wait().unwrap().code(), Some(130));
}

#[test]
fn owner_killed_is_replaced_and_leaves_interrupted() {
    let program = world();
    let mut slow = slow(&program);
    let killed = program.owners();
    eventually("its call is on the disk", || program.json_lines(&["log", "box", "--calls"]).len() == 1);
    assert!(Command::new("kill").args(["-9", &killed[0].to_string()]).status().unwrap().success());
    assert_eq!(slow.0.wait().unwrap().code(), Some(1), "what became of its call is not known");
    assert_eq!(program.printed(&["exec", "box", "--", "echo", "again"]), "again\n");
    let owners = program.owners();
    assert!(owners.len() == 1 && owners != killed);
    assert_eq!(program.json_lines(&["log", "box", "--calls"])[0]["status"], "interrupted");
}

#[test]
fn owner_of_another_version_ends_once_it_is_unused() {
    let program = world();
    let first = program.owners();
    let slow = slow(&program);
    // As a program of another version asks, before it starts an owner of its own.
    let mut stream = UnixStream::connect(program.data().join("http.sock")).unwrap();
    let head = "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nfoldspace-version: 9.9.9\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("a different version"), "{answer}");
    assert!(answer.contains("`foldspace stop` ends it;"), "{answer}");
    assert_eq!(program.owners(), first, "it is used");
    drop(slow);
    eventually("it ends for the other's sake", || program.owners().is_empty());
    assert_eq!(program.printed(&["exec", "box", "--", "echo", "again"]), "again\n");
}

#[test]
fn owner_whose_process_is_stopped_is_named() {
    let program = world();
    let owner = program.owners()[0].to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &owner]).status().unwrap().success());
    signal("-STOP");
    let refused = program.run(&["exec", "box", "--", "true"]);
    signal("-CONT");
    assert!(refused.contains("has not answered") && refused.contains(&format!("`kill -CONT {owner}`")), "{refused}");
    assert!(refused.ends_with("[exit 4]"), "{refused}");
    assert_eq!(program.printed(&["exec", "box", "--", "echo", "again"]), "again\n");
}

#[test]
fn owner_without_idle_time_ends_after_last_call() {
    let program = world();
    program.printed(&["stop"]);
    let output = program.command(&["exec", "box", "--", "echo", "done"]).env("FOLDSPACE_IDLE", "0").output().unwrap();
    assert_eq!(told(&output), "done\n[exit 0]");
    eventually("it ends by itself", || program.owners().is_empty());
    let script = program.file("calls.jsonl", [r#"{"tool": "ls"}"#; 20].join("\n"));
    let ran = program.command(&["run", &script, "--session", "box"]).env("FOLDSPACE_IDLE", "0").output().unwrap();
    assert!(told(&ran).contains("20 ok"), "it does not end between two calls: {ran:?}");
    eventually("it ends by itself", || program.owners().is_empty());
}

#[test]
fn owner_ends_with_its_directory() {
    let program = world();
    assert_eq!(program.owners().len(), 1);
    std::fs::remove_dir_all(program.data()).unwrap();
    eventually("it ends by itself", || program.owners().is_empty());
}

#[test]
fn store_of_program_that_serves_nobody_is_busy() {
    let program = Program::with_story();
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let script = program.file("more.jsonl", r#"{"tool": "ls"}"#);
    let refused = program.run(&["run", &script, "--session", "story"]);
    let own = format!("process {}", std::process::id());
    assert!(refused.contains(&own) && refused.ends_with("[exit 4]"), "{refused}");
    assert!(program.printed(&["status"]).contains("has the store, and accepts no clients"));
    assert!(program.printed(&["ls", "story"]).contains("src/"));
    sessions.close();
}

#[test]
fn socket_left_behind_is_no_owner() {
    let program = world();
    let socket = program.data().join("http.sock");
    assert!(Command::new("kill").args(["-9", &program.owners()[0].to_string()]).status().unwrap().success());
    eventually("it is gone", || program.owners().is_empty());
    assert!(socket.exists(), "its socket is left");
    // The kernel closes its files last.
    eventually("it is no owner", || program.run(&["status"]).contains("no owner is running"));
    assert_eq!(program.printed(&["exec", "box", "--", "echo", "again"]), "again\n");
    program.printed(&["stop"]);
    std::fs::write(&socket, "a person's file").unwrap();
    let refused = program.run(&["exec", "box", "--", "true"]);
    assert!(refused.contains("another file is at that path"), "{refused}");
    assert_eq!(std::fs::read(&socket).unwrap(), b"a person's file");
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn wrong_settings_of_an_owner_are_refused() {
    let program = Program::with_story().through_owner();
    let output = program.command(&["clone", "story"]).env("FOLDSPACE_IDLE", "soon").output().unwrap();
    let refused = told(&output);
    assert!(refused.contains("FOLDSPACE_IDLE is \"soon\"") && refused.ends_with("[exit 2]"), "{refused}");
    assert!(program.owners().is_empty());
}

#[test]
fn idle_owner_gives_way_to_work_in_this_process() {
    let program = world();
    let owners = program.owners();
    assert_eq!(owners.len(), 1);
    let told = program.run(&["exec", "--in-process", "box", "echo", "here"]);
    assert!(told.starts_with("here\n") && told.ends_with("[exit 0]"), "{told}");
    assert!(program.owners().is_empty(), "it has ended");
    let slow = slow(&program);
    let refused = program.run(&["exec", "--in-process", "box", "true"]);
    assert!(refused.contains("1 call in flight") && refused.ends_with("[exit 4]"), "{refused}");
    drop(slow);
}

#[test]
fn stop_waits_for_an_owner_that_no_longer_answers() {
    let program = world();
    let owner = program.owners()[0].to_string();
    std::fs::remove_file(program.data().join("http.sock")).unwrap();
    let mut stop = program.spawn(&["stop"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(stop.0.try_wait().unwrap().is_none(), "the owner has not ended");
    assert!(Command::new("kill").arg(owner).status().unwrap().success());
    assert!(stop.0.wait().unwrap().success());
    assert!(program.owners().is_empty());
}
