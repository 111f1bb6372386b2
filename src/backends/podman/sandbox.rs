//! A session's sandbox: its files at once, its container when the first command needs it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::engine::{Engine, EngineError, Plan, RUN, WORKSPACE};
use super::files::Files;
use super::leftovers::owner_of_this_process;
use super::options::{OverlayUse, PodmanOptions, RunnerUse};
use super::paths::{self, Paths};
use super::way::{TOKEN, Way};
use crate::backends::commands::{Busy, Commands, Place};
use crate::backends::disk::{OverlayDisk, OverlayOptions, PlainDisk, Tree};
use crate::backends::executor::Executor;
use crate::backends::on_disk::OnDisk;
use crate::backends::runner::RUNNER;
use crate::backends::shell::{DEFAULT_TIMEOUT, Shell, ShellError, ShellProperties};
use crate::backends::{BackendError, Capture, Container, FileChange, MachineNews, Workspace};
use crate::engine::event::{ContainerStarted, ContainerStopped};
use crate::engine::id::SessionId;

/// The backend's name.
const NAME: &str = "podman";
/// How often an idle container is looked for.
const REAPING: Duration = Duration::from_millis(500);

/// A container of its own for a session, with the session's files at `/workspace`.
///
/// The container comes into being with the first command, runs as `nobody` without capabilities, without a
/// network unless it was asked for, and within limits; it is stopped when nobody uses it, started again
/// when somebody does, and removed when the workspace is closed or dropped. The files stay.
pub struct PodmanSandbox {
    shared: Arc<Shared>,
    shell: Arc<Commands<Shared>>,
}

struct Shared {
    session: SessionId,
    name: String,
    options: PodmanOptions,
    paths: Paths,
    files: Files,
    is_new: bool,
    busy: Arc<AtomicU32>,
    machine: Mutex<Machine>,
}

#[derive(Default)]
struct Machine {
    engine: Option<Arc<Engine>>,
    container: Option<Live>,
    /// How commands run, once that is known. What could not run once is not tried again.
    way: Option<Way>,
    /// The container that was stopped because nobody used it.
    stopped: Option<String>,
    news: Vec<MachineNews>,
    used: Option<Instant>,
}

struct Live {
    id: String,
    pid: i32,
    executor: Arc<dyn Executor>,
}

impl PodmanSandbox {
    /// Opens the files of a session; no container is made yet, and no engine is asked.
    ///
    /// # Errors
    /// [`BackendError`] when the place for the files can't be made.
    pub fn open(session: SessionId, options: &PodmanOptions) -> Result<Self, BackendError> {
        let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
        let paths = Paths::prepare(session).map_err(failed)?;
        let (files, is_new) = files(&paths, options.overlay)?;
        let shared = Arc::new(Shared {
            session,
            name: format!("foldspace-{session}"),
            options: options.clone(),
            paths,
            files,
            is_new,
            busy: Arc::default(),
            machine: Mutex::default(),
        });
        let properties = ShellProperties {
            backend_name: NAME,
            sandboxed: true,
            network_enabled: options.network,
            default_timeout: DEFAULT_TIMEOUT,
            in_container: true,
        };
        let shell = Arc::new(Commands::new(Arc::clone(&shared), properties));
        reap_when_idle(&shared);
        Ok(Self { shared, shell })
    }

    /// Removes the files, which are in the journal, too. The container must have been stopped.
    ///
    /// # Errors
    /// When they can't be removed.
    pub fn remove_files(self) -> Result<(), BackendError> {
        let root = self.shared.paths.root.clone();
        drop(self);
        crate::backends::spec::remove(&root).map_err(|error| BackendError { backend: NAME, reason: error.to_string() })
    }
}

impl Container for Shared {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&self) -> Result<(), ShellError> {
        self.executor().map(drop)
    }

    fn stop(&self) {
        self.tear_down("asked");
    }
}

/// The files of a session, and whether they are still to be filled.
fn files(paths: &Paths, overlay: OverlayUse) -> Result<(Files, bool), BackendError> {
    let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
    let owner = rustix::process::geteuid().is_root().then_some(super::engine::USER);
    // An overlay is attached from outside, which takes root and an engine of this machine.
    let possible = || owner.is_some() && !paths.files.exists() && OverlayDisk::supported(&paths.layers).is_ok();
    if overlay == OverlayUse::Auto && possible() {
        let options = OverlayOptions { owner, ..OverlayOptions::new(NAME, &paths.layers.join("overlay")) };
        if let Some(disk) = OverlayDisk::open(options.clone()).map_err(failed)? {
            return Ok((Files::Overlay(OnDisk::new(NAME, Box::new(disk))), false));
        }
        let disk = OverlayDisk::create(options, |_| Ok(()))?;
        return Ok((Files::Overlay(OnDisk::new(NAME, Box::new(disk))), true));
    }
    let is_new = !paths.files.exists();
    let aside = paths.root.join("aside");
    paths::directory(&paths.files, 0o755).map_err(failed)?;
    paths::directory(&aside, 0o700).map_err(failed)?;
    paths.give_away(&paths.files).map_err(failed)?;
    let tree = Tree::beneath(NAME, &paths.files, &aside, owner).map_err(failed)?;
    let disk = PlainDisk::new(tree).map_err(failed)?;
    Ok((Files::Plain(OnDisk::new(NAME, Box::new(disk))), is_new))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what runs commands in a container that runs, whatever has to be done for it.
    fn ensure(&self, machine: &mut Machine) -> Result<Arc<dyn Executor>, EngineError> {
        machine.used = Some(now());
        if let Some(container) = machine.container.take() {
            if container.executor.is_alive() {
                return Ok(Arc::clone(&machine.container.insert(container).executor));
            }
            self.forget(machine, &container, "vanished");
        }
        let engine = match &machine.engine {
            Some(engine) => Arc::clone(engine),
            None => Arc::new(Engine::connect(self.options.connection.as_deref())?),
        };
        machine.engine = Some(Arc::clone(&engine));
        let started = self.bring_up_somehow(&engine, machine);
        if let Err(EngineError::Unreachable(_)) = &started {
            // Another one may be there next time.
            machine.engine = None;
        }
        let (container, event) = started?;
        machine.used = Some(now());
        machine.news.push(MachineNews::Started(event));
        Ok(Arc::clone(&machine.container.insert(container).executor))
    }

    /// Brings the container up with the runner or, where that can't run, without it.
    fn bring_up_somehow(
        &self,
        engine: &Engine,
        machine: &mut Machine,
    ) -> Result<(Live, ContainerStarted), EngineError> {
        self.provide_image(engine)?;
        let way = match machine.way.take() {
            Some(way) => way,
            None => Way::choose(engine, &self.options)?,
        };
        let stopped = machine.stopped.take();
        let (started, way) = match self.bring_up(engine, stopped, &way) {
            // Whether it is the runner's fault that it does not start shows without the runner.
            Err(EngineError::NoRunner(reason) | EngineError::Failed { action: "start the container", reason })
                if way == Way::Runner && self.options.runner == RunnerUse::Auto =>
            {
                let way = Way::Exec(reason);
                (self.bring_up(engine, None, &way), way)
            }
            other => (other, way),
        };
        if let (Ok(_), Some(reason)) = (&started, way.reason()) {
            let container = &self.name;
            tracing::warn!(container, reason, "the runner does not run here; commands go through the engine, slower");
        }
        machine.way = Some(way).filter(|_| started.is_ok());
        started
    }

    /// Starts the container that we stopped, or makes a new one.
    fn bring_up(
        &self,
        engine: &Engine,
        stopped: Option<String>,
        way: &Way,
    ) -> Result<(Live, ContainerStarted), EngineError> {
        let there = match engine.inspect(&self.name) {
            Ok(seen) => Some(seen),
            Err(EngineError::NoContainer) => None,
            Err(error) => return Err(error),
        };
        let again = there.as_ref().filter(|seen| !seen.running && Some(&seen.id) == stopped.as_ref());
        let io =
            |error: std::io::Error| EngineError::Failed { action: "prepare the container", reason: error.to_string() };
        let known = match again {
            Some(seen) => Some(seen.id.clone()),
            None => {
                if let Some(other) = &there {
                    // Another process left it; nobody else has the session now.
                    engine.remove(&other.id)?;
                }
                self.paths.prepare_run(RUNNER).map_err(io)?;
                None
            }
        };
        let token = token().map_err(io)?;
        self.paths.prepare_door(TOKEN, &token).map_err(io)?;
        let id = match known {
            Some(id) => id,
            None => self.create(engine, way)?,
        };
        let started = engine.start(&id);
        let container = started.and_then(|()| self.reach(engine, &id, &token, way));
        let (container, limits_enforced) = container.inspect_err(|_| drop(engine.remove(&id)))?;
        let event = ContainerStarted {
            name: self.name.clone(),
            id,
            image: self.options.image.clone(),
            engine: format!("podman {}", engine.version),
            created: again.is_none(),
            rootless: engine.rootless,
            limits_enforced,
            overlay: self.files.is_overlay(),
            runner: way.reason().is_none(),
            without_runner: way.reason().unwrap_or_default().to_owned(),
        };
        Ok((container, event))
    }

    fn provide_image(&self, engine: &Engine) -> Result<(), EngineError> {
        let image = &self.options.image;
        if !engine.has_image(image)? {
            if !self.options.pull {
                return Err(EngineError::NoImage(image.clone()));
            }
            engine.pull(image, &mut |line| tracing::info!(image, "{line}"))?;
        }
        Ok(())
    }

    fn create(&self, engine: &Engine, way: &Way) -> Result<String, EngineError> {
        let (session, owner) = (self.session.to_string(), owner_of_this_process());
        let workspace: PathBuf =
            if self.files.is_overlay() { self.paths.mount.clone() } else { self.paths.files.clone() };
        engine.create(&Plan {
            name: &self.name,
            session: &session,
            owner: &owner,
            options: &self.options,
            workspace: &workspace,
            run: &self.paths.run,
            door: &self.paths.door,
            seccomp: &self.paths.seccomp,
            command: way.command(),
        })
    }

    /// Shows the files in a container that runs, reaches what runs its commands, and looks whether it is confined.
    fn reach(&self, engine: &Engine, id: &str, token: &[u8], way: &Way) -> Result<(Live, bool), EngineError> {
        let failed = |what: String| EngineError::Failed { action: "start the container", reason: what };
        let seen = engine.inspect(id)?;
        if !seen.running || seen.pid == 0 {
            return Err(failed(format!("{} ended at once, with exit code {}", self.name, seen.exit_code)));
        }
        self.files.attach(seen.pid).map_err(|error| failed(format!("its files can't be shown in it: {error}")))?;
        let (executor, limits_enforced) = way.reach(engine, id, seen.pid, &self.paths, token)?;
        Ok((Live { id: id.to_owned(), pid: seen.pid, executor }, limits_enforced))
    }

    fn forget(&self, machine: &mut Machine, container: &Live, reason: &str) {
        self.files.detach(container.pid);
        let event = ContainerStopped { name: self.name.clone(), reason: reason.to_owned() };
        machine.news.push(MachineNews::Stopped(event));
    }

    /// Stops the container when nobody has used it for long.
    fn stop_if_idle(&self) {
        let idle = Duration::from_secs(self.options.idle_seconds);
        let mut machine = self.lock();
        if self.busy.load(Ordering::Acquire) > 0 {
            // It is idle from the end of the last command on.
            machine.used = Some(now());
            return;
        }
        let is_idle = machine.used.is_some_and(|used| now().duration_since(used) >= idle);
        if idle.is_zero() || !is_idle {
            return;
        }
        let (Some(container), Some(engine)) = (machine.container.take(), machine.engine.clone()) else { return };
        match engine.stop(&container.id) {
            Ok(()) => machine.stopped = Some(container.id.clone()),
            Err(error) => tracing::warn!(%error, "an idle container could not be stopped"),
        }
        self.forget(&mut machine, &container, "idle");
    }

    /// Removes the container, running or not.
    fn tear_down(&self, reason: &str) {
        let mut machine = self.lock();
        let Some(engine) = machine.engine.clone() else { return };
        let id = match machine.container.take() {
            Some(container) => {
                self.forget(&mut machine, &container, reason);
                container.id
            }
            None => match machine.stopped.take() {
                Some(id) => id,
                None => return,
            },
        };
        match engine.remove(&id) {
            Ok(()) | Err(EngineError::NoContainer) => {}
            Err(error) => tracing::warn!(%error, "a container could not be removed; `foldspace gc` will"),
        }
    }
}

/// A secret that only this process and the runner know.
fn token() -> std::io::Result<Vec<u8>> {
    let mut token = vec![0; 32];
    getrandom::fill(&mut token).map_err(std::io::Error::other)?;
    Ok(token)
}

#[expect(clippy::disallowed_methods, reason = "how long a container has been idle is nobody's history")]
fn now() -> Instant {
    Instant::now()
}

/// Looks now and then whether the container is idle, for as long as the sandbox is there.
fn reap_when_idle(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let reap = move || {
        while let Some(shared) = Weak::upgrade(&weak) {
            shared.stop_if_idle();
            drop(shared);
            std::thread::sleep(REAPING);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("foldspace-reaper".to_owned()).spawn(reap) {
        tracing::warn!(%error, "idle containers will not be stopped");
    }
}

impl Place for Shared {
    fn executor(&self) -> Result<Arc<dyn Executor>, ShellError> {
        let mut machine = self.lock();
        let executor = self.ensure(&mut machine);
        executor.map_err(|error| ShellError::Unavailable { backend: NAME, reason: error.to_string() })
    }

    fn root(&self) -> String {
        WORKSPACE.to_owned()
    }

    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError> {
        Ok((self.paths.run.join("scripts"), PathBuf::from(RUN).join("scripts")))
    }

    fn busy(&self) -> Busy {
        Busy::begin(&self.busy)
    }

    fn lost(&self) {
        self.tear_down("vanished");
    }
}

impl Workspace for PodmanSandbox {
    fn backend_name(&self) -> &'static str {
        NAME
    }

    fn project(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.shared.files.project(changes)
    }

    fn shell(&self) -> Option<Arc<dyn Shell>> {
        Some(Arc::clone(&self.shell) as Arc<dyn Shell>)
    }

    fn capture(&self) -> Option<&dyn Capture> {
        Some(&self.shared.files)
    }

    fn is_blank(&self) -> bool {
        self.shared.is_new
    }

    /// The dispatcher asks for this when no command runs.
    fn news(&self) -> Vec<MachineNews> {
        if !self.shared.files.tidy() {
            self.shared.tear_down("its files could not be shown");
        }
        std::mem::take(&mut self.shared.lock().news)
    }

    fn container(&self) -> Option<Arc<dyn Container>> {
        Some(Arc::clone(&self.shared) as Arc<dyn Container>)
    }

    fn root(&self) -> Option<String> {
        Some(WORKSPACE.to_owned())
    }

    fn description(&self) -> String {
        let network = if self.shared.options.network { "There is a network" } else { "There is no network" };
        // While the container comes up nothing is known yet, and nobody should have to wait for it.
        let way = self.shared.machine.try_lock().ok().and_then(|machine| machine.way.clone());
        let is_slow = match &way {
            Some(way) => way.reason().is_some(),
            None => self.shared.options.runner == RunnerUse::Never,
        };
        let slow = if is_slow { " Each takes some 100 ms to start." } else { "" };
        format!("Commands run in an isolated Linux container. {network}, and no privileges.{slow}")
    }

    fn close(&self) {
        self.shared.tear_down("closed");
    }
}

impl Drop for PodmanSandbox {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        // The engine may not be asked from within an async task.
        let torn_down = std::thread::Builder::new().spawn(move || shared.tear_down("closed"));
        if let Ok(thread) = torn_down {
            // A panic there has been printed.
            drop(thread.join());
        }
    }
}

impl std::fmt::Debug for PodmanSandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodmanSandbox").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
