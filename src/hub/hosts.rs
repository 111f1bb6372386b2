//! Sessions of a store that several hosts share: claimed when their workspaces are opened, let go when those are closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::operations::{OperationError, OperationRoute};
use super::{Hub, HubError, close_now};
use crate::backends::{BackendError, WorkspaceSpec};
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::engine::store::SessionClaim;
use crate::tools::{ShellRules, ToolOutcome};

/// Time for the calls of a session to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes this host the one that works in a session. Files that it has from an earlier time are removed: the workspace is
/// then filled from the history.
pub(super) fn claim(session: &Session, spec: &WorkspaceSpec, home: &Path) -> Result<(), HubError> {
    let Some(hosts) = session.hosts() else { return Ok(()) };
    if hosts.claim(session.id())? == SessionClaim::Kept {
        return Ok(());
    }
    let ready = clear(session.id(), spec, home).and_then(|()| Ok(hosts.ready(session.id())?));
    if ready.is_err() {
        hosts.release(session.id());
    }
    ready
}

/// Removes what is left of a session's files of an earlier time.
fn clear(session: SessionId, spec: &WorkspaceSpec, home: &Path) -> Result<(), HubError> {
    if let Some(given) = spec.given_directory().filter(|given| has_entries(given)) {
        let shown = given.display();
        let reason = format!(
            "{shown} may have other files here than where session {session} was; move it away, and the session's files are \
             written there"
        );
        return Err(BackendError { backend: spec.backend_name(), reason }.into());
    }
    Ok(spec.remove(session, home)?)
}

#[expect(clippy::disallowed_methods, reason = "a directory of the user's is only looked at")]
fn has_entries(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// Makes this host the one that works in a session, of whose files it needs none.
pub(super) fn claim_bare(session: &Session) -> Result<(), HubError> {
    session.hosts().map_or(Ok(()), |hosts| Ok(hosts.claim(session.id()).map(drop)?))
}

/// Lets go of a session whose workspace is closed.
pub(super) fn release(session: &Session) {
    if let Some(hosts) = session.hosts() {
        hosts.release(session.id());
    }
}

/// The way to sessions in which other hosts work.
pub(crate) trait OtherHosts: Send + Sync {
    /// Makes a call in a session, as an agent and under rules. Nobody is asked. Dropping the future cancels the call.
    fn call<'a>(&'a self, hub: &'a Hub, call: CallElsewhere<'a>) -> BoxFuture<'a, Result<ToolOutcome, OperationError>>;

    /// Has a verb done, and gives its document.
    fn run<'a>(&'a self, hub: &'a Hub, verb: VerbElsewhere) -> BoxFuture<'a, Result<Value, OperationError>>;
}

/// A call to make in a session in which another host works.
pub(crate) struct CallElsewhere<'a> {
    pub(crate) session: SessionId,
    pub(crate) tool: &'a str,
    pub(crate) params: Map<String, Value>,
    pub(crate) agent: String,
    pub(crate) rules: &'a ShellRules,
}

/// A verb for a session in which another host works.
pub(crate) struct VerbElsewhere {
    pub(crate) session: SessionId,
    pub(crate) route: OperationRoute,
    pub(crate) params: Map<String, Value>,
}

impl Hub {
    /// Sets the way to the sessions of other hosts; the first one counts.
    pub(crate) fn reach_hosts(&self, way: Box<dyn OtherHosts>) {
        drop(self.shared.other_hosts.set(way));
    }

    /// Returns the way to the sessions of other hosts.
    pub(crate) fn other_hosts(&self) -> Option<&dyn OtherHosts> {
        self.shared.other_hosts.get().map(|way| &**way)
    }

    /// Stops what goes on in sessions that other hosts take, from now on. Needs a runtime.
    pub fn watch_hosts(&self) {
        let Some(hosts) = self.sessions().store().hosts() else { return };
        let (sender, mut lost) = mpsc::unbounded_channel();
        hosts.on_loss(Box::new(move |session| {
            // The task ends with its runtime only.
            let _ = sender.send(session);
        }));
        let (shared, options) = (Arc::downgrade(&self.shared), Arc::clone(&self.options));
        tokio::spawn(async move {
            while let Some(session) = lost.recv().await {
                let Some(shared) = shared.upgrade() else { return };
                let hub = Self { shared, options: Arc::clone(&options) };
                tokio::spawn(async move { hub.lose(session).await });
            }
        });
    }

    /// Sets the secret that all hosts of the store have. None of them sends it.
    pub fn share_with_hosts(&self, token: &str) {
        // The first one is the server's.
        drop(self.shared.shared_with_hosts.set(token.to_owned()));
    }

    /// Returns the secret that all hosts of the store have.
    #[cfg(feature = "http")]
    pub(crate) fn shared_with_hosts(&self) -> Option<&str> {
        self.shared.shared_with_hosts.get().map(String::as_str)
    }

    /// Stops what goes on in a session that another host has taken, and closes its workspace here.
    pub async fn lose(&self, id: SessionId) {
        self.in_flight().cancel_calls(id, None);
        let mut place = self.place(id).lock_owned().await;
        if let Some(kept) = place.take() {
            close_now(kept, place).await;
        }
    }

    /// Closes a session's workspace, so that another host can open it. Its processes are ended, and its calls waited for.
    pub(crate) async fn hand_over(&self, id: SessionId) -> Result<(), HubError> {
        self.refresh(id).await?;
        self.end_processes(id, PATIENCE).await;
        let is_quiet = || !self.in_flight().calls().iter().any(|call| call.session == id);
        if self.close_once(id, Instant::now() + PATIENCE, |_| is_quiet()).await {
            return Ok(());
        }
        Err(HubError::Busy { session: self.session(id).await?.name().to_owned(), what: "a call is in flight" })
    }
}
