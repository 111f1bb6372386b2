//! Several hosts on one NATS cluster, each with a server and a data directory of its own.

use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use foldspace::event::{Clock, CommitId, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::serve::ServeProcess;
use crate::rig::s3::{Fault, S3};
use crate::rig::store::cluster;
use crate::rig::{Program, eventually, resume, stop, told};

/// A host: its program and its server.
struct Host {
    program: Program,
    server: Option<ServeProcess>,
    name: &'static str,
    at: String,
}

/// An address for a store that no other test uses; none without a cluster.
fn store() -> Option<String> {
    let id = CommitId::from_bytes(SystemClock::default().fresh_id());
    Some(format!("{}?stream=hosts-{id}", cluster()?))
}

impl Host {
    fn begin(store: &str, name: &'static str) -> Self {
        Self::begin_with(store, name, Vec::new())
    }

    fn begin_with(store: &str, name: &'static str, more: Vec<(&'static str, String)>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut program = Program::new().through_owner();
        program.engine = vec![
            ("FOLDSPACE_STORE", store.to_owned()),
            ("FOLDSPACE_TOKEN", "0123456789abcdef".to_owned()),
            ("FOLDSPACE_HOST", name.to_owned()),
        ];
        program.engine.extend(more);
        let mut host = Self { program, server: None, name, at: format!("http://127.0.0.1:{port}") };
        host.serve();
        host
    }

    fn serve(&mut self) {
        let address = self.at.strip_prefix("http://").unwrap();
        let mut server = ServeProcess::begin(&self.program, &["--http", address, "--at", &self.at], |_| ());
        assert!(server.line().starts_with("serving on http://"), "it serves on TCP");
        self.server = Some(server);
    }

    fn pid(&self) -> Pid {
        self.server.as_ref().unwrap().pid()
    }

    fn shell(&self, command: &str) -> Output {
        self.program.output(&["exec", "shared", "-y", "--", "sh", "-c", command])
    }

    /// Runs a command in the session, which must succeed.
    fn printed(&self, command: &str) -> String {
        let output = self.shell(command);
        assert!(output.status.success(), "{} {command}: {}", self.name, told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The directory of the session where the command is run.
    fn works_in(&self, host: &Self) -> bool {
        self.printed("pwd").contains(&*host.program.data().canonicalize().unwrap().to_string_lossy())
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.program.json_lines(&["log", "shared"]);
        events.into_iter().filter(|event| event["kind"] == kind).collect()
    }
}

/// Two hosts, and session `shared` on the first of them.
fn hosts() -> Option<(Host, Host)> {
    let store = store()?;
    Some(with_session(Host::begin(&store, "one"), Host::begin(&store, "other")))
}

fn with_session(one: Host, other: Host) -> (Host, Host) {
    let call = r#"{"tool": "write_file", "params": {"file_path": "kept.txt", "content": "from one\n"}}"#;
    let script = one.program.file("begin.jsonl", call);
    one.program.printed(&["run", &script, "--session", "shared", "--backend", "host"]);
    (one, other)
}

#[test]
fn session_is_used_from_each_host_and_moved() {
    let Some((one, other)) = hosts() else { return };
    assert_eq!(other.printed("cat kept.txt; echo from other >> kept.txt"), "from one\n");
    assert!(other.works_in(&one), "the call is made where the session is");
    let moved = one.program.json(&["move", "shared", "other"]);
    assert_eq!(moved["host"], "other");
    assert!(one.works_in(&other), "it is on the other host now");
    assert_eq!(one.printed("cat kept.txt"), "from one\nfrom other\n");
    assert_eq!(one.events("SessionTaken").len(), 1);
    for host in [&one, &other] {
        let verified = host.program.run(&["verify"]);
        assert!(verified.contains("all is as the events say"), "{verified}");
    }
    let status = other.program.json(&["status"]);
    assert_eq!((status["host"]["name"].as_str(), status["host"]["at"].as_str()), (Some("other"), Some(&*other.at)));
    let unknown = one.program.run(&["move", "shared", "nowhere"]);
    assert!(unknown.contains(r#"host "nowhere" not found"#), "{unknown}");
}

#[test]
fn own_events_and_slices_are_the_same_on_each_host() {
    let Some((one, other)) = hosts() else { return };
    let declaration = r#"{"name": "Plan", "rules": [{"kinds": ["step"], "fold": "latest_by", "key": "/id"}]}"#;
    one.program.printed(&["emit", "shared", "step", r#"{"id": 1, "status": "open"}"#]);
    let file = other.program.file("plan.json", declaration);
    other.program.printed(&["reducer", "add", "shared", &file]);
    other.program.printed(&["emit", "shared", "step", r#"{"id": 2, "status": "open"}"#]);
    one.program.json(&["move", "shared", "other"]);
    one.program.printed(&["emit", "shared", "step", r#"{"id": 1, "status": "done"}"#]);
    let plan = json!({ "1": { "id": 1, "status": "done" }, "2": { "id": 2, "status": "open" } });
    for host in [&one, &other] {
        assert_eq!(host.program.json(&["state", "shared", "Plan"]), plan, "on {}", host.name);
        assert_eq!(host.events("step").len(), 3);
    }
}

#[test]
fn session_of_killed_host_goes_on_elsewhere() {
    let Some((mut one, other)) = hosts() else { return };
    let running = one.program.spawn(&["exec", "shared", "-y", "--", "sh", "-c", "echo begun > begun; sleep 600"]);
    eventually("the command runs", || other.events("CommandDecided").len() == 1);
    kill_process(one.pid(), Signal::KILL).unwrap();
    drop(running);
    assert_eq!(other.printed("cat kept.txt"), "from one\n");
    let ended = other.events("CallFinished");
    let interrupted = ended.iter().filter(|event| event["event"]["status"] == "interrupted").count();
    assert_eq!((interrupted, other.events("SessionTaken").len()), (1, 1), "{ended:?}");
    drop(one.server.take());
    one.serve();
    assert!(one.works_in(&other), "the killed host sends calls on when it is back");
    let verified = one.program.run(&["verify"]);
    assert!(verified.contains("all is as the events say"), "{verified}");
}

#[test]
fn call_of_killed_host_is_answered_elsewhere_and_not_made_again() {
    let Some((one, other)) = hosts() else { return };
    let exec =
        |id: &'static str, command: &'static str| ["exec", "shared", "-y", "--call-id", id, "--", "sh", "-c", command];
    let done = exec("done", "echo out; echo done >> count");
    assert_eq!(one.program.printed(&done), "out\n");
    let cut = exec("cut", "echo cut >> count; sleep 600");
    let running = one.program.spawn(&cut);
    eventually("the command runs", || other.events("CommandDecided").len() == 2);
    kill_process(one.pid(), Signal::KILL).unwrap();
    drop(running);
    assert_eq!(other.program.printed(&done), "out\n", "the recorded output");
    assert!(!other.program.output(&cut).status.success(), "it was interrupted");
    assert_eq!(other.printed("cat count"), "done\n", "neither ran on the other host");
    assert_eq!(other.events("SessionTaken").len(), 1);
}

#[test]
fn host_that_was_stopped_records_nothing_behind_its_successor() {
    let Some((one, other)) = hosts() else { return };
    let mut running =
        one.program.spawn(&["exec", "shared", "-y", "--", "sh", "-c", "while :; do echo >> ticks; sleep 0.1; done"]);
    eventually("the command runs", || other.events("CommandDecided").len() == 1);
    stop(one.pid());
    assert!(other.works_in(&other), "the other host takes the session");
    let before = other.events("CallFinished").len();
    resume(one.pid());
    assert_eq!(running.0.wait().unwrap().code(), Some(4), "its call fails: the store is another host's");
    assert!(one.works_in(&other));
    let (files, ended) = (other.printed("ls"), other.events("CallFinished").len());
    assert_eq!(files, "kept.txt\n", "what the stopped host did was never recorded");
    assert_eq!(ended, before + 2, "one call each");
    for host in [&one, &other] {
        let verified = host.program.run(&["verify"]);
        assert!(verified.contains("all is as the events say"), "{verified}");
    }
}

#[test]
fn contents_in_object_storage_are_there_for_other_hosts() {
    let Some(s3) = S3::begin() else { return };
    let Some(store) = store() else { return };
    let place = store.rsplit('=').next().unwrap();
    let store = format!("{store}&contents=s3://bucket/{place}");
    let environment: Vec<_> = s3.environment().into_iter().collect();
    let begin = |name| Host::begin_with(&store, name, environment.clone());
    let (one, other) = with_session(begin("one"), begin("other"));
    one.printed("seq 1 300000 > large.txt");
    s3.set(Fault::Unavailable);
    let writing = one.program.spawn(&["exec", "shared", "-y", "--", "sh", "-c", "echo late > late.txt"]);
    std::thread::sleep(Duration::from_millis(500));
    let files = one.program.printed(&["ls", "shared"]);
    assert!(!files.contains("late.txt"), "nothing is recorded before its contents are kept: {files}");
    s3.set(Fault::None);
    let mut writing = writing;
    assert!(writing.0.wait().unwrap().success(), "it goes on when the storage is back");
    one.program.printed(&["move", "shared", "other"]);
    let sums = "cksum large.txt late.txt";
    assert!(one.works_in(&other));
    assert_eq!(other.printed(sums).lines().count(), 2);
    let verified = Host::begin_with(&store, "third", environment.clone()).program.run(&["verify"]);
    assert!(verified.contains("all is as the events say"), "{verified}");
}

/// Copies the data directory of a host to one that does not run.
fn copy(from: &Host, to: &mut Host) {
    drop(to.server.take());
    std::fs::remove_dir_all(to.program.data()).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([from.program.data(), to.program.data()]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn copied_data_directory_makes_no_second_owner() {
    let Some((mut one, mut other)) = hosts() else { return };
    one.printed("echo old > f");
    for is_clean in [false, true] {
        if is_clean {
            assert_eq!(one.server.take().unwrap().end().0, Some(0));
        }
        copy(&one, &mut other);
        if is_clean {
            one.serve();
        }
        one.printed("echo acknowledged >> f");
        other.serve();
        other.printed("echo of other >> f");
        assert!(other.works_in(&one), "one owner at a time");
        one.program.json(&["move", "shared", "other"]);
        let there = other.printed("cat f");
        assert!(there.ends_with("acknowledged\nof other\n"), "its files are those of the history: {there}");
        assert!(other.works_in(&other) && one.works_in(&other));
        assert_eq!(one.events("DriftFound").len(), 0);
        one.program.json(&["move", "shared", "one"]);
    }
    let verified = other.program.run(&["verify"]);
    assert!(verified.contains("all is as the events say"), "{verified}");
}

#[test]
fn killed_host_keeps_its_files() {
    let Some((mut one, _other)) = hosts() else { return };
    one.printed("echo left > f");
    kill_process(one.pid(), Signal::KILL).unwrap();
    drop(one.server.take());
    one.serve();
    assert_eq!((one.printed("cat f").as_str(), one.events("SessionTaken").len()), ("left\n", 0));
}

#[test]
fn second_host_of_a_name_is_refused() {
    let Some(store) = store() else { return };
    let first = Host::begin(&store, "one");
    let mut second = Program::new();
    second.engine = first.program.engine.clone();
    let refused = second.run(&["serve"]);
    assert!(refused.contains("already has a host one, in another process"), "{refused}");
}

#[test]
fn store_that_can_not_be_shared_is_refused_with_the_reason() {
    let program = Program::with_story();
    for (arguments, reason) in [
        (&["--store", "nats://127.0.0.1", "sessions"][..], "already has a local store"),
        (&["--store", "http://x", "--data", "new", "sessions"], "its scheme is neither nats nor tls"),
        (&["--store", "nats://a?stream=a b", "--data", "new", "sessions"], "letters, digits"),
        (&["--store", "nats://127.0.0.1:1", "--data", "unreached", "serve"], "can't be reached"),
        (&["move", "story", "other"], "the store is one machine's"),
    ] {
        let told = program.run(arguments);
        assert!(told.contains(reason) && !told.ends_with("[exit 0]"), "{arguments:?}: {told}");
    }
    assert!(!program.path("new").exists(), "a wrong address leaves nothing");
    let other = program.run(&["--store", "nats://127.0.0.1:2", "--data", "unreached", "sessions"]);
    assert!(other.contains("is a copy of the store nats://127.0.0.1:1, not of nats://127.0.0.1:2"), "{other}");
    let named = program.run(&["--data", "unreached", "serve", "--host", "a b"]);
    assert!(named.contains("invalid host name"), "{named}");
    let reached = program.run(&["--data", "unreached", "serve", "--at", "ftp://x"]);
    assert!(reached.contains("invalid host URL"), "{reached}");
}
