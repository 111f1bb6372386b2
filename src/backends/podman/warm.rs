//! Containers that are made before anybody needs one.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::NAME;
use super::engine::{ContainerPlan, Engine, EngineError};
use super::exec_mode::{ExecMode, TOKEN};
use super::files::Files;
use super::options::{OverlayUse, PodmanOptions, RunnerUse};
use super::orphans::owner_of_this_process;
use super::paths::{self, Paths};
use crate::backends::BackendError;
use crate::backends::disk::OverlayDisk;
use crate::backends::executor::Executor;
use crate::backends::runner::RUNNER;

/// The session's label of a container that was made for none.
pub(super) const WARM: &str = "warm";
/// How long the engine is left alone after a container was taken, for what the taker does has to be done first.
const QUIET: Duration = Duration::from_millis(100);
/// How long it is waited after a container could not be made, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Containers of this process that run, with nobody's files in them, for whichever session next needs one: its first
/// command then waits for a mount and not for an engine.
///
/// A session of this process takes one when its options are the same in all that a container depends on, and its files
/// lie in an overlay. None was ever used by anybody, and none comes back: another is made in its place, in the
/// background. That a container was made beforehand is nowhere recorded, and changes nothing for the session, but that
/// it is removed, and not stopped, when nobody has used it for long. Where there can be no such containers, because
/// there is no overlay, no resident runner or no engine, sessions make theirs as ever.
///
/// Dropping this removes those that nobody has taken. What a killed process leaves, `foldspace gc` removes.
///
/// ```no_run
/// use foldspace::{PodmanOptions, WarmContainers};
/// let warm = WarmContainers::keep(&PodmanOptions::default(), 2)?;
/// warm.wait(std::time::Duration::from_secs(10))?;
/// assert_eq!(warm.ready(), 2);
/// # Ok::<(), foldspace::BackendError>(())
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
    /// Why the last one could not be made.
    failed: Option<String>,
    closing: bool,
}

/// A container that runs and has nobody's files.
struct Warm {
    engine: Arc<Engine>,
    id: String,
    pid: i32,
    token: Vec<u8>,
    paths: Paths,
}

/// A container that has become a session's.
pub(super) struct Adopted {
    pub(super) engine: Arc<Engine>,
    pub(super) id: String,
    pub(super) pid: i32,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) limits_enforced: bool,
    /// Gives it the session's name. Until that has ended nobody may ask for a container of that name.
    pub(super) naming: Option<ContainerRename>,
}

/// Gives a container its session's name in a while, or sooner when somebody waits for it.
pub(super) struct ContainerRename {
    thread: JoinHandle<()>,
    hurry: Sender<()>,
}

/// Those of this process. The last that is kept for some options is taken from first.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

impl WarmContainers {
    /// Begins to make `count` containers with these options, and to keep so many from then on.
    ///
    /// # Errors
    /// [`BackendError`] when no thread can be started for it. Whether containers can be made tells
    /// [`wait`](WarmContainers::wait).
    pub fn keep(options: &PodmanOptions, count: usize) -> Result<Self, BackendError> {
        let pool = Arc::new(Pool { options: options.clone(), count, state: Mutex::default(), changed: Condvar::new() });
        let filled = Arc::clone(&pool);
        let thread = std::thread::Builder::new().name("foldspace-warm".to_owned());
        let filling = thread.spawn(move || filled.fill()).map_err(|error| failed(&error.to_string()))?;
        let mut pools = locked(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Ok(Self { pool, filling: Some(filling) })
    }

    /// How many are there now.
    pub fn ready(&self) -> usize {
        locked(&self.pool.state).ready.len()
    }

    /// Waits until all are there.
    ///
    /// # Errors
    /// [`BackendError`] with the reason when one can't be made, or they take longer than that. Sessions then make
    /// their own; it is tried again all the same.
    pub fn wait(&self, patience: Duration) -> Result<(), BackendError> {
        let until = now().checked_add(patience);
        let mut state = locked(&self.pool.state);
        while state.ready.len() < self.pool.count {
            if let Some(reason) = &state.failed {
                return Err(failed(reason));
            }
            let left = until.map_or(patience, |until| until.saturating_duration_since(now()));
            if left.is_zero() {
                let reason = format!("{} of {} warm containers are there", state.ready.len(), self.pool.count);
                return Err(failed(&reason));
            }
            state = self.pool.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Drop for WarmContainers {
    fn drop(&mut self) {
        locked(&self.pool.state).closing = true;
        self.pool.changed.notify_all();
        if let Some(filling) = self.filling.take() {
            // A panic there has been printed.
            drop(filling.join());
        }
        let left = std::mem::take(&mut locked(&self.pool.state).ready);
        left.into_iter().for_each(Warm::discard);
    }
}

/// Takes a container with these options for a session of that name, and shows its files in it. None where there is
/// none, or the files can't be shown in one that runs already.
pub(super) fn adopt(options: &PodmanOptions, name: &str, paths: &Paths, files: &Files) -> Option<Adopted> {
    if !files.is_overlay() {
        return None;
    }
    loop {
        let warm = take(options)?;
        match warm.become_of(options, name, paths, files) {
            Ok(adopted) => return Some(adopted),
            Err(error) => {
                tracing::warn!(%error, "a container that was made beforehand can't be used");
                warm.discard();
            }
        }
    }
}

fn take(options: &PodmanOptions) -> Option<Warm> {
    let wanted = essence(options);
    let pools: Vec<Arc<Pool>> = locked(&POOLS).iter().rev().filter_map(Weak::upgrade).collect();
    pools.iter().filter(|pool| essence(&pool.options) == wanted).find_map(|pool| {
        let mut state = locked(&pool.state);
        // The others have waited longer.
        let taken = if state.ready.is_empty() { None } else { Some(state.ready.remove(0)) };
        drop(state);
        pool.changed.notify_all();
        taken
    })
}

/// What a container depends on.
fn essence(options: &PodmanOptions) -> PodmanOptions {
    PodmanOptions { pull: false, reserve_bytes: 0, idle_seconds: 0, ..options.clone() }
}

impl Pool {
    /// Makes containers whenever there are too few, until all are to go.
    fn fill(&self) {
        let (mut engine, mut pause) = (None, PAUSES.0);
        loop {
            let state = locked(&self.state);
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
            let mut state = locked(&self.state);
            match made {
                Ok(warm) => {
                    // Who closes takes what is there, this one too.
                    state.ready.push(warm);
                    (state.failed, pause) = (None, PAUSES.0);
                    self.changed.notify_all();
                }
                Err(error) => {
                    tracing::debug!(%error, "no container can be made beforehand");
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
    if (options.overlay, options.runner) != (OverlayUse::Auto, RunnerUse::Auto) {
        return Err(refused("the options want no overlay, or not the resident runner"));
    }
    let engine = match known {
        Some(engine) => Arc::clone(engine),
        None => {
            let engine = Engine::connect(options.connection.as_deref())?;
            engine.check_user()?;
            Arc::clone(known.insert(Arc::new(engine)))
        }
    };
    if engine.rootless || !rustix::process::geteuid().is_root() {
        return Err(refused("files are attached to a container that runs by root alone"));
    }
    if !engine.has_image(&options.image)? {
        return Err(EngineError::NoImage(options.image.clone()));
    }
    if let ExecMode::Exec(reason) = ExecMode::choose(&engine, options)? {
        return Err(refused(&reason));
    }
    let name = paths::spare_name().map_err(io)?;
    let paths = Paths::spare(&name).map_err(io)?;
    if !OverlayDisk::is_supported(&paths.root) {
        paths.remove_spare();
        return Err(refused("no overlay can be mounted where the files would be"));
    }
    let token = paths::token().map_err(io)?;
    let warm = Warm { engine, id: format!("foldspace-{WARM}-{name}"), pid: 0, token, paths };
    let started = warm.start(options);
    match started {
        Ok((id, pid)) => Ok(Warm { id, pid, ..warm }),
        Err(error) => {
            warm.discard();
            Err(error)
        }
    }
}

impl Warm {
    /// Makes and starts the container, whose name is its identity as yet. Gives its id and its first process.
    fn start(&self, options: &PodmanOptions) -> Result<(String, i32), EngineError> {
        let (engine, paths) = (&self.engine, &self.paths);
        let prepared = paths.prepare_run(RUNNER).and_then(|()| paths.prepare_door(TOKEN, &self.token));
        let io =
            |error: std::io::Error| EngineError::Failed { action: "prepare the container", reason: error.to_string() };
        prepared.map_err(io)?;
        let id = engine.create(&ContainerPlan {
            name: &self.id,
            session: WARM,
            owner: &owner_of_this_process(),
            options,
            workspace: &paths.mount,
            run: &paths.run,
            door: &paths.door,
            seccomp: &paths.seccomp,
            mapped: false,
            command: ExecMode::Runner.command(),
        })?;
        engine.start(&id)?;
        let seen = engine.inspect(&id)?;
        if !seen.running || seen.pid == 0 {
            let reason = format!("it ended at once, with exit code {}", seen.exit_code);
            return Err(EngineError::Failed { action: "start the container", reason });
        }
        ExecMode::Runner.reach(engine, &id, seen.pid, paths, &self.token, options)?;
        Ok((id, seen.pid))
    }

    /// Makes it the container of a session.
    fn become_of(
        &self,
        options: &PodmanOptions,
        name: &str,
        paths: &Paths,
        files: &Files,
    ) -> Result<Adopted, EngineError> {
        let refused = |what: &'static str| {
            move |error: std::io::Error| EngineError::Failed { action: what, reason: error.to_string() }
        };
        let (engine, id, pid) = (Arc::clone(&self.engine), self.id.clone(), self.pid);
        // Another process may have left a container of that name, with commands that still run on these files.
        let had_one = paths.run.exists();
        if had_one {
            engine.remove_noted(paths)?;
            engine.rename(&id, name)?;
        }
        // Before it shows the files: who is killed before it has its name leaves no other trace of it.
        paths.note_container(&id).map_err(refused("note the container"))?;
        paths.take_over(&self.paths).map_err(refused("hand over the container"))?;
        // First, because only who answers is surely the process of that number.
        let (executor, limits_enforced) = ExecMode::Runner.reach(&engine, &id, pid, paths, &self.token, options)?;
        files.attach(pid).map_err(refused("show the files in the container"))?;
        let naming = ContainerRename::begin(&engine, &id, (!had_one).then_some(name), &self.paths);
        Ok(Adopted { engine, id, pid, executor, limits_enforced, naming })
    }

    fn discard(self) {
        match self.engine.remove(&self.id) {
            Ok(()) | Err(EngineError::NoContainer) => self.paths.remove_spare(),
            Err(error) => tracing::warn!(%error, "a container could not be removed; `foldspace gc` will"),
        }
    }
}

impl std::fmt::Debug for Warm {
    /// Without the token, which is nobody's to read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warm").field("id", &self.id).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl ContainerRename {
    /// Removes what was a spare container's, too. Without a name there is nothing else to be done.
    fn begin(engine: &Arc<Engine>, id: &str, name: Option<&str>, spare: &Paths) -> Option<Self> {
        let (engine, id, name) = (Arc::clone(engine), id.to_owned(), name.map(str::to_owned));
        let (hurry, hurried) = channel::<()>();
        let spare = spare.clone();
        let naming = move || {
            // Nothing is sent: the other end is closed.
            let _: Result<(), RecvTimeoutError> = hurried.recv_timeout(QUIET);
            if let Some(Err(error)) = name.as_ref().map(|name| engine.rename(&id, name)) {
                tracing::warn!(%error, id, name, "a container keeps the name that it was made with");
            }
            spare.remove_spare();
        };
        let thread = std::thread::Builder::new().name("foldspace-name".to_owned()).spawn(naming).ok()?;
        Some(Self { thread, hurry })
    }

    /// Waits until it is done.
    pub(super) fn wait(self) {
        drop(self.hurry);
        // A panic there has been printed.
        drop(self.thread.join());
    }
}

fn failed(reason: &str) -> BackendError {
    BackendError { backend: NAME, reason: reason.to_owned() }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "how long a container is waited for is nobody's history")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_key_covers_container_options_only() {
        let one = PodmanOptions::default();
        let same = PodmanOptions { pull: true, idle_seconds: 1, reserve_bytes: 1, ..one.clone() };
        assert_eq!(essence(&one), essence(&same));
        for other in [
            PodmanOptions { image: "another".to_owned(), ..one.clone() },
            PodmanOptions { memory_bytes: 1, ..one.clone() },
            PodmanOptions { network: true, ..one.clone() },
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
