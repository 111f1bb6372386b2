//! Several processes of the program that serve the sessions of one cluster, and what becomes of a session when its host
//! is cut off, frozen or killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use foldspace::{EventStore, StoreError};
use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::checker;
use crate::proofs::send;
use crate::rig::{Cluster, free_port};
use crate::stopped::{resume, stop};
use crate::testing::eventually;
use crate::testing::rounds;
use crate::writers::{Load, Machine, STREAM, session};

/// A host: a process that serves a store's sessions, with a directory of its own.
pub(crate) struct Host {
    name: &'static str,
    store: String,
    /// The address at which it listens.
    pub(crate) place: String,
    process: Child,
    directory: TempDir,
}

/// The token of all hosts.
pub(crate) const TOKEN: &str = "token-of-all-hosts-of-tests";

impl Host {
    /// Starts one that knows these nodes.
    pub(crate) fn start(cluster: &Cluster, name: &'static str, nodes: &[usize]) -> Self {
        let (directory, store) = (tempfile::tempdir().unwrap(), cluster.store_address(nodes, STREAM));
        let place = format!("127.0.0.1:{}", free_port());
        let mut command = program(&directory, &store);
        command.args(["serve", "--http", &place, "--at", &format!("http://{place}"), "--host", name]);
        let log = std::fs::File::create(directory.path().join("serve.log")).unwrap();
        let process = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut host = Self { name, store, place, process, directory };
        eventually("the host listens", || {
            assert_eq!(host.process.try_wait().unwrap(), None, "{name} has ended");
            std::net::TcpStream::connect(&host.place).is_ok()
        });
        host
    }

    /// Runs the program on this host.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        finish(self.begin(arguments))
    }

    fn begin(&self, arguments: &[&str]) -> Child {
        let mut command = program(&self.directory, &self.store);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Does something in the session until that succeeds: a request that is under way when its host goes fails.
    fn write(&self, file: &str) {
        eventually(&format!("{} goes on with the session", self.name), || {
            let done = self.run(&["exec", "work", "--sh", "--", &format!("echo x >> {file}")]);
            let error = String::from_utf8_lossy(&done.stderr).into_owned();
            let is_expected =
                ["host", "connection to the server broke", "does not answer"].iter().any(|part| error.contains(part));
            assert!(done.status.success() || is_expected, "{done:?}");
            done.status.success()
        });
    }

    fn log(&self) -> Vec<Value> {
        let log = self.run(&["log", "work", "--json"]);
        assert!(log.status.success(), "{log:?}");
        String::from_utf8(log.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the events of a kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        self.log().into_iter().filter(|event| event["kind"] == kind).collect()
    }

    /// Returns the seconds for which the host has waited for the cluster.
    fn waited(&self) -> Option<f64> {
        let status = self.run(&["status", "--json"]);
        serde_json::from_slice::<Value>(&status.stdout).unwrap()["host"]["waited_seconds"].as_f64()
    }

    /// Begins a command that runs until it is stopped. The path is there as long as it runs.
    fn begin_command(&self) -> (Child, PathBuf) {
        let file = self.directory.path().join("process");
        let child = self.begin(&["exec", "work", "--sh", "--", &format!("echo $$ > {}; sleep 300", file.display())]);
        let process = || std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
        eventually("the command runs", || process().is_some());
        (child, Path::new("/proc").join(process().unwrap().trim()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A stopped process, too, ends with this signal.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("serve.log"));
            println!("{}:\n{}", self.name, log.unwrap_or_default());
        }
    }
}

fn program(directory: &TempDir, store: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    command.arg("--data").arg(directory.path().join("data")).args(["--store", store]);
    command.env("HOME", directory.path()).env("FOLDSPACE_TOKEN", TOKEN);
    command
}

fn finish(mut child: Child) -> Output {
    eventually("a command ends", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

/// Begins the session on a host.
pub(crate) fn begin_session(host: &Host) {
    let script = host.directory.path().join("empty.jsonl");
    std::fs::write(&script, "").unwrap();
    let begun = host.run(&["run", "--backend", "host", "--session", "work", script.to_str().unwrap()]);
    assert!(begun.status.success(), "{begun:?}");
    host.write("first");
}

/// Checks the stream, and that both hosts tell the same.
async fn check(cluster: &Cluster, one: &Host, other: &Host) {
    assert_eq!(one.log(), other.log());
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = checker::Acknowledged::open(directory.path().join("acknowledged"));
    let found = checker::check(&cluster.connect(0).await, STREAM, &acknowledged).await;
    assert!(found.is_empty(), "{found:#?}");
    for host in [one, other] {
        let verified = host.run(&["verify"]);
        assert!(verified.status.success(), "{verified:?}");
    }
    cluster.verify(STREAM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_frozen_past_its_lease_can_not_go_on() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (Host::start(&cluster, "one", &[0, 1, 2]), Host::start(&cluster, "other", &[0, 1, 2]));
    begin_session(&one);
    let (call, running) = one.begin_command();
    stop(Pid::from_child(&one.process));
    other.write("taken");
    assert_eq!(other.events("SessionTaken").len(), 1);

    // Both believe now that the session is theirs.
    resume(Pid::from_child(&one.process));
    eventually("the command of the former owner is stopped", || !running.exists());
    let call = finish(call);
    assert!(!call.status.success(), "{call:?}");
    one.write("sent-on");
    assert_eq!(other.events("SessionTaken").len(), 1, "the former owner has not taken it back");
    let listed = String::from_utf8(other.run(&["ls", "work"]).stdout).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["first", "sent-on", "taken"]);
    check(&cluster, &one, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_in_a_minority_loses_its_session_to_the_majority() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (Host::start(&cluster, "one", &[0]), Host::start(&cluster, "other", &[1, 2]));
    begin_session(&one);
    let (call, running) = one.begin_command();
    cluster.cut(0);
    let late = one.begin(&["exec", "work", "--", "echo", "late"]);
    eventually("the host says what it waits for", || one.waited().is_some_and(|waited| waited > 0.5));
    let told = String::from_utf8(one.run(&["status"]).stdout).unwrap();
    assert!(told.contains("s for the store's cluster to answer"), "{told}");
    let get = |host: &Host, path: &str| send(&host.place, &format!("GET {path} HTTP/1.1\r\n"));
    eventually("a host without its cluster is not ready", || get(&one, "/readyz").0 == 503);
    assert!(get(&one, "/readyz").1.contains("\"kind\":\"cluster_lost\""));
    assert_eq!((get(&one, "/healthz").0, get(&other, "/readyz").0), (200, 200));
    let figures = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n");
    let (status, figures) = send(&one.place, &figures);
    assert!(status == 200 && figures.contains("\nfoldspace_ready 0\n"), "{figures}");
    assert!(!figures.contains("\nfoldspace_cluster_waited_seconds 0\n"), "{figures}");
    other.write("taken");
    assert_eq!(other.waited(), None);
    eventually("the command in the minority is stopped", || !running.exists());

    cluster.heal(0);
    cluster.await_health(0);
    assert!(!finish(call).status.success());
    finish(late);
    one.write("sent-on");
    assert_eq!(other.events("SessionTaken").len(), 1, "the former owner has not taken it back");
    eventually("it waits no more", || one.waited().is_none());
    eventually("it is ready again", || get(&one, "/readyz").0 == 200);
    check(&cluster, &one, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_outlive_a_restart_of_the_cluster() {
    let Some(mut cluster) = Cluster::start() else { return };
    let (one, other) = (Host::start(&cluster, "one", &[0, 1, 2]), Host::start(&cluster, "other", &[0, 1, 2]));
    begin_session(&one);
    (0..3).for_each(|node| cluster.kill(node));
    let meanwhile = one.begin(&["exec", "work", "--sh", "--", "echo x > meanwhile"]);
    eventually("the host says what it waits for", || one.waited().is_some_and(|waited| waited > 0.5));
    cluster.restart_all();
    let meanwhile = finish(meanwhile);
    assert!(meanwhile.status.success(), "{meanwhile:?}");
    other.write("after");
    eventually("it waits no more", || one.waited().is_none());
    assert_eq!(other.events("SessionTaken").len(), 0, "its owner was there all the time");
    check(&cluster, &one, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_under_full_load_does_not_end() {
    let Some(cluster) = Cluster::start() else { return };
    let machines = ["a", "b"].map(|name| Arc::new(Machine::host(&cluster, name)));
    let load = Load::of(&machines, 32);
    load.await_more(1000);
    let mut lost = Vec::new();
    for number in 0..32 {
        tokio::task::block_in_place(|| machines[number as usize % 2].store.hosts().unwrap().claim(session(number)))
            .unwrap();
    }
    for _ in 0..rounds(15) {
        for number in 0..32 {
            // The other one tries to take it, too.
            let rival = &machines[(number as usize + 1) % 2].store;
            match tokio::task::block_in_place(|| rival.hosts().unwrap().claim(session(number))) {
                Err(StoreError::OtherHost { .. }) => {}
                other => lost.push((number, format!("{other:?}"))),
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("{} commits, {} lost: {lost:?}", load.count(), lost.len());
    assert!(lost.is_empty(), "{lost:?}");
    load.end(&cluster).await;
}
