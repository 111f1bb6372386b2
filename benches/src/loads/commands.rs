//! Commands in a container, beside the host's own spawn and the engine's command line.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::{
    CommandPolicy, Dispatcher, Durability, HostOptions, HostWorkspace, NewSession, PodmanOptions, PodmanSandbox,
    Session, ShellRules, SnapshotPolicy, ToolCall, Tools, Workspace,
};
use serde_json::{Value, json};

use super::Size;
use crate::disk::Scratch;
use crate::journal;
use crate::sample::{Noise, micros, quantile};
use crate::table::{Table, against, number};

/// What a container of a bench is to be; an error says how to name an engine.
///
/// # Errors
/// When the environment names no engine and image.
pub fn options() -> Result<PodmanOptions> {
    let set = |name: &'static str| std::env::var(name).with_context(|| format!("{name} must be set for this load"));
    let (url, image) = (set("CONTAINER_HOST")?, set("FOLDSPACE_IMAGE")?);
    Ok(PodmanOptions { image, connection: Some(url), ..PodmanOptions::default() })
}

/// A session with a workspace on which calls can be made.
pub struct Bench {
    dispatcher: Dispatcher,
    runtime: tokio::runtime::Runtime,
    /// Where a container's things are, gone with this.
    cache: Option<PathBuf>,
    _scratch: Scratch,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.dispatcher.workspace().close();
        if let Some(cache) = &self.cache {
            drop(std::fs::remove_dir_all(cache));
        }
    }
}

/// Where the library puts the things of containers.
fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FOLDSPACE_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/foldspace/podman")))
}

impl Bench {
    /// Opens a session in a store of its own; `open` gives its workspace.
    ///
    /// # Errors
    /// What the store and the workspace say.
    pub fn open(open: impl FnOnce(&Session) -> Result<Arc<dyn Workspace>>) -> Result<Self> {
        let scratch = Scratch::new("commands")?;
        let sessions = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
        let session = sessions.create(NewSession::default())?.as_agent("agent-1");
        let workspace = open(&session)?;
        let cache = workspace.container().and(cache()).map(|cache| cache.join(session.id().to_string()));
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        let dispatcher = Dispatcher::new(session, Tools::standard(), workspace)?.with_rules(rules);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { dispatcher, runtime, cache, _scratch: scratch })
    }

    /// Makes a call, and gives how long it took.
    ///
    /// # Errors
    /// When it fails.
    pub fn call(&self, tool: &str, params: Value) -> Result<Duration> {
        let start = Instant::now();
        let outcome = self.runtime.block_on(self.dispatcher.call(ToolCall::new(tool, params)))?;
        let took = start.elapsed();
        ensure!(outcome.is_ok(), "{}", outcome.text);
        Ok(took)
    }
}

/// Starts a program of this machine and waits for its end.
fn spawn(program: &str, arguments: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    let mut command = Command::new(program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "{program} {arguments:?}: {status}");
    Ok(start.elapsed())
}

/// Measures commands, and the first one of a session.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    Ok(vec![warm(size)?, cold(size)?])
}

fn warm(size: Size) -> Result<Table> {
    let options = options()?;
    let podman = Bench::open(|session| Ok(Arc::new(PodmanSandbox::open(session.id(), &options)?)))?;
    let directory = Scratch::new("host")?;
    let inside = directory.path().join("files");
    let host = Bench::open(|_| Ok(Arc::new(HostWorkspace::open(&inside, &HostOptions::default())?)))?;
    let truth = json!({ "command": ["/bin/true"] });
    podman.call("shell_execute", truth.clone())?;
    let mut noise = Noise::new(1);
    let mut times: [Vec<Duration>; 5] = Default::default();
    for number in 0..size.of(30, 400) {
        times[0].push(spawn("/bin/true", &[])?);
        times[1].push(podman.call("shell_execute", truth.clone())?);
        times[2].push(host.call("shell_execute", truth.clone())?);
        let path = format!("f/{number}.txt");
        let content = noise.text(4 << 10);
        times[3].push(podman.call("write_file", json!({ "file_path": path, "content": content }))?);
        times[4].push(podman.call("read_file", json!({ "file_path": path }))?);
    }
    let mut at = |at: usize, part: f64| quantile(&mut times[at], part).map_or(f64::NAN, micros);
    let limit = at(0, 0.5);
    let mut table = Table::new(
        "commands: `/bin/true`, and files of 4 KiB in a container's workspace, recorded, not waiting for the disk",
        &["what", "p50 us", "p99 us", "x host spawn", "target"],
    );
    let mut row = |name: &str, number_of: usize, target: Option<f64>| {
        let (p50, p99) = (at(number_of, 0.5), at(number_of, 0.99));
        let ratio = p50 / limit;
        let target =
            target.map_or(String::new(), |target| against(if target < 10.0 { ratio } else { p50 }, target, false));
        table.row([name.to_owned(), number(p50), number(p99), number(ratio), target]);
    };
    row("host `posix_spawn` and wait (the limit)", 0, None);
    row("`shell_execute` in a running container (3x)", 1, Some(3.0));
    row("`shell_execute` on the host backend", 2, None);
    row("`write_file` in a container's workspace (300 us)", 3, Some(300.0));
    row("`read_file` in a container's workspace (300 us)", 4, Some(300.0));
    Ok(table)
}

/// The engine's own command line; `FOLDSPACE_PODMAN` is how to call it.
fn podman(arguments: &[&str]) -> Result<Duration> {
    let program = std::env::var("FOLDSPACE_PODMAN").unwrap_or_else(|_| "podman".to_owned());
    let mut words = program.split_whitespace();
    let program = words.next().unwrap_or("podman").to_owned();
    let all: Vec<&str> = words.chain(arguments.iter().copied()).collect();
    spawn(&program, &all)
}

/// A container of the engine's command line, gone with this.
struct Removed<'a>(&'a str);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        drop(podman(&["rm", "-f", "-t", "0", self.0]));
    }
}

fn cold(size: Size) -> Result<Table> {
    let options = options()?;
    let (mut ours, mut theirs, mut exec) = (Vec::new(), Vec::new(), Vec::new());
    let name = format!("foldspace-bench-{}", std::process::id());
    podman(&["run", "-d", "--name", &name, &options.image, "sleep", "600"])?;
    let _removed = Removed(&name);
    for _ in 0..size.of(3, 15) {
        let bench = Bench::open(|session| Ok(Arc::new(PodmanSandbox::open(session.id(), &options)?)))?;
        ours.push(bench.call("shell_execute", json!({ "command": ["/bin/true"] }))?);
        drop(bench);
        theirs.push(podman(&["run", "--rm", "--memory", "1g", &options.image, "/bin/true"])?);
        exec.push(podman(&["exec", &name, "/bin/true"])?);
    }
    let middle = |times: &mut Vec<Duration>| quantile(times, 0.5).map_or(f64::NAN, |time| micros(time) / 1000.0);
    let (ours, theirs, exec) = (middle(&mut ours), middle(&mut theirs), middle(&mut exec));
    let mut table = Table::new(
        "commands: the first of a session, container and all (target: 2x `podman run`)",
        &["what", "p50 ms", "x `podman run`"],
    );
    table.row(["`podman run --rm IMAGE /bin/true`".to_owned(), number(theirs), number(1.0)]);
    table.row(["first `shell_execute` of a session".to_owned(), number(ours), against(ours / theirs, 2.0, false)]);
    table.row(["`podman exec` in a running container".to_owned(), number(exec), number(exec / theirs)]);
    Ok(table)
}
