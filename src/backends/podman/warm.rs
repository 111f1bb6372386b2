//! Containers that are started before a session needs one.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::container_plan::{ContainerPlan, WARM, places};
use super::engine::{Engine, EngineError};
use super::launch::{self, LiveContainer, failed};
use super::paths::{self, Paths};
use crate::backends::BackendError;
use crate::backends::command_options::CommandOptions;
use crate::backends::containers::{OverlayUse, PodmanOptions};
use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::overlay;
use crate::backends::runner::now;
use crate::engine::lock::lock;

/// The pause of the engine after a container was taken, because the session that took it has priority.
const QUIET: Duration = Duration::from_millis(100);
/// The pause after a failed start, initially and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Running containers without files, for the next sessions of this process that need a container. Their first command
/// then waits only for a mount, not for an engine.
///
/// A session takes one if all options that matter to a container agree, and its files are in an overlay. Each is used
/// only once; its replacement is started in the background. A long idle one is removed instead of stopped. Without an
/// overlay or an engine, sessions make their own containers.
///
/// Dropping this removes the remaining ones. `foldspace gc` removes the containers of a killed process.
///
/// ```no_run
/// # use foldspace_backends as foldspace;
/// use foldspace::{backends::{PodmanOptions, WarmContainers}};
/// let warm = WarmContainers::keep(&PodmanOptions::default(), 2)?;
/// warm.wait(std::time::Duration::from_secs(10))?;
/// assert_eq!(warm.ready(), 2);
/// # Ok::<(), foldspace::backends::BackendError>(())
/// ```
#[derive(Debug)]
pub struct WarmContainers {
    pool: Arc<Pool>,
    filling: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Pool {
    options: PodmanOptions,
    count: usize,
    state: Mutex<WarmState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WarmState {
    ready: Vec<Warm>,
    failed: Option<String>,
    closing: bool,
}

struct Warm {
    engine: Arc<Engine>,
    /// Its name until it is made.
    id: String,
    name: String,
    pid: i32,
    image_digest: String,
    token: Vec<u8>,
    paths: Paths,
}

/// The pools of this process. For the same options, the newest pool is used first.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

impl WarmContainers {
    /// Starts `count` containers with these options in the background, and keeps that number ready.
    /// [`wait`](WarmContainers::wait) reports failures.
    pub fn keep(options: &PodmanOptions, count: usize) -> Result<Self, BackendError> {
        let pool = Arc::new(Pool { options: options.clone(), count, state: Mutex::default(), changed: Condvar::new() });
        let filled = Arc::clone(&pool);
        let thread = std::thread::Builder::new().name("foldspace-warm".to_owned());
        let filling = thread.spawn(move || filled.fill()).map_err(|error| unready(options, &error.to_string()))?;
        let mut pools = lock(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Ok(Self { pool, filling: Some(filling) })
    }

    /// Returns true if sessions with these options may take one.
    pub(super) fn is_for(&self, options: &PodmanOptions) -> bool {
        essence(&self.pool.options) == essence(options)
    }

    /// Returns the number that is ready now.
    pub fn ready(&self) -> usize {
        lock(&self.pool.state).ready.len()
    }

    /// Waits until all are ready. Fails if one can't be started or the time is over; sessions then make their own.
    pub fn wait(&self, patience: Duration) -> Result<(), BackendError> {
        let until = now().checked_add(patience);
        let mut state = lock(&self.pool.state);
        while state.ready.len() < self.pool.count {
            if let Some(reason) = &state.failed {
                return Err(unready(&self.pool.options, reason));
            }
            let left = until.map_or(patience, |until| until.saturating_duration_since(now()));
            if left.is_zero() {
                let reason = format!("only {} of {} warm containers are ready", state.ready.len(), self.pool.count);
                return Err(unready(&self.pool.options, &reason));
            }
            state = self.pool.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Drop for WarmContainers {
    fn drop(&mut self) {
        lock(&self.pool.state).closing = true;
        self.pool.changed.notify_all();
        if let Some(filling) = self.filling.take() {
            drop(filling.join());
        }
        let left = std::mem::take(&mut lock(&self.pool.state).ready);
        left.into_iter().for_each(Warm::discard);
    }
}

/// Takes a warm container for the session of `paths` and shows its files in it. Also returns its name, and true if its
/// limits are in force. `None` if there is no warm container or attaching fails.
pub(super) fn adopt(
    options: &PodmanOptions,
    own_name: &str,
    paths: &Paths,
    files: &OnDisk,
) -> Option<(LiveContainer, String, bool)> {
    // With a writable root, removing an idle container would lose its changes outside of the workspace.
    if !files.is_overlay() || options.writable_root {
        return None;
    }
    loop {
        let warm = take(options)?;
        match warm.become_of(options, own_name, paths, files) {
            Ok((live, limits_enforced)) => return Some((live, warm.name, limits_enforced)),
            Err(error) => {
                tracing::warn!(%error, "failed to use a warm container");
                warm.discard();
            }
        }
    }
}

fn take(options: &PodmanOptions) -> Option<Warm> {
    let wanted = essence(options);
    let pools: Vec<Arc<Pool>> = lock(&POOLS).iter().rev().filter_map(Weak::upgrade).collect();
    pools.iter().filter(|pool| essence(&pool.options) == wanted).find_map(|pool| {
        let mut state = lock(&pool.state);
        // The first has waited longest.
        let taken = if state.ready.is_empty() { None } else { Some(state.ready.remove(0)) };
        drop(state);
        pool.changed.notify_all();
        taken
    })
}

/// Returns the number of containers that are ready for sessions of this process.
pub(super) fn ready() -> usize {
    lock(&POOLS).iter().filter_map(Weak::upgrade).map(|pool| lock(&pool.state).ready.len()).sum()
}

/// Returns true if a pool keeps containers with these options.
pub(super) fn is_kept(options: &PodmanOptions) -> bool {
    let wanted = essence(options);
    lock(&POOLS).iter().filter_map(Weak::upgrade).any(|pool| essence(&pool.options) == wanted)
}

fn essence(options: &PodmanOptions) -> PodmanOptions {
    PodmanOptions {
        pull: false,
        reserve_bytes: 0,
        idle_seconds: 0,
        uptime_seconds: 0,
        name_prefix: String::new(),
        network: options.network.without_rules(),
        commands: CommandOptions::default(),
        ..options.clone()
    }
}

impl Pool {
    /// Makes containers whenever there are too few, until closed.
    fn fill(&self) {
        let (mut engine, mut pause) = (None, PAUSES.0);
        loop {
            let state = lock(&self.state);
            let enough = |state: &mut WarmState| !state.closing && state.ready.len() >= self.count;
            let had_enough = state.ready.len() >= self.count;
            let mut state = self.changed.wait_while(state, enough).unwrap_or_else(PoisonError::into_inner);
            if had_enough {
                let quiet = self.changed.wait_timeout_while(state, QUIET, |state| !state.closing);
                state = quiet.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.closing {
                return;
            }
            drop(state);
            let made = make(&self.options, &mut engine);
            let mut state = lock(&self.state);
            match made {
                Ok(warm) => {
                    // Closing takes all that are ready, including this one.
                    state.ready.push(warm);
                    (state.failed, pause) = (None, PAUSES.0);
                    self.changed.notify_all();
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to make a warm container");
                    if let EngineError::Unreachable(_) = error {
                        engine = None;
                    }
                    state.failed = Some(error.to_string());
                    self.changed.notify_all();
                    let waited = self.changed.wait_timeout_while(state, pause, |state| !state.closing);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

fn make(options: &PodmanOptions, known: &mut Option<Arc<Engine>>) -> Result<Warm, EngineError> {
    let refused = |reason: &str| EngineError::Failed { action: "keep a container ready", reason: reason.to_owned() };
    let io = |error: std::io::Error| refused(&error.to_string());
    if options.overlay != OverlayUse::Auto {
        return Err(refused("the options allow no overlay"));
    }
    let engine = match known {
        Some(engine) => Arc::clone(engine),
        None => Arc::clone(known.insert(Arc::new(Engine::of_this_user(options)?))),
    };
    if engine.rootless || !rustix::process::geteuid().is_root() {
        return Err(refused("only root can attach files to a running container"));
    }
    launch::check_image(&engine, &options.image)?;
    let name = paths::spare_name().map_err(io)?;
    let paths = Paths::spare(&name).map_err(io)?;
    if !overlay::is_supported(&paths.root) {
        paths.remove_spare();
        return Err(refused("no overlay can be mounted in the files' directory"));
    }
    let token = paths::token().map_err(io)?;
    let name = format!("foldspace-{WARM}-{name}");
    let mut warm = Warm { engine, id: name.clone(), name, pid: 0, image_digest: String::new(), token, paths };
    match warm.start(options) {
        Ok(()) => Ok(warm),
        Err(error) => {
            warm.discard();
            Err(error)
        }
    }
}

impl Warm {
    fn start(&mut self, options: &PodmanOptions) -> Result<(), EngineError> {
        let Self { engine, name, paths, token, .. } = self;
        self.id =
            launch::create(engine, &ContainerPlan { name, session: WARM, options, paths, workspace: &paths.mount })?;
        (self.pid, self.image_digest) = launch::start(engine, &self.id, paths, token, options)?;
        launch::reach(self.pid, paths, token, options).map(drop)
    }

    fn become_of(
        &self,
        options: &PodmanOptions,
        own_name: &str,
        paths: &Paths,
        files: &OnDisk,
    ) -> Result<(LiveContainer, bool), EngineError> {
        let (engine, id, pid) = (Arc::clone(&self.engine), self.id.clone(), self.pid);
        // Commands in a container that another process left behind may still use these files.
        if paths.run.exists() {
            launch::remove_noted(&engine, paths)?;
            engine.remove_if_there(own_name)?;
        }
        // Before it shows the files: a killed process leaves no other trace of it.
        paths.note_container(&id).map_err(failed("record the container"))?;
        paths.take_over(&self.paths).map_err(failed("hand over the container"))?;
        // First, because the runner's answer proves that the pid still belongs to its process.
        let (runner, limits_enforced) = launch::reach(pid, paths, &self.token, options)?;
        places(options)
            .try_for_each(|place| files.lock().attach(pid, Path::new(place)))
            .map_err(failed("show the files in the container"))?;
        self.paths.remove_spare();
        let mut live = LiveContainer::new(engine, id, (pid, runner), self.image_digest.clone());
        live.was_warm = true;
        Ok((live, limits_enforced))
    }

    fn discard(self) {
        match self.engine.remove_if_there(&self.id) {
            Ok(()) => self.paths.remove_spare(),
            Err(error) => tracing::warn!(%error, "failed to remove a container; garbage collection will remove it"),
        }
    }
}

impl std::fmt::Debug for Warm {
    /// Leaves the token out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warm").field("id", &self.id).field("pid", &self.pid).finish_non_exhaustive()
    }
}

fn unready(options: &PodmanOptions, reason: &str) -> BackendError {
    BackendError { backend: options.engine.name(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::ContainerNetwork;

    #[test]
    fn warm_key_covers_container_options_only() {
        let one = PodmanOptions::default();
        let name_prefix = "team".to_owned();
        let same = PodmanOptions { pull: true, idle_seconds: 1, reserve_bytes: 1, name_prefix, ..one.clone() };
        assert_eq!(essence(&one), essence(&same));
        for other in [
            PodmanOptions { image: "another".to_owned(), ..one.clone() },
            PodmanOptions { memory_bytes: 1, ..one.clone() },
            PodmanOptions { network: ContainerNetwork::Engine, ..one.clone() },
            PodmanOptions { pids: 1, ..one.clone() },
            PodmanOptions { connection: Some("unix:///e.sock".to_owned()), ..one.clone() },
        ] {
            assert_ne!(essence(&one), essence(&other));
        }
    }

    #[test]
    fn warm_failure_names_the_reason() {
        let nowhere = PodmanOptions { connection: Some("unix:///nowhere.sock".to_owned()), ..Default::default() };
        let warm = WarmContainers::keep(&nowhere, 1).unwrap();
        let told = warm.wait(Duration::from_secs(60)).unwrap_err();
        assert!(told.reason.contains("/nowhere.sock"), "{told}");
        assert!(take(&nowhere).is_none() && warm.ready() == 0);
        let plain = PodmanOptions { overlay: OverlayUse::Never, ..nowhere.clone() };
        let told = WarmContainers::keep(&plain, 1).unwrap().wait(Duration::from_secs(60)).unwrap_err();
        assert!(told.reason.contains("no overlay"), "{told}");
        WarmContainers::keep(&nowhere, 0).unwrap().wait(Duration::ZERO).unwrap();
    }
}
