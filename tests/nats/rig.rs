//! A NATS cluster of three nodes that are children of the test, and the faults that can befall them.
//!
//! Nodes reach each other through proxies of this process only, so that any of them can be cut off from the others
//! while its clients stay connected to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::disk::Disk;
use crate::stopped::{resume, stop};
use crate::testing::{eventually, skip};

pub(crate) const NODES: usize = 3;

/// A cluster whose nodes end with it. Nodes are numbered from 0 and named `n0` to `n2`.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    links: Vec<Link>,
    proxies: Option<Runtime>,
    disks: Vec<(usize, Disk)>,
    directory: TempDir,
    _turn: Turn,
}

/// The turn of a test with a cluster, until it is dropped: several clusters on one machine would be too slow for each.
struct Turn(());

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    fn take() -> Self {
        while TAKEN.swap(true, Ordering::AcqRel) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

struct Node {
    clients: u16,
    monitor: u16,
    routes: u16,
    process: Option<Child>,
}

/// One direction in which a node dials another.
struct Link {
    from: usize,
    to: usize,
    port: u16,
    whole: watch::Sender<bool>,
}

impl Cluster {
    /// Starts a cluster with an empty store; none, and the test is skipped, where the server is not there.
    pub(crate) fn start() -> Option<Self> {
        let cluster = Self::prepare()?;
        Some(cluster.begin())
    }

    /// Starts one in which a node's store is on a file system of its own with so many megabytes.
    pub(crate) fn start_with_small_disk(node: usize, megabytes: u64) -> Option<Self> {
        let mut cluster = Self::prepare()?;
        cluster.disks.push((node, Disk::over(&cluster.store(node), megabytes)?));
        Some(cluster.begin())
    }

    fn prepare() -> Option<Self> {
        if server().is_none() {
            skip("no NATS server; tests/nats/ready.sh prints the settings of one");
        }
        server()?;
        let turn = Turn::take();
        let proxies = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let node = |_| Node { clients: free_port(), monitor: free_port(), routes: free_port(), process: None };
        let nodes: Vec<Node> = (0..NODES).map(node).collect();
        let mut links = Vec::new();
        for (from, to) in (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to))).filter(|(a, b)| a != b) {
            let (whole, watched) = watch::channel(true);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let port = listener.local_addr().unwrap().port();
            proxies.spawn(forward(listener, nodes[to].routes, watched));
            links.push(Link { from, to, port, whole });
        }
        let cluster = Self {
            nodes,
            links,
            proxies: Some(proxies),
            disks: Vec::new(),
            directory: tempfile::tempdir().unwrap(),
            _turn: turn,
        };
        for node in 0..NODES {
            std::fs::create_dir(cluster.store(node)).unwrap();
            std::fs::write(cluster.configuration(node), cluster.settings(node)).unwrap();
        }
        Some(cluster)
    }

    fn begin(mut self) -> Self {
        self.restart_all();
        self
    }

    fn settings(&self, node: usize) -> String {
        let Node { clients, monitor, routes, .. } = &self.nodes[node];
        let dialled = self.links.iter().filter(|link| link.from == node);
        let dialled: Vec<_> = dialled.map(|link| format!("\"nats://127.0.0.1:{}\"", link.port)).collect();
        // Nodes tell each other the address at `advertise`. Nothing listens there, so the proxies are the only way.
        format!(
            "server_name: n{node}\nlisten: \"127.0.0.1:{clients}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             jetstream {{ store_dir: \"{}\", max_mem: 64M, max_file: 4G, sync_interval: always }}\n\
             cluster {{ name: tests, listen: \"127.0.0.1:{routes}\", advertise: \"127.0.0.1:1\", no_advertise: true\n\
             routes: [{}] }}\n",
            self.store(node).display(),
            dialled.join(", ")
        )
    }

    fn store(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{node}"))
    }

    fn configuration(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{node}.conf"))
    }

    /// Returns the file that a node writes its log to.
    pub(crate) fn log(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{node}.log"))
    }

    /// Returns the address for clients of one node.
    pub(crate) fn address(&self, node: usize) -> String {
        format!("nats://127.0.0.1:{}", self.nodes[node].clients)
    }

    /// Connects to a node, and to the others when it is gone.
    pub(crate) async fn connect(&self, first: usize) -> Context {
        connect((first..first + NODES).map(|node| self.address(node % NODES)).collect()).await
    }

    /// Returns the address of a store, at some of the nodes.
    pub(crate) fn store_address(&self, nodes: &[usize], stream: &str) -> String {
        let nodes: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", self.nodes[*node].clients)).collect();
        format!("nats://{}?stream={stream}", nodes.join(","))
    }

    /// Folds all sessions of a store again, as a machine that comes later.
    pub(crate) fn verify(&self, stream: &str) {
        let directory = tempfile::tempdir().unwrap();
        let run = |what| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
            command.arg("--data").arg(directory.path()).args([
                "--store",
                &self.store_address(&[0, 1, 2], stream),
                what,
            ]);
            command.env("HOME", directory.path()).output().unwrap()
        };
        let verified = run("verify");
        // It has started an owner, which may have ended.
        run("stop");
        assert!(verified.status.success(), "{verified:?}");
        assert!(String::from_utf8_lossy(&verified.stdout).contains("all is as the events say"), "{verified:?}");
    }

    fn process(&self, node: usize) -> &Child {
        self.nodes[node].process.as_ref().unwrap_or_else(|| panic!("n{node} does not run"))
    }

    /// Kills a node as a crash would.
    pub(crate) fn kill(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().unwrap_or_else(|| panic!("n{node} does not run"));
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Stops a node, which keeps its connections.
    pub(crate) fn stop(&self, node: usize) {
        stop(Pid::from_child(self.process(node)));
    }

    /// Lets a stopped node go on.
    pub(crate) fn resume(&self, node: usize) {
        resume(Pid::from_child(self.process(node)));
    }

    /// Starts a node on the store that it had, after killing it if it runs, and waits until it has caught up.
    pub(crate) fn restart(&mut self, node: usize) {
        self.spawn(node);
        self.await_health(node);
    }

    /// Kills all nodes, then starts them again.
    pub(crate) fn restart_all(&mut self) {
        for node in 0..NODES {
            if self.nodes[node].process.is_some() {
                self.kill(node);
            }
        }
        (0..NODES).for_each(|node| self.spawn(node));
        (0..NODES).for_each(|node| self.await_health(node));
    }

    fn spawn(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            self.kill(node);
        }
        let mut command = Command::new(server().unwrap());
        command.arg("--config").arg(self.configuration(node)).arg("--log").arg(self.log(node));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.nodes[node].process = Some(command.spawn().unwrap());
    }

    /// Waits until a node has caught up with all of its streams.
    pub(crate) fn await_health(&self, node: usize) {
        let healthy = || self.monitor(node, "/healthz").is_some_and(|health| health["status"] == "ok");
        eventually(&format!("n{node} is healthy"), healthy);
    }

    /// Cuts a node off from the others: what is in flight stays there. Its clients stay connected.
    pub(crate) fn cut(&self, node: usize) {
        self.set_links(node, false);
    }

    /// Joins a node with the others again: what was held up arrives now, as after a break of a real network.
    pub(crate) fn heal(&self, node: usize) {
        self.set_links(node, true);
    }

    fn set_links(&self, node: usize, whole: bool) {
        for link in self.links.iter().filter(|link| link.from == node || link.to == node) {
            link.whole.send_replace(whole);
        }
    }

    /// Fills the small disk of a node.
    pub(crate) fn fill_disk(&self, node: usize) {
        let mut ballast = std::fs::File::create(self.ballast(node)).unwrap();
        let mut block = 1 << 20;
        // Ever smaller, as the node makes and removes files meanwhile.
        while block > 0 {
            match ballast.write_all(&vec![0xff; block]) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
                    block /= 2;
                }
            }
        }
    }

    /// Frees what `fill_disk` has taken.
    pub(crate) fn free_disk(&self, node: usize) {
        std::fs::remove_file(self.ballast(node)).unwrap();
    }

    fn ballast(&self, node: usize) -> PathBuf {
        assert!(self.disks.iter().any(|(of, _)| *of == node), "n{node} has no disk of its own");
        self.store(node).join("ballast")
    }

    /// Returns the document at a path of a node's monitoring port; none if the node does not answer.
    pub(crate) fn monitor(&self, node: usize, path: &str) -> Option<Value> {
        let address = ([127, 0, 0, 1], self.nodes[node].monitor).into();
        let patience = Duration::from_millis(500);
        let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the leader of a stream in the eyes of one node.
    pub(crate) fn leader_seen_by(&self, node: usize, stream: &str) -> Option<usize> {
        let report = self.monitor(node, "/jsz?streams=true")?;
        let accounts = report["account_details"].as_array()?.iter();
        let mut streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
        let found = streams.find(|detail| detail["name"] == stream)?;
        found["cluster"]["leader"].as_str()?.strip_prefix('n')?.parse().ok()
    }

    /// Waits until a majority agrees on the leader of a stream, and returns it.
    pub(crate) fn leader(&self, stream: &str) -> usize {
        let mut agreed = None;
        eventually("a majority agrees on a leader", || {
            let seen: Vec<_> = (0..NODES).filter_map(|node| self.leader_seen_by(node, stream)).collect();
            let votes = |of: usize| seen.iter().filter(|leader| **leader == of).count();
            agreed = (0..NODES).find(|node| votes(*node) > NODES / 2);
            agreed.is_some_and(|leader| self.leader_seen_by(leader, stream) == Some(leader))
        });
        agreed.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut process in self.nodes.iter_mut().filter_map(|node| node.process.take()) {
            // A stopped node, too, ends with this signal.
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            (0..NODES).for_each(|node| print_end(&self.log(node)));
        }
        if let Some(proxies) = self.proxies.take() {
            proxies.shutdown_background();
        }
    }
}

fn print_end(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    println!("{}:\n{}", log.display(), lines[lines.len().saturating_sub(30)..].join("\n"));
}

/// Returns the program of the server.
fn server() -> Option<PathBuf> {
    std::env::var_os("FOLDSPACE_NATS_SERVER").map(PathBuf::from)
}

/// Connects to the first of some addresses that answers.
pub(crate) async fn connect(addresses: Vec<String>) -> Context {
    let options = async_nats::ConnectOptions::new().retain_servers_order();
    // Only an unanswered ping tells a stopped node from a silent one.
    let options = options.ping_interval(Duration::from_secs(1)).connection_timeout(Duration::from_secs(1));
    let options = options.reconnect_delay_callback(|_| Duration::from_millis(50));
    let mut context = jetstream::new(options.connect(addresses).await.unwrap());
    context.set_timeout(Duration::from_secs(2));
    context
}

/// Returns a port that is free, and that the kernel gives to no connection while a node is down.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    let ports = std::iter::from_fn(|| Some(20_000 + (begin + TRIED.fetch_add(1, Ordering::Relaxed)) % 10_000));
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.take(10_000).find(is_free).expect("a port below 30000 is free")
}

/// Forwards each connection to a port, and holds it up while the link is cut.
async fn forward(listener: std::net::TcpListener, port: u16, whole: watch::Receiver<bool>) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((near, _)) = listener.accept().await {
        let mut whole = whole.clone();
        tokio::spawn(async move {
            whole.wait_for(|whole| *whole).await.ok()?;
            let far = dial(port).await?;
            near.set_nodelay(true).ok()?;
            far.set_nodelay(true).ok()?;
            let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
            tokio::join!(copy(from_near, to_far, whole.clone()), copy(from_far, to_near, whole));
            Some(())
        });
    }
}

/// Dials a node, which may still be starting.
async fn dial(port: u16) -> Option<tokio::net::TcpStream> {
    for _ in 0..50 {
        if let Ok(stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
            return Some(stream);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut whole: watch::Receiver<bool>) {
    let mut block = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut block).await {
        if whole.wait_for(|whole| *whole).await.is_err() || to.write_all(&block[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
