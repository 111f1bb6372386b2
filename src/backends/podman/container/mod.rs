//! A session's container: made when a command needs it, stopped when idle, removed at the end.

mod pausing;
mod sharing;
mod sockets;
mod state;

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

use crate::network::{HttpAnswers, NetworkRules};
use state::ContainerState;

use super::container_figures;
use super::container_plan::{ContainerPlan, RUN, places, workspace_of};
use super::engine::{Engine, EngineError};
use super::launch::{self, LiveContainer};
use super::paths::{self, Paths};
use super::usage::usage;
use super::{warm, warm_used};
use crate::backends::command_options::CommandOptions;
use crate::backends::commands::CommandHost;
use crate::backends::containers::PodmanOptions;
use crate::backends::disk::SealError;
use crate::backends::disk::locked::OnDisk;
use crate::backends::runner::{Runner, now};
use crate::backends::running_commands::RunningCommands;
use crate::backends::shell::ShellError;
use crate::backends::{Container, MachineNews, MachineUsage, ProgressWatch};
use crate::engine::event::{ContainerStarted, ContainerStopped};
use crate::engine::id::SessionId;
use crate::engine::lock::lock;

/// The pause between two checks for an idle container and a full disk.
const WATCHING: Duration = Duration::from_millis(100);

/// The component in logs.
const COMPONENT: &str = "tools.podman";

/// A session's container, running or not.
pub(in crate::backends::podman) struct SessionContainer {
    own: Weak<Self>,
    session: SessionId,
    name: Mutex<String>,
    pub(in crate::backends::podman) options: PodmanOptions,
    pub(in crate::backends::podman) paths: Paths,
    pub(in crate::backends::podman) files: OnDisk,
    in_flight: Arc<RunningCommands>,
    /// The runner of the last container that reached its uptime.
    ended_old: Mutex<Option<Runner>>,
    /// Held during calls of the engine.
    state: Mutex<ContainerState>,
    /// The rules of the recorded network, once they were replaced.
    rules: Mutex<Option<NetworkRules>>,
    /// The recording that answers requests, in place of their hosts.
    answers: Mutex<Option<HttpAnswers>>,
    news: Mutex<Vec<MachineNews>>,
    /// Bytes of the bodies, and of everything else, of the requests in the news.
    waiting: Mutex<(usize, usize)>,
    progress: Mutex<Option<ProgressWatch>>,
    /// Messages about the last start.
    log: Mutex<Vec<String>>,
    changed: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    /// The last start.
    last: Mutex<Option<ContainerStarted>>,
    watched: Once,
}

impl SessionContainer {
    pub(in crate::backends::podman) fn new(
        session: SessionId,
        options: PodmanOptions,
        paths: Paths,
        files: OnDisk,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            session,
            name: Mutex::new(own_name(session, &options)),
            options,
            paths,
            files,
            in_flight: Arc::default(),
            ended_old: Mutex::default(),
            state: Mutex::default(),
            rules: Mutex::default(),
            answers: Mutex::default(),
            waiting: Mutex::default(),
            news: Mutex::default(),
            progress: Mutex::default(),
            log: Mutex::default(),
            changed: Mutex::default(),
            last: Mutex::default(),
            watched: Once::new(),
        })
    }

    pub(in crate::backends::podman) fn news(&self) -> Vec<MachineNews> {
        // The files may be attached again only while no command runs.
        let sealed = if self.in_flight.is_empty() { self.files.lock().seal_if_large() } else { Ok(()) };
        if let Err(error) = &sealed {
            tracing::warn!(%error, "failed to add a layer to the workspace");
        }
        if let Err(SealError::Misplaced(_)) = sealed {
            self.tear_down("its files could not be shown");
        }
        let mut news = lock(&self.news);
        *lock(&self.waiting) = (0, 0);
        std::mem::take(&mut *news)
    }

    pub(in crate::backends::podman) fn watch_machine(&self, watch: Arc<dyn Fn() + Send + Sync>) {
        *lock(&self.changed) = Some(watch);
    }

    pub(in crate::backends::podman) fn watch_progress(&self, watch: ProgressWatch) {
        *lock(&self.progress) = Some(watch);
    }

    /// Returns the runner of a running container, which is made or started if necessary.
    fn ensure(&self, state: &mut ContainerState) -> Result<Runner, EngineError> {
        self.watched.call_once(|| keep_watch(Weak::clone(&self.own)));
        if let ContainerState::Running(live) = state {
            live.used = now();
            pausing::resume(live)?;
            if live.runner.is_alive() {
                return Ok(live.runner.clone());
            }
            let gone = ContainerState::Starting { engine: Arc::clone(&live.engine), id: live.id.clone() };
            self.leave(state, gone, "vanished");
        }
        lock(&self.log).clear();
        let begun = now();
        let (mut live, event) = match self.adopt(state) {
            Some(adopted) => adopted,
            None => self.bring_up(state).inspect_err(|error| state.note(error))?,
        };
        live.network = self.open_network(&live).inspect_err(|_| drop(live.engine.remove(&live.id)))?;
        lock(&self.name).clone_from(&event.name);
        container_figures::started(live.was_warm, event.created, begun.elapsed());
        *lock(&self.last) = Some(event.clone());
        self.tell(&event);
        lock(&self.news).push(MachineNews::Started(event));
        let runner = live.runner.clone();
        *state = ContainerState::Running(live);
        Ok(runner)
    }

    fn adopt(&self, state: &ContainerState) -> Option<(LiveContainer, ContainerStarted)> {
        if let ContainerState::Stopped { .. } = state {
            return None;
        }
        let own_name = own_name(self.session, &self.options);
        if self.files.is_overlay() && !self.options.writable_root {
            warm_used::used(&self.options);
        }
        let (live, name, limits_enforced) = warm::adopt(&self.options, &own_name, &self.paths, &self.files)?;
        let event = self.started(&live, &name, true, limits_enforced);
        Some((live, event))
    }

    fn engine(&self, state: &mut ContainerState) -> Result<Arc<Engine>, EngineError> {
        if let Some(engine) = state.engine() {
            return Ok(Arc::clone(engine));
        }
        let engine = Arc::new(Engine::of_this_user(&self.options)?);
        if let ContainerState::None(known) = state {
            *known = Some(Arc::clone(&engine));
        }
        Ok(engine)
    }

    fn bring_up(&self, state: &mut ContainerState) -> Result<(LiveContainer, ContainerStarted), EngineError> {
        let engine = self.engine(state)?;
        self.provide_image(&engine)?;
        launch::check_image(&engine, &self.options.image)?;
        let name = own_name(self.session, &self.options);
        let stopped = match state {
            ContainerState::Stopped { id, .. } => engine.inspect(id).ok().filter(|seen| !seen.running),
            _ => None,
        };
        let created = stopped.is_none();
        let id = match stopped {
            Some(seen) => seen.id,
            None => {
                *state = ContainerState::Starting { engine: Arc::clone(&engine), id: name.clone() };
                self.remove_others(&engine)?;
                self.create(&engine, &name)?
            }
        };
        let started = self.start(&engine, &id);
        let (live, limits_enforced) = started.inspect_err(|_| drop(engine.remove(&id)))?;
        let event = self.started(&live, &name, created, limits_enforced);
        Ok((live, event))
    }

    /// Starts a container, attaches the files and connects to its runner.
    fn start(&self, engine: &Arc<Engine>, id: &str) -> Result<(LiveContainer, bool), EngineError> {
        let token = paths::token().map_err(launch::failed("prepare the container"))?;
        let (pid, image_digest) = launch::start(engine, id, &self.paths, &token, &self.options)?;
        places(&self.options)
            .try_for_each(|place| self.files.lock().attach(pid, Path::new(place)))
            .map_err(launch::failed("show the files in the container"))?;
        let (runner, limits_enforced) = launch::reach(pid, &self.paths, &token, &self.options)?;
        Ok((LiveContainer::new(Arc::clone(engine), id.to_owned(), (pid, runner), image_digest), limits_enforced))
    }

    fn create(&self, engine: &Engine, name: &str) -> Result<String, EngineError> {
        let workspace = if self.files.lock().is_attached() { &self.paths.mount } else { &self.paths.files };
        let (session, options, paths) = (&self.session.to_string(), &self.options, &self.paths);
        launch::create(engine, &ContainerPlan { name, session, options, paths, workspace })
    }

    /// Removes the containers of other processes: none of them has the session now.
    fn remove_others(&self, engine: &Engine) -> Result<(), EngineError> {
        launch::remove_noted(engine, &self.paths)?;
        engine.remove_if_there(&own_name(self.session, &self.options))
    }

    fn started(&self, live: &LiveContainer, name: &str, created: bool, limits_enforced: bool) -> ContainerStarted {
        ContainerStarted {
            name: name.to_owned(),
            id: live.id.clone(),
            image: self.options.image.clone(),
            engine: format!("{} {}", live.engine.kind.name(), live.engine.version),
            created,
            rootless: live.engine.rootless,
            limits_enforced,
            overlay: self.files.is_overlay(),
            workdir: format!(
                "{}{}",
                workspace_of(&self.options),
                self.options.commands.workdir.rooted().trim_end_matches('/')
            ),
            environment: self.options.commands.recorded_environment(),
            overlay_path: match self.files.is_overlay() {
                true => self.paths.layers.to_string_lossy().into_owned(),
                false => String::new(),
            },
            image_digest: live.image_digest.clone(),
            // The runner is reached as a process of this machine, so it has the same kernel.
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    fn tell(&self, event: &ContainerStarted) {
        let ContainerStarted { name, image, engine, created, .. } = event;
        tracing::debug!(component = COMPONENT, container = %name, image, engine, created, "container started");
        let what = if *created { "made and started" } else { "started again" };
        lock(&self.log).push(format!("{what} {name} from {image} ({engine})"));
    }

    fn provide_image(&self, engine: &Engine) -> Result<(), EngineError> {
        let image = &self.options.image;
        if !self.options.pull || engine.has_image(image)? {
            return Ok(());
        }
        let watch = lock(&self.progress).clone();
        let mut tell = |line: &str| {
            tracing::info!(component = COMPONENT, image, "{line}");
            lock(&self.log).push(line.to_owned());
            if let Some(watch) = &watch {
                watch(line);
            }
        };
        tell(&format!("pulling {image}, which the engine does not have"));
        engine.pull(image, &mut tell)
    }

    fn leave(&self, state: &mut ContainerState, next: ContainerState, reason: &str) {
        if let ContainerState::Running(live) = std::mem::replace(state, next) {
            if let Err(error) = self.files.lock().detach(live.pid) {
                tracing::debug!(%error, "a container was gone before its files were detached");
            }
            container_figures::stopped(reason);
            let event = ContainerStopped { name: lock(&self.name).clone(), reason: reason.to_owned() };
            tracing::debug!(component = COMPONENT, container = %event.name, reason, "container stopped");
            lock(&self.news).push(MachineNews::Stopped(event));
        }
    }

    /// Stops the container if it was idle for the time in the options. Returns true if it did.
    fn stop_if_idle(&self) -> bool {
        let idle = Duration::from_secs(self.options.idle_seconds);
        // If locked, another thread starts or stops the container.
        let Ok(mut state) = self.state.try_lock() else { return false };
        let ContainerState::Running(live) = &mut *state else { return false };
        if !self.in_flight.is_empty() {
            // It is idle from the end of the last command.
            live.used = now();
            return false;
        }
        if idle.is_zero() || now().duration_since(live.used) < idle {
            return false;
        }
        let (engine, id) = (Arc::clone(&live.engine), live.id.clone());
        let (ended, next) = match live.was_warm {
            true => (engine.remove(&id), ContainerState::None(Some(engine))),
            false => (engine.stop(&id), ContainerState::Stopped { engine, id }),
        };
        match ended {
            Ok(()) => self.leave(&mut state, next, "idle"),
            Err(error) => {
                tracing::warn!(%error, "failed to stop an idle container");
                live.used = now();
                return false;
            }
        }
        true
    }

    /// Removes a container that ran for the time in the options, with its processes. Returns true if it did.
    fn end_if_old(&self) -> bool {
        let uptime = Duration::from_secs(self.options.uptime_seconds);
        let Ok(mut state) = self.state.try_lock() else { return false };
        let ContainerState::Running(live) = &mut *state else { return false };
        if uptime.is_zero() || now().duration_since(live.since) < uptime {
            return false;
        }
        // If the engine fails to remove it, this is retried after the same time.
        live.since = now();
        let runner = live.runner.clone();
        let is_ended = self.tear_down_held(&mut state, "uptime");
        *lock(&self.ended_old) = is_ended.then_some(runner);
        is_ended
    }

    /// Ends commands that leave too little disk space.
    fn spare_the_disk(&self) {
        if !self.in_flight.is_empty()
            && let Some(free) = self.free()
        {
            self.in_flight.end_starving(free);
        }
    }

    /// Returns a directory on the disk that holds the files.
    fn disk(&self) -> &Path {
        if self.files.is_overlay() { &self.paths.layers } else { &self.paths.files }
    }

    fn free(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(self.disk()).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Removes the container, running or not. Returns false if it may still exist.
    pub(in crate::backends::podman) fn tear_down(&self, reason: &str) -> bool {
        let mut state = lock(&self.state);
        self.tear_down_held(&mut state, reason)
    }

    fn tear_down_held(&self, state: &mut ContainerState, reason: &str) -> bool {
        let Some((engine, id)) = state.container() else { return true };
        if let Err(error) = engine.remove_if_there(&id) {
            tracing::warn!(%error, "failed to remove a container; garbage collection will remove it");
            return false;
        }
        self.paths.forget_run();
        self.leave(state, ContainerState::None(Some(engine)), reason);
        true
    }

    fn unavailable(&self, reason: String) -> ShellError {
        ShellError::Unavailable { backend: self.options.engine.name(), reason }
    }
}

fn own_name(session: SessionId, options: &PodmanOptions) -> String {
    format!("{}-{session}", options.name_prefix)
}

fn keep_watch(container: Weak<SessionContainer>) {
    let watch = move || {
        while let Some(container) = Weak::upgrade(&container) {
            container.spare_the_disk();
            let has_ended = container.end_if_old() || container.stop_if_idle();
            let watch = if has_ended || container.has_connections() { lock(&container.changed).clone() } else { None };
            if let Some(watch) = watch {
                watch();
            }
            drop(container);
            std::thread::sleep(WATCHING);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("foldspace-watch".to_owned()).spawn(watch) {
        tracing::warn!(%error, "no thread watches for idle containers and full disks");
    }
}

impl Container for SessionContainer {
    fn name(&self) -> String {
        lock(&self.name).clone()
    }

    fn fetch(&self) -> Result<(), ShellError> {
        let mut state = lock(&self.state);
        let fetched = self.engine(&mut state).and_then(|engine| self.provide_image(&engine));
        fetched.map_err(|error| self.unavailable(error.to_string()))
    }

    fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    fn start(&self) -> Result<(), ShellError> {
        self.runner().map(drop)
    }

    fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.connect_to(port)
    }

    fn answer_from(&self, answers: HttpAnswers) -> bool {
        Self::answer_from(self, answers)
    }

    fn set_network_rules(&self, rules: NetworkRules) -> bool {
        self.set_rules(rules)
    }

    fn pause(&self) -> Result<bool, ShellError> {
        self.pause_running()
    }

    fn resume(&self) -> Result<(), ShellError> {
        self.resume_paused()
    }

    fn usage(&self) -> Option<MachineUsage> {
        match &*lock(&self.state) {
            ContainerState::Running(live) => usage(live.pid, self.disk()),
            _ => None,
        }
    }

    fn last_start(&self) -> Option<ContainerStarted> {
        lock(&self.last).clone()
    }

    fn stop(&self) -> Result<(), ShellError> {
        match self.tear_down("asked") {
            true => Ok(()),
            false => {
                let name = self.name();
                Err(self.unavailable(format!("the engine did not remove {name}; garbage collection will remove it")))
            }
        }
    }
}

impl CommandHost for SessionContainer {
    fn runner(&self) -> Result<Runner, ShellError> {
        let ensured = self.ensure(&mut lock(&self.state));
        ensured.map_err(|error| self.unavailable(error.to_string()))
    }

    fn reach(&self) -> Result<(), ShellError> {
        self.engine(&mut lock(&self.state)).map(drop).map_err(|error| self.unavailable(error.to_string()))
    }

    fn options(&self) -> &CommandOptions {
        &self.options.commands
    }

    fn root(&self) -> String {
        workspace_of(&self.options).to_owned()
    }

    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError> {
        Ok((self.paths.run.join("scripts"), PathBuf::from(RUN).join("scripts")))
    }

    fn in_flight(&self) -> &Arc<RunningCommands> {
        &self.in_flight
    }

    fn floor(&self) -> u64 {
        // If little is free already, a command may use half of it.
        self.free().map_or(0, |free| self.options.reserve_bytes.min(free / 2))
    }

    fn lost(&self, runner: &Runner) {
        let mut state = lock(&self.state);
        // Another command may have noticed it, too, and already started the next container.
        if matches!(&*state, ContainerState::Running(live) if live.runner.is_same(runner)) {
            self.tear_down_held(&mut state, "vanished");
        }
    }

    fn ended_for(&self, runner: &Runner) -> Option<String> {
        let ended = lock(&self.ended_old);
        ended.as_ref().filter(|ended| ended.is_same(runner))?;
        let seconds = self.options.uptime_seconds;
        Some(format!("it was killed: its container reached uptime_seconds, {seconds}; the next command starts another"))
    }
}
