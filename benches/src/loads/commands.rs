//! Commands in a container, beside the host's own spawn and the engine's command line.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::backends::{EngineKind, HostOptions, PodmanOptions};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::tools::{CommandPolicy, ShellRules};
use foldspace::{NewSession, ToolCall, ToolRunner, Tools, WorkspaceSpec};
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
    let (engine, url) = match std::env::var("FOLDSPACE_TEST_ENGINE").as_deref() {
        Ok("docker") => (EngineKind::Docker, "DOCKER_HOST"),
        _ => (EngineKind::Podman, "CONTAINER_HOST"),
    };
    let (url, image) = (set(url)?, set("FOLDSPACE_IMAGE")?);
    Ok(PodmanOptions { engine, image, connection: Some(url), ..PodmanOptions::default() })
}

/// A session with a workspace on which calls can be made. With it the workspace goes.
pub struct Bench {
    tool_runner: ToolRunner,
    runtime: tokio::runtime::Runtime,
    spec: WorkspaceSpec,
    scratch: Scratch,
}

impl Bench {
    /// Opens a session in a store of its own.
    ///
    /// # Errors
    /// What the store and the workspace say.
    pub fn open(spec: WorkspaceSpec) -> Result<Self> {
        let scratch = Scratch::new("commands")?;
        let sessions = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
        let session = sessions.create(NewSession::default())?.as_agent("agent-1");
        let workspace = spec.open(session.id(), scratch.path())?;
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        let tool_runner = ToolRunner::with_rules(session, Tools::standard(), workspace, rules)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { tool_runner, runtime, spec, scratch })
    }

    /// One with a directory of the host.
    ///
    /// # Errors
    /// As [`open`](Bench::open).
    pub fn host() -> Result<Self> {
        Self::open(WorkspaceSpec::Host(HostOptions::default()))
    }

    /// One with a container that runs.
    ///
    /// # Errors
    /// As [`open`](Bench::open), and what the engine says.
    pub fn container() -> Result<Self> {
        let bench = Self::open(WorkspaceSpec::Podman(options()?))?;
        bench.truth()?;
        Ok(bench)
    }

    /// Makes a call, and gives how long it took.
    ///
    /// # Errors
    /// When it fails.
    pub fn call(&self, tool: &str, params: Value) -> Result<Duration> {
        let start = Instant::now();
        let outcome = self.runtime.block_on(self.tool_runner.call(ToolCall::new(tool, params)))?;
        let took = start.elapsed();
        ensure!(outcome.is_ok(), "{}", outcome.text);
        Ok(took)
    }

    /// Runs `/bin/true`.
    ///
    /// # Errors
    /// As [`call`](Bench::call).
    pub fn truth(&self) -> Result<Duration> {
        self.call("shell_execute", json!({ "command": ["/bin/true"] }))
    }

    /// Writes a file of 4 KiB that is not there yet.
    ///
    /// # Errors
    /// As [`call`](Bench::call).
    pub fn write(&self, number: u64, noise: &mut Noise) -> Result<Duration> {
        let content = noise.text(4 << 10);
        self.call("write_file", json!({ "file_path": path(number), "content": content }))
    }

    /// Reads one that was written.
    ///
    /// # Errors
    /// As [`call`](Bench::call).
    pub fn read(&self, number: u64) -> Result<Duration> {
        self.call("read_file", json!({ "file_path": path(number) }))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What is left is seen by who looks for it; a bench has nothing better to do about it.
        drop(self.tool_runner.close());
        drop(self.spec.remove(self.tool_runner.session().id(), self.scratch.path()));
    }
}

fn path(number: u64) -> String {
    format!("f/{number}.txt")
}

/// Runs `/bin/true` of this machine and waits for its end.
///
/// # Errors
/// When it can't be run.
pub fn spawn_truth() -> Result<Duration> {
    spawn("/bin/true", &[])
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
    Ok(vec![warm(size)?, files(size)?, cold(size)?])
}

fn warm(size: Size) -> Result<Table> {
    let (podman, host) = (Bench::container()?, Bench::host()?);
    let (mut limit, mut inside, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.of(30, 400) {
        limit.push(spawn_truth()?);
        inside.push(podman.truth()?);
        outside.push(host.truth()?);
    }
    let mut table = Table::new(
        "commands: `/bin/true`, recorded, not waiting for the disk",
        &["what", "p50 us", "p99 us", "x host spawn (target: 3x)"],
    );
    let whole = quantile(&mut limit, 0.5).map_or(f64::NAN, micros);
    for (name, mut times, is_judged) in [
        ("host `posix_spawn` and wait (the limit)", limit, false),
        ("`shell_execute` in a running container", inside, true),
        ("`shell_execute` on the host backend", outside, false),
    ] {
        let (p50, p99) = middle_and_worst(&mut times);
        let ratio = if is_judged { against(p50 / whole, 3.0, false) } else { number(p50 / whole) };
        table.row([name.to_owned(), number(p50), number(p99), ratio]);
    }
    Ok(table)
}

fn middle_and_worst(times: &mut [Duration]) -> (f64, f64) {
    let mut at = |part| quantile(times, part).map_or(f64::NAN, micros);
    (at(0.5), at(0.99))
}

/// Files in a row, as an agent reads and writes them, and with a command between any two, which leaves the
/// processor's caches cold. What of it is the recording shows a workspace in memory.
fn files(size: Size) -> Result<Table> {
    let mut table = Table::new(
        "files of 4 KiB in a container's workspace, recorded, not waiting for the disk (target: 300 us)",
        &["what", "p50 us", "p99 us", "the same in memory, p50 us"],
    );
    for (between, is_judged) in [("in a row", true), ("a command between any two", false)] {
        let (container, memory) = (Bench::container()?, Bench::open(WorkspaceSpec::Memory)?);
        let mut noise = Noise::new(1);
        let mut times: [Vec<Duration>; 4] = Default::default();
        for number in 0..size.of(50, 500) {
            for (bench, at) in [(&container, 0), (&memory, 2)] {
                if !is_judged {
                    spawn_truth()?;
                }
                times[at].push(bench.write(number, &mut noise)?);
                if !is_judged {
                    spawn_truth()?;
                }
                times[at + 1].push(bench.read(number)?);
            }
        }
        let [mut write, mut read, mut write_memory, mut read_memory] = times;
        for (tool, times, memory) in
            [("write_file", &mut write, &mut write_memory), ("read_file", &mut read, &mut read_memory)]
        {
            let ((p50, p99), (recorded, _)) = (middle_and_worst(times), middle_and_worst(memory));
            let judged = if is_judged { against(p50, 300.0, false) } else { number(p50) };
            table.row([format!("`{tool}`, {between}"), judged, number(p99), number(recorded)]);
        }
    }
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

/// A container of the engine's command line, which runs until this is dropped.
pub struct Theirs {
    image: String,
    name: String,
}

impl Theirs {
    /// Starts it.
    ///
    /// # Errors
    /// When the command line can't be called.
    pub fn start() -> Result<Self> {
        let theirs = Self { image: options()?.image, name: format!("foldspace-bench-{}", std::process::id()) };
        podman(&["run", "-d", "--network", "none", "--name", &theirs.name, &theirs.image, "sleep", "600"])?;
        Ok(theirs)
    }

    /// `podman exec` of `/bin/true` in it.
    ///
    /// # Errors
    /// When that fails.
    pub fn exec(&self) -> Result<Duration> {
        podman(&["exec", &self.name, "/bin/true"])
    }

    /// `podman run` of `/bin/true` in another one.
    ///
    /// # Errors
    /// When that fails.
    pub fn run(&self) -> Result<Duration> {
        podman(&["run", "--rm", "--network", "none", "--memory", "1g", &self.image, "/bin/true"])
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        drop(podman(&["kill", &self.name]));
        drop(podman(&["rm", "-f", &self.name]));
    }
}

/// The first command of a session, container and all.
///
/// # Errors
/// When it fails.
pub fn first() -> Result<Duration> {
    Bench::open(WorkspaceSpec::Podman(options()?))?.truth()
}

fn cold(size: Size) -> Result<Table> {
    let (mut ours, mut run, mut exec) = (Vec::new(), Vec::new(), Vec::new());
    let theirs = Theirs::start()?;
    for _ in 0..size.of(3, 15) {
        ours.push(first()?);
        run.push(theirs.run()?);
        exec.push(theirs.exec()?);
    }
    drop(theirs);
    let middle = |times: &mut Vec<Duration>| quantile(times, 0.5).map_or(f64::NAN, |time| micros(time) / 1000.0);
    let (ours, theirs, exec) = (middle(&mut ours), middle(&mut run), middle(&mut exec));
    let mut table = Table::new(
        "commands: the first of a session, container and all (target: 2x `podman run`)",
        &["what", "p50 ms", "x `podman run`"],
    );
    table.row(["`podman run --rm IMAGE /bin/true`".to_owned(), number(theirs), number(1.0)]);
    table.row(["first `shell_execute` of a session".to_owned(), number(ours), against(ours / theirs, 2.0, false)]);
    table.row(["`podman exec` in a running container".to_owned(), number(exec), number(exec / theirs)]);
    Ok(table)
}
