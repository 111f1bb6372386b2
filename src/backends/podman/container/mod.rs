//! A session's container: made when a command needs it, stopped when nobody does, removed at the end.

mod adopting;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::exec_mode::{ExecMode, TOKEN};
use super::orphans::owner_of_this_process;
use crate::backends::commands::CommandHost;
use crate::backends::executor::Executor;
use crate::backends::podman::NAME;
use crate::backends::podman::engine::{ContainerPlan, Engine, EngineError, RUN, WORKSPACE};
use crate::backends::podman::files::Files;
use crate::backends::podman::options::{PodmanOptions, RunnerUse};
use crate::backends::podman::paths::{self, Paths};
use crate::backends::podman::warm::ContainerRename;
use crate::backends::runner::RUNNER;
use crate::backends::running_commands::RunningCommands;
use crate::backends::shell::ShellError;
use crate::backends::{Container, MachineNews, ProgressWatch};
use crate::engine::event::{ContainerStarted, ContainerStopped};
use crate::engine::id::SessionId;

/// How often an idle container, and one that fills the disk, is looked for.
const WATCHING: Duration = Duration::from_millis(100);

/// A session's container, whether or not there is one now.
pub(in crate::backends::podman) struct SessionContainer {
    own: Weak<Self>,
    session: SessionId,
    name: String,
    pub(in crate::backends::podman) options: PodmanOptions,
    pub(in crate::backends::podman) paths: Paths,
    pub(in crate::backends::podman) files: Files,
    under_way: Arc<RunningCommands>,
    machine: Mutex<ContainerState>,
    /// Not with the machine: that is held while the engine takes its time.
    news: Mutex<Vec<MachineNews>>,
    progress: Mutex<Option<ProgressWatch>>,
}

#[derive(Default)]
struct ContainerState {
    engine: Option<Arc<Engine>>,
    /// The one that did not answer any more. It may have something of ours all the same.
    unreachable: Option<Arc<Engine>>,
    container: Option<LiveContainer>,
    /// How commands run, once that is known. What could not run once is not tried again.
    way: Option<ExecMode>,
    /// The container that was stopped because nobody used it.
    stopped: Option<String>,
    /// Whether the engine was asked to make or start one since the last was removed.
    tried: bool,
    used: Option<Instant>,
    /// Whether somebody looks after it: from when one is first needed on.
    is_watched: bool,
    /// Gives the container its name. Until it has ended nobody asks for one by that.
    naming: Option<ContainerRename>,
}

struct LiveContainer {
    id: String,
    pid: i32,
    executor: Arc<dyn Executor>,
    /// Whether it was made before anybody needed it, so that it can't be started again.
    was_warm: bool,
}

impl ContainerState {
    fn wait_for_name(&mut self) {
        if let Some(naming) = self.naming.take() {
            naming.wait();
        }
    }
}

impl SessionContainer {
    /// None is made yet, and no engine is asked.
    pub(in crate::backends::podman) fn new(
        session: SessionId,
        options: PodmanOptions,
        paths: Paths,
        files: Files,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            session,
            name: format!("foldspace-{session}"),
            options,
            paths,
            files,
            under_way: Arc::default(),
            machine: Mutex::default(),
            news: Mutex::default(),
            progress: Mutex::default(),
        })
    }

    /// What has happened to it since this was last asked.
    pub(in crate::backends::podman) fn news(&self) -> Vec<MachineNews> {
        // The files may be shown anew only where nothing runs.
        if self.under_way.is_empty() && !self.files.tidy() {
            self.tear_down("its files could not be shown");
        }
        std::mem::take(&mut *locked(&self.news))
    }

    /// Whether each command takes long to start, as far as that is known: nobody should have to wait for it.
    pub(in crate::backends::podman) fn is_slow(&self) -> bool {
        let way = self.machine.try_lock().ok().and_then(|machine| machine.way.clone());
        match way {
            Some(way) => way.reason().is_some(),
            None => self.options.runner == RunnerUse::Never,
        }
    }

    /// Shows what the engine says while it gets an image.
    pub(in crate::backends::podman) fn watch_progress(&self, watch: ProgressWatch) {
        *locked(&self.progress) = Some(watch);
    }

    fn lock(&self) -> MutexGuard<'_, ContainerState> {
        locked(&self.machine)
    }

    /// Gives what runs commands in a container that runs, whatever has to be done for it.
    fn ensure(&self, machine: &mut ContainerState) -> Result<Arc<dyn Executor>, EngineError> {
        machine.used = Some(now());
        if !std::mem::replace(&mut machine.is_watched, true) {
            keep_watch(Weak::clone(&self.own));
        }
        if let Some(container) = machine.container.take() {
            if container.executor.is_alive() {
                return Ok(Arc::clone(&machine.container.insert(container).executor));
            }
            self.forget(&container, "vanished");
        }
        machine.wait_for_name();
        let started = match self.adopt(machine) {
            Some(adopted) => Ok(adopted),
            None => self.engine(machine).and_then(|engine| self.bring_up_somehow(&engine, machine)),
        };
        if let Err(EngineError::Unreachable(_)) = &started {
            // Another one may be there next time.
            machine.unreachable = machine.engine.take();
        }
        let (container, event) = started?;
        machine.used = Some(now());
        locked(&self.news).push(MachineNews::Started(event));
        Ok(Arc::clone(&machine.container.insert(container).executor))
    }

    fn engine(&self, machine: &mut ContainerState) -> Result<Arc<Engine>, EngineError> {
        if let Some(engine) = &machine.engine {
            return Ok(Arc::clone(engine));
        }
        let engine = Engine::connect(self.options.connection.as_deref())?;
        engine.check_user()?;
        Ok(Arc::clone(machine.engine.insert(Arc::new(engine))))
    }

    /// Brings the container up with the runner or, where that can't run, without it.
    fn bring_up_somehow(
        &self,
        engine: &Engine,
        machine: &mut ContainerState,
    ) -> Result<(LiveContainer, ContainerStarted), EngineError> {
        self.provide_image(engine)?;
        let way = match machine.way.take() {
            Some(way) => way,
            None => ExecMode::choose(engine, &self.options)?,
        };
        machine.tried = true;
        let stopped = machine.stopped.clone();
        let (started, way) = match self.bring_up(engine, stopped, &way) {
            // Whether it is the runner's fault that it does not start shows without the runner.
            Err(EngineError::NoRunner(reason) | EngineError::Failed { action: "start the container", reason })
                if way == ExecMode::Runner && self.options.runner == RunnerUse::Auto =>
            {
                let way = ExecMode::Exec(reason);
                (self.bring_up(engine, None, &way), way)
            }
            other => (other, way),
        };
        if let (Ok(_), Some(reason)) = (&started, way.reason()) {
            let container = &self.name;
            tracing::warn!(container, reason, "the runner does not run here; commands go through the engine, slower");
        }
        if started.is_ok() {
            machine.way = Some(way);
            machine.stopped = None;
        }
        started
    }

    /// Starts the container that we stopped, or makes a new one.
    fn bring_up(
        &self,
        engine: &Engine,
        stopped: Option<String>,
        way: &ExecMode,
    ) -> Result<(LiveContainer, ContainerStarted), EngineError> {
        engine.remove_noted(&self.paths)?;
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
        let token = paths::token().map_err(io)?;
        self.paths.prepare_door(TOKEN, &token).map_err(io)?;
        let id = match known {
            Some(id) => id,
            None => self.create(engine, way)?,
        };
        let started = engine.start(&id);
        let container = started.and_then(|()| self.reach(engine, &id, &token, way));
        let (container, limits_enforced) = container.inspect_err(|_| drop(engine.remove(&id)))?;
        let event = self.started(engine, &id, again.is_none(), limits_enforced, way);
        Ok((container, event))
    }

    fn started(
        &self,
        engine: &Engine,
        id: &str,
        created: bool,
        limits_enforced: bool,
        way: &ExecMode,
    ) -> ContainerStarted {
        ContainerStarted {
            name: self.name.clone(),
            id: id.to_owned(),
            image: self.options.image.clone(),
            engine: format!("podman {}", engine.version),
            created,
            rootless: engine.rootless,
            limits_enforced,
            overlay: self.files.is_overlay(),
            runner: way.reason().is_none(),
            without_runner: way.reason().unwrap_or_default().to_owned(),
        }
    }

    fn provide_image(&self, engine: &Engine) -> Result<(), EngineError> {
        let image = &self.options.image;
        if !engine.has_image(image)? {
            if !self.options.pull {
                return Err(EngineError::NoImage(image.clone()));
            }
            self.pull(engine)?;
        }
        Ok(())
    }

    fn create(&self, engine: &Engine, way: &ExecMode) -> Result<String, EngineError> {
        let (session, owner) = (self.session.to_string(), owner_of_this_process());
        let workspace: PathBuf =
            if self.files.is_overlay() { self.paths.mount.clone() } else { self.paths.files.clone() };
        engine.create(&ContainerPlan {
            name: &self.name,
            session: &session,
            owner: &owner,
            options: &self.options,
            workspace: &workspace,
            run: &self.paths.run,
            door: &self.paths.door,
            seccomp: &self.paths.seccomp,
            mapped: engine.rootless,
            command: way.command(),
        })
    }

    /// Gets the image, in sight of who watches.
    fn pull(&self, engine: &Engine) -> Result<(), EngineError> {
        let image = &self.options.image;
        let watch = locked(&self.progress).clone();
        let mut tell = |line: &str| {
            tracing::info!(image, "{line}");
            if let Some(watch) = &watch {
                watch(line);
            }
        };
        tell(&format!("pulling {image}, which the engine does not have"));
        engine.pull(image, &mut tell)
    }

    /// Shows the files in a container that runs, reaches what runs its commands, and looks whether it is confined.
    fn reach(
        &self,
        engine: &Engine,
        id: &str,
        token: &[u8],
        way: &ExecMode,
    ) -> Result<(LiveContainer, bool), EngineError> {
        let failed = |what: String| EngineError::Failed { action: "start the container", reason: what };
        let seen = engine.inspect(id)?;
        if !seen.running || seen.pid == 0 {
            return Err(failed(format!("{} ended at once, with exit code {}", self.name, seen.exit_code)));
        }
        self.files.attach(seen.pid).map_err(|error| failed(format!("its files can't be shown in it: {error}")))?;
        let (executor, limits_enforced) = way.reach(engine, id, seen.pid, &self.paths, token, &self.options)?;
        Ok((LiveContainer { id: id.to_owned(), pid: seen.pid, executor, was_warm: false }, limits_enforced))
    }

    /// Notes that a container does not run any more.
    fn forget(&self, container: &LiveContainer, reason: &str) {
        self.files.detach(container.pid);
        let event = ContainerStopped { name: self.name.clone(), reason: reason.to_owned() };
        locked(&self.news).push(MachineNews::Stopped(event));
    }

    /// Stops the container when nobody has used it for long.
    fn stop_if_idle(&self) {
        let idle = Duration::from_secs(self.options.idle_seconds);
        // Whoever holds it brings the container up, or takes it down.
        let Ok(mut machine) = self.machine.try_lock() else { return };
        if !self.under_way.is_empty() {
            // It is idle from the end of the last command on.
            machine.used = Some(now());
            return;
        }
        let is_idle = machine.used.is_some_and(|used| now().duration_since(used) >= idle);
        if idle.is_zero() || !is_idle {
            return;
        }
        let (Some(container), Some(engine)) = (machine.container.take(), machine.engine.clone()) else { return };
        machine.wait_for_name();
        let ended = if container.was_warm { engine.remove(&container.id) } else { engine.stop(&container.id) };
        match ended {
            Ok(()) => {
                machine.stopped = (!container.was_warm).then(|| container.id.clone());
                self.forget(&container, "idle");
            }
            Err(error) => {
                tracing::warn!(%error, "an idle container could not be stopped");
                machine.used = Some(now());
                machine.container = Some(container);
            }
        }
    }

    /// Ends commands that leave the disk too little.
    fn spare_the_disk(&self) {
        if !self.under_way.is_empty()
            && let Some(free) = self.free()
        {
            self.under_way.end_starving(free);
        }
    }

    /// Bytes that are free on the disk of the files.
    fn free(&self) -> Option<u64> {
        let files = if self.files.is_overlay() { &self.paths.layers } else { &self.paths.files };
        let stat = rustix::fs::statvfs(files).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Removes the container, running or not. Gives false when it may still be there.
    pub(in crate::backends::podman) fn tear_down(&self, reason: &str) -> bool {
        let mut machine = self.lock();
        self.tear_down_held(&mut machine, reason)
    }

    fn tear_down_held(&self, machine: &mut ContainerState, reason: &str) -> bool {
        machine.wait_for_name();
        let Some(engine) = machine.engine.clone().or_else(|| machine.unreachable.take()) else { return true };
        let id = match (&machine.container, &machine.stopped) {
            (Some(container), _) => container.id.clone(),
            (None, Some(stopped)) => stopped.clone(),
            // One that did not start, or that the engine went on to make.
            (None, None) if machine.tried => self.name.clone(),
            (None, None) => return true,
        };
        match engine.remove(&id) {
            Ok(()) | Err(EngineError::NoContainer) => {}
            Err(error) => {
                tracing::warn!(%error, "a container could not be removed; `foldspace gc` will");
                return false;
            }
        }
        // What is left of the note costs a question.
        drop(self.paths.forget_container());
        machine.tried = false;
        machine.stopped = None;
        if let Some(container) = machine.container.take() {
            self.forget(&container, reason);
        }
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a container has been idle is nobody's history")]
fn now() -> Instant {
    Instant::now()
}

/// Looks now and then after the container, for as long as somebody has it.
fn keep_watch(container: Weak<SessionContainer>) {
    let watch = move || {
        while let Some(container) = Weak::upgrade(&container) {
            container.spare_the_disk();
            container.stop_if_idle();
            drop(container);
            std::thread::sleep(WATCHING);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("foldspace-watch".to_owned()).spawn(watch) {
        tracing::warn!(%error, "idle containers will not be stopped, nor those that fill the disk");
    }
}

fn unavailable(error: &EngineError) -> ShellError {
    ShellError::Unavailable { backend: NAME, reason: error.to_string() }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Container for SessionContainer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn fetch(&self) -> Result<(), ShellError> {
        let mut machine = self.lock();
        let fetched = self.engine(&mut machine).and_then(|engine| self.provide_image(&engine));
        fetched.map_err(|error| unavailable(&error))
    }

    fn start(&self) -> Result<(), ShellError> {
        self.executor().map(drop)
    }

    fn stop(&self) -> Result<(), ShellError> {
        match self.tear_down("asked") {
            true => Ok(()),
            false => Err(ShellError::Unavailable {
                backend: NAME,
                reason: format!("the engine did not remove {}; `foldspace gc` will when it is back", self.name),
            }),
        }
    }
}

impl CommandHost for SessionContainer {
    fn executor(&self) -> Result<Arc<dyn Executor>, ShellError> {
        let mut machine = self.lock();
        let executor = self.ensure(&mut machine);
        executor.map_err(|error| unavailable(&error))
    }

    fn root(&self) -> String {
        WORKSPACE.to_owned()
    }

    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError> {
        Ok((self.paths.run.join("scripts"), PathBuf::from(RUN).join("scripts")))
    }

    fn under_way(&self) -> &Arc<RunningCommands> {
        &self.under_way
    }

    fn floor(&self) -> u64 {
        // Where there is little already, a command may use half of it.
        self.free().map_or(0, |free| self.options.reserve_bytes.min(free / 2))
    }

    fn lost(&self, executor: &Arc<dyn Executor>) {
        let mut machine = self.lock();
        // Another command may have met the same, and brought the next container up.
        if machine.container.as_ref().is_some_and(|container| Arc::ptr_eq(&container.executor, executor)) {
            self.tear_down_held(&mut machine, "vanished");
        }
    }
}
