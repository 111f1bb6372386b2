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

/// Returns true if a call without an outcome may be running: in this process, or in the store's owner.
pub fn may_be_running(session: &Session) -> bool {
    let is_elsewhere = || matches!(session.check_own(), Err(SessionError::Store(StoreError::Locked { .. })));
    !lock(&SessionRuntime::of(session).in_flight).is_empty() || is_elsewhere()
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
        assert!(runtime.is_in_flight(7) && may_be_running(&again));
        drop((claim, call, locked));
        assert!(ContainerClaim::of(&again).is_some() && runtime.try_lock_workspace().is_some());
        assert!(!runtime.is_in_flight(7) && !may_be_running(&again));
    }

    #[test]
    fn runtimes_of_sessions_are_separate() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
        let [one, other] = [(); 2].map(|()| sessions.create(NewSession::default()).unwrap());
        let _call = SessionCall::begin(&one, 2);
        assert!(may_be_running(&one) && !may_be_running(&other));
    }
}
