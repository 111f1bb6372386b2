//! The owner of a store and the process that copies it are killed at random moments: the copy can be restored, with all
//! that was acknowledged before the last pass.
//!
//! Both are this test binary, started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldspace::store::Durability;
use foldspace::store::replication::{Replicator, ReplicatorOptions, restore};

use super::borrowed::store_that_borrows;
use super::crash::{Acknowledged, Load, check, say, spawn};
use crate::rig::{Random, process, rounds};

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Copies a store once for each byte that it reads, and says when that is done.
pub(crate) fn replicate(orders: &str) {
    let (data, url) = orders.split_once(' ').unwrap();
    let mut replicator = Replicator::open(Path::new(data), url, ReplicatorOptions::default()).unwrap();
    // The test harness has begun a line.
    say("\n");
    while std::io::stdin().read(&mut [0]).unwrap() == 1 {
        match wait(replicator.pass()) {
            Ok(_) => say("copied\n"),
            Err(error) => say(&format!("failed: {error}\n")),
        }
    }
}

struct Copying {
    child: Child,
    orders: ChildStdin,
    said: std::io::Lines<BufReader<ChildStdout>>,
}

impl Copying {
    fn begin(data: &Path, url: &str) -> Self {
        let mut child = process("replicate", format!("{} {url}", data.display()));
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, orders, said }
    }

    fn order(&mut self) {
        self.orders.write_all(b".").unwrap();
    }

    fn outcome(&mut self) -> String {
        let is_told = |line: &String| line == "copied" || line.starts_with("failed");
        self.said.by_ref().map_while(Result::ok).find(is_told).unwrap_or_default()
    }
}

/// An owner that works, and what it said so far.
struct Working {
    child: Child,
    known: Arc<Mutex<Acknowledged>>,
    listener: std::thread::JoinHandle<()>,
}

impl Working {
    fn begin(data: &Path, load: Load, known: &Arc<Mutex<Acknowledged>>) -> Self {
        let mut child = spawn(data, load);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard = Arc::clone(known);
        let listener = std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().hear(&line));
        });
        Self { child, known: Arc::clone(known), listener }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.listener.join().unwrap();
        drop(self.known);
    }
}

#[test]
fn owner_and_replicator_killed_copy_has_all_that_came_before_a_pass() {
    let directory = tempfile::tempdir().unwrap();
    let (data, url) = (directory.path().join("data"), format!("file://{}/copy", directory.path().display()));
    let known = Arc::new(Mutex::new(Acknowledged::default()));
    let mut random = Random(25);
    for round in 0..rounds(6) {
        let load = Load { durability: Durability::Synced, busy: round % 2 == 1, seed: random.next() };
        let working = Working::begin(&data, load, &known);
        while !data.join("journal").exists() || known.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut copying = Copying::begin(&data, &url);
        let mut copied = Acknowledged::default();
        for _ in 0..=random.below(4) {
            std::thread::sleep(Duration::from_millis(random.below(100)));
            let before = known.lock().unwrap().clone();
            copying.order();
            match &*copying.outcome() {
                "copied" => copied = before,
                // The journal was being packed.
                failed => assert!(failed.contains("rewritten"), "{failed}"),
            }
        }
        // Within a pass, or just after.
        copying.order();
        std::thread::sleep(Duration::from_millis(random.below(30)));
        copying.child.kill().unwrap();
        copying.child.wait().unwrap();
        let restored = directory.path().join(format!("restored-{round}"));
        wait(restore(&restored, &url, None)).unwrap();
        working.kill();
        check(&restored, load, &mut copied, true);
    }
}

#[test]
fn contents_that_only_git_has_are_named_by_copy_and_restoration() {
    let directory = tempfile::tempdir().unwrap();
    let (data, url) = (directory.path().join("data"), format!("file://{}/copy", directory.path().display()));
    let (repository, sessions, _) = store_that_borrows(&data);
    drop(sessions);
    let listed = vec![repository.path().join(".git").display().to_string()];
    let mut replicator = Replicator::open(&data, &url, ReplicatorOptions::default()).unwrap();
    wait(replicator.copy_all()).unwrap();
    assert_eq!(replicator.progress().now().git_repositories, listed);
    let restored = |name: &str| {
        let report = wait(restore(&directory.path().join(name), &url, None)).unwrap();
        assert_eq!(report.git_repositories, listed);
        (report.only_in_git, report.missing)
    };
    assert_eq!(restored("here"), (1, 0));
    std::fs::remove_dir_all(repository.path().join(".git")).unwrap();
    assert_eq!(restored("elsewhere"), (1, 1));
}
