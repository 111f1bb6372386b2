//! A session's sandbox: its files at once, its container when the first command needs it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::confinement::Confinement;
use super::engine::{DOOR, Engine, EngineError, Plan, RUN, WORKSPACE};
use super::files::Files;
use super::leftovers::owner_of_this_process;
use super::options::{OverlayUse, PodmanOptions};
use super::paths::{self, Paths};
use crate::backends::blank::Blank;
use crate::backends::commands::{Busy, Commands, Place};
use crate::backends::disk::{OverlayDisk, OverlayOptions, PlainDisk, Tree};
use crate::backends::on_disk::OnDisk;
use crate::backends::runner::{RUNNER, Runner};
use crate::backends::shell::{DEFAULT_TIMEOUT, Shell, ShellError, ShellProperties};
use crate::backends::{BackendError, Capture, Container, FileChange, MachineNews, Workspace};
use crate::engine::event::{ContainerStarted, ContainerStopped};
use crate::engine::id::SessionId;

/// The backend's name.
const NAME: &str = "podman";
/// How long a container's runner may take to answer first.
const READY: Duration = Duration::from_secs(20);
/// How often an idle container is looked for.
const REAPING: Duration = Duration::from_millis(500);
/// The runner's socket and its token, in a directory of their own.
const SOCKET: &str = "socket";
const TOKEN: &str = "socket.token";

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
    blank: Blank,
    busy: Arc<AtomicU32>,
    machine: Mutex<Machine>,
}

#[derive(Default)]
struct Machine {
    engine: Option<Arc<Engine>>,
    container: Option<Live>,
    /// The container that was stopped because nobody used it.
    stopped: Option<String>,
    news: Vec<MachineNews>,
    used: Option<Instant>,
}

struct Live {
    id: String,
    pid: i32,
    runner: Runner,
}

impl PodmanSandbox {
    /// Opens the files of a session; no container is made yet, and no engine is asked.
    ///
    /// # Errors
    /// [`BackendError`] when the place for the files can't be made.
    pub fn open(session: SessionId, options: &PodmanOptions) -> Result<Self, BackendError> {
        let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
        let paths = Paths::prepare(session).map_err(failed)?;
        let (files, blank) = files(&paths, options.overlay)?;
        let shared = Arc::new(Shared {
            session,
            name: format!("foldspace-{session}"),
            options: options.clone(),
            paths,
            files,
            blank,
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
        self.runner().map(drop)
    }

    fn stop(&self) {
        self.tear_down("asked");
    }
}

/// The files of a session, and whether they are still to be filled.
fn files(paths: &Paths, overlay: OverlayUse) -> Result<(Files, Blank), BackendError> {
    let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
    let owner = rustix::process::geteuid().is_root().then_some(super::engine::USER);
    let blank = |is_new| Blank::new(NAME, paths.root.join("filling"), is_new);
    // An overlay is attached from outside, which takes root and an engine of this machine.
    let possible = || owner.is_some() && !paths.files.exists() && OverlayDisk::supported(&paths.layers).is_ok();
    if overlay == OverlayUse::Auto && possible() {
        let options = OverlayOptions { owner, ..OverlayOptions::new(NAME, &paths.layers.join("overlay")) };
        let open = OverlayDisk::open(options.clone()).map_err(failed)?;
        let blank = blank(open.is_none());
        let disk = match open {
            Some(disk) => disk,
            None => OverlayDisk::create(options, |_| Ok(()))?,
        };
        return Ok((Files::Overlay(OnDisk::new(NAME, Box::new(disk))), blank));
    }
    let blank = blank(!paths.files.exists());
    let aside = paths.root.join("aside");
    paths::directory(&paths.files, 0o755).map_err(failed)?;
    paths::directory(&aside, 0o700).map_err(failed)?;
    paths.give_away(&paths.files).map_err(failed)?;
    let tree = Tree::beneath(NAME, &paths.files, &aside, owner).map_err(failed)?;
    let disk = PlainDisk::new(tree).map_err(failed)?;
    Ok((Files::Plain(OnDisk::new(NAME, Box::new(disk))), blank))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the runner of a container that runs, whatever has to be done for it.
    fn ensure(&self, machine: &mut Machine) -> Result<Runner, EngineError> {
        machine.used = Some(now());
        if let Some(container) = machine.container.take() {
            if container.runner.is_alive() {
                return Ok(machine.container.insert(container).runner.clone());
            }
            self.forget(machine, &container, "vanished");
        }
        let engine = match &machine.engine {
            Some(engine) => Arc::clone(engine),
            None => Arc::new(Engine::connect(self.options.connection.as_deref())?),
        };
        machine.engine = Some(Arc::clone(&engine));
        let started = self.bring_up(&engine, machine.stopped.take());
        if let Err(EngineError::Unreachable(_)) = &started {
            // Another one may be there next time.
            machine.engine = None;
        }
        let (container, event) = started?;
        machine.used = Some(now());
        machine.news.push(MachineNews::Started(event));
        Ok(machine.container.insert(container).runner.clone())
    }

    /// Starts the container that we stopped, or makes a new one.
    fn bring_up(&self, engine: &Engine, stopped: Option<String>) -> Result<(Live, ContainerStarted), EngineError> {
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
            None => self.create(engine)?,
        };
        engine.start(&id)?;
        let container = self.reach(engine, &id, &token);
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
            runner: true,
        };
        Ok((container, event))
    }

    fn create(&self, engine: &Engine) -> Result<String, EngineError> {
        let image = &self.options.image;
        if !engine.has_image(image)? {
            if !self.options.pull {
                return Err(EngineError::NoImage(image.clone()));
            }
            engine.pull(image, &mut |line| tracing::info!(image, "{line}"))?;
        }
        let (session, owner) = (self.session.to_string(), owner_of_this_process());
        let workspace: PathBuf =
            if self.files.is_overlay() { self.paths.mount.clone() } else { self.paths.files.clone() };
        let command =
            [format!("{RUN}/runner"), "serve".to_owned(), format!("{RUN}/{DOOR}/{SOCKET}"), WORKSPACE.to_owned()];
        engine.create(&Plan {
            name: &self.name,
            session: &session,
            owner: &owner,
            options: &self.options,
            workspace: &workspace,
            run: &self.paths.run,
            door: &self.paths.door,
            seccomp: &self.paths.seccomp,
            command: command.to_vec(),
        })
    }

    /// Shows the files in a container that runs, reaches its runner, and looks whether it is confined.
    fn reach(&self, engine: &Engine, id: &str, token: &[u8]) -> Result<(Live, bool), EngineError> {
        let failed = |what: String| EngineError::Failed { action: "start the container", reason: what };
        let seen = engine.inspect(id)?;
        if !seen.running || seen.pid == 0 {
            return Err(failed(format!("{} ended at once, with exit code {}", self.name, seen.exit_code)));
        }
        self.files.attach(seen.pid).map_err(|error| failed(format!("its files can't be shown in it: {error}")))?;
        let process = u32::try_from(seen.pid).ok();
        let runner = Runner::connect(&self.paths.door.join(SOCKET), token, process, READY);
        let runner = runner.map_err(|error| failed(error.to_string()))?;
        let confinement = Confinement::of(seen.pid);
        let faults = confinement.faults(engine.rootless);
        if !faults.is_empty() {
            return Err(failed(format!("it is not confined as it must be: {}", faults.join(", "))));
        }
        Ok((Live { id: id.to_owned(), pid: seen.pid, runner }, confinement.has_limits()))
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
    fn runner(&self) -> Result<Runner, ShellError> {
        let mut machine = self.lock();
        let runner = self.ensure(&mut machine);
        runner.map_err(|error| ShellError::Unavailable { backend: NAME, reason: error.to_string() })
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
        self.shared.blank.is_blank()
    }

    fn filling(&self) -> Result<(), BackendError> {
        self.shared.blank.filling()
    }

    fn filled(&self) -> Result<(), BackendError> {
        self.shared.blank.filled()
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
        let links = match self.shared.files.is_overlay() {
            true => " Hard links may come apart: do not rely on two names staying one file.",
            false => "",
        };
        format!("Commands run in an isolated Linux container. {network}, and no privileges.{links}")
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
