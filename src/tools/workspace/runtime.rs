//! The state of a session's work in this process: locks, the claim of its container, calls in flight, output.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::output_stream::{CommandOutput, OutputOptions, OutputSubscription, Outputs};
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::reducers::{AgentRuns, ToolCalls};

/// State of a session's work in this process, which all handles of the session share. It is not recorded.
#[derive(Default)]
pub struct SessionRuntime {
    workspace: Arc<AsyncMutex<()>>,
    scan: Arc<AsyncMutex<()>>,
    has_container: AtomicBool,
    calls_begun: OnceLock<Arc<AtomicU64>>,
    in_flight: Mutex<BTreeSet<Seq>>,
    outputs: Outputs,
}

/// Held while the files of a workspace change, or while its disk is scanned.
pub type WorkspaceLock = OwnedMutexGuard<()>;

impl SessionRuntime {
    /// Returns the state that all handles of the session share.
    pub fn of(session: &Session) -> Arc<Self> {
        session.extension()
    }

    /// Waits for the workspace lock, which excludes other changes of the files.
    pub async fn lock_workspace(&self) -> WorkspaceLock {
        Arc::clone(&self.workspace).lock_owned().await
    }

    /// Returns the workspace lock if it is free.
    pub fn try_lock_workspace(&self) -> Option<WorkspaceLock> {
        Arc::clone(&self.workspace).try_lock_owned().ok()
    }

    /// Waits for the end of any scan of the workspace's disk, and excludes other scans until the guard is dropped.
    pub(crate) async fn lock_scan(&self) -> WorkspaceLock {
        Arc::clone(&self.scan).lock_owned().await
    }

    /// Returns the scan lock if no scan is in progress.
    pub(crate) fn try_lock_scan(&self) -> Option<WorkspaceLock> {
        Arc::clone(&self.scan).try_lock_owned().ok()
    }

    /// Subscribes to the output of running commands, from now on.
    pub fn output(&self, options: OutputOptions) -> OutputSubscription {
        self.outputs.subscribe(options)
    }

    /// Sends a command's output to subscribers. Blocks while a lossless subscriber is behind.
    pub fn show_output(&self, output: impl FnOnce() -> CommandOutput) {
        self.outputs.show(output);
    }

    /// Returns the shared count of calls that began; the first caller sets it.
    pub(crate) fn calls_begun(&self, before: u64) -> Arc<AtomicU64> {
        Arc::clone(self.calls_begun.get_or_init(|| Arc::new(AtomicU64::new(before))))
    }

    /// Returns true if this process runs the call.
    pub(crate) fn is_in_flight(&self, call: Seq) -> bool {
        lock(&self.in_flight).contains(&call)
    }
}

/// Returns the calls that run: in this process, in the store's owner since it took the store, or in an agent that is
/// observed. A call that an earlier process left without an outcome does not run.
pub fn running_calls(session: &Session) -> BTreeSet<Seq> {
    let mut running = lock(&SessionRuntime::of(session).in_flight).clone();
    let since = match session.check_own() {
        Err(SessionError::Store(StoreError::Locked { owner, .. })) => owner.since,
        _ => None,
    };
    // An unreadable history shows none.
    let Ok(state) = session.state() else { return running };
    let observed = state.slice::<AgentRuns>().map(|runs| &runs.open);
    let open = state.slice::<ToolCalls>().into_iter().flat_map(ToolCalls::open).filter(|call| {
        since.is_some_and(|since| call.started_at >= since)
            || observed.is_some_and(|open| open.contains_key(&call.call))
    });
    running.extend(open.map(|call| call.call));
    running
}

/// Claim of the session's only container. It keeps the session open, and with it the claim itself.
pub(crate) struct ContainerClaim {
    session: Session,
}

impl ContainerClaim {
    /// Claims the container; `None` if it is claimed.
    pub(crate) fn of(session: &Session) -> Option<Self> {
        let is_claimed = SessionRuntime::of(session).has_container.swap(true, Ordering::AcqRel);
        (!is_claimed).then(|| Self { session: session.clone() })
    }
}

impl Drop for ContainerClaim {
    fn drop(&mut self) {
        SessionRuntime::of(&self.session).has_container.store(false, Ordering::Release);
    }
}

/// Entry of a call in flight. It keeps the session open, and with it the entry itself.
pub(crate) struct SessionCall {
    session: Session,
    call: Seq,
}

impl SessionCall {
    pub(crate) fn begin(session: &Session, call: Seq) -> Self {
        lock(&SessionRuntime::of(session).in_flight).insert(call);
        Self { session: session.clone(), call }
    }
}

impl Drop for SessionCall {
    fn drop(&mut self) {
        lock(&SessionRuntime::of(&self.session).in_flight).remove(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::SystemClock;
    use crate::engine::commit::CallLink;
    use crate::engine::event::{CallStarted, Isolation};
    use crate::engine::session::children::ForkOptions;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::LocalStore;
    use crate::{NewSession, Registry, Sessions};

    #[test]
    fn claims_and_calls_outlive_other_handles() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let session = sessions.create(NewSession::default()).unwrap();
        let (id, other) = (session.id(), session.as_agent("other"));
        let locked = SessionRuntime::of(&session).try_lock_workspace().unwrap();
        assert!(SessionRuntime::of(&other).try_lock_workspace().is_none());
        let (claim, call) = (ContainerClaim::of(&session).unwrap(), SessionCall::begin(&other, 7));
        drop((session, other));

        let again = sessions.session(id).unwrap();
        let runtime = SessionRuntime::of(&again);
        assert!(ContainerClaim::of(&again).is_none() && runtime.try_lock_workspace().is_none());
        assert!(runtime.is_in_flight(7) && running_calls(&again).contains(&7));
        drop((claim, call, locked));
        assert!(ContainerClaim::of(&again).is_some() && runtime.try_lock_workspace().is_some());
        assert!(!runtime.is_in_flight(7) && running_calls(&again).is_empty());
    }

    #[test]
    fn open_call_runs_only_in_the_owner_that_began_it() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let session = sessions.create(NewSession::named("one")).unwrap();
        let begin = |session: &Session| {
            let mut commit = session.commit().of_call(CallLink::Opens);
            commit.push(&CallStarted { tool: "ls".to_owned(), params: Default::default() }).unwrap();
            session.record(commit).unwrap().first
        };
        let (lost, id) = (begin(&session), session.id());
        let child = sessions.child_of(&session, ForkOptions::new(Isolation::Fork)).unwrap().id();
        drop((session, sessions));
        std::thread::sleep(std::time::Duration::from_millis(20));
        // The next owner, and this process beside it.
        let owner = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let beside = |id| {
            let store = Arc::new(LocalStore::open_reading(directory.path()).unwrap());
            let (clock, policy) = (Arc::new(SystemClock::default()), SnapshotPolicy::default());
            Sessions::new(store, Registry::standard(), clock, policy).unwrap().session(id).unwrap()
        };
        assert!(running_calls(&beside(id)).is_empty() && running_calls(&owner.session(id).unwrap()).is_empty());
        let begun = begin(&owner.session(id).unwrap());
        assert_eq!(running_calls(&beside(id)), BTreeSet::from([begun]));
        let kin = beside(child);
        assert!(kin.event(lost).is_ok() && running_calls(&kin).is_empty(), "the parent's call is no call of the fork");
    }

    #[test]
    fn runtimes_of_sessions_are_separate() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let [one, other] = [(); 2].map(|()| sessions.create(NewSession::default()).unwrap());
        let _call = SessionCall::begin(&one, 2);
        assert!(running_calls(&one).contains(&2) && running_calls(&other).is_empty());
    }
}
