//! Sessions of a store that several hosts share: claimed when a workspace opens, released when it closes.

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

/// Time limit for a session's processes and calls to end.
const HAND_OVER_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Claims a session for this host. Removes files of an earlier claim; the workspace is then populated from the history.
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

/// Removes a session's files of an earlier claim.
fn clear(session: SessionId, spec: &WorkspaceSpec, home: &Path) -> Result<(), HubError> {
    if let Some(given) = spec.given_directory().filter(|given| has_entries(given)) {
        let shown = given.display();
        let reason = format!(
            "{shown} may differ from the directory of session {session} on its previous host; move it away, and the \
             session's files are written there"
        );
        return Err(BackendError { backend: spec.backend_name(), reason }.into());
    }
    Ok(spec.remove(session, home)?)
}

#[expect(clippy::disallowed_methods, reason = "a user's directory is only read")]
fn has_entries(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// Claims a session for this host without its files.
pub(super) fn claim_bare(session: &Session) -> Result<(), HubError> {
    session.hosts().map_or(Ok(()), |hosts| Ok(hosts.claim(session.id()).map(drop)?))
}

/// Releases a session after its workspace has closed.
pub(super) fn release(session: &Session) {
    if let Some(hosts) = session.hosts() {
        hosts.release(session.id());
    }
}

/// Access to sessions that other hosts have claimed.
pub trait OtherHosts: Send + Sync {
    /// Makes a call in a session, as an agent and under rules, without questions. Dropping the future cancels the call.
    fn call<'a>(&'a self, hub: &'a Hub, call: CallElsewhere<'a>) -> BoxFuture<'a, Result<ToolOutcome, OperationError>>;

    /// Runs an operation and returns its document.
    fn run<'a>(&'a self, hub: &'a Hub, verb: VerbElsewhere) -> BoxFuture<'a, Result<Value, OperationError>>;
}

/// A call in a session that another host has claimed.
pub struct CallElsewhere<'a> {
    pub session: SessionId,
    pub tool: &'a str,
    pub params: Map<String, Value>,
    pub agent: String,
    pub rules: &'a ShellRules,
}

/// An operation on a session that another host has claimed.
pub struct VerbElsewhere {
    pub session: SessionId,
    pub route: OperationRoute,
    pub params: Map<String, Value>,
}

impl Hub {
    /// Sets the access to sessions of other hosts. Only the first call has an effect.
    #[doc(hidden)]
    pub fn reach_hosts(&self, way: Box<dyn OtherHosts>) {
        drop(self.shared.other_hosts.set(way));
    }

    /// Returns the access to sessions of other hosts.
    #[doc(hidden)]
    pub fn other_hosts(&self) -> Option<&dyn OtherHosts> {
        self.shared.other_hosts.get().map(|way| &**way)
    }

    /// Spawns a task that stops work in sessions as other hosts take them over. Needs a runtime.
    pub fn watch_hosts(&self) {
        let Some(hosts) = self.sessions().store().hosts() else { return };
        let (sender, mut lost) = mpsc::unbounded_channel();
        hosts.on_loss(Box::new(move |session| {
            // The receiving task ends only with the runtime.
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

    /// Sets the secret that all hosts of the store share and never send.
    pub fn share_with_hosts(&self, token: &str) {
        // The first secret is the server's.
        drop(self.shared.shared_with_hosts.set(token.to_owned()));
    }

    /// Returns the secret that all hosts of the store share.
    #[doc(hidden)]
    pub fn shared_with_hosts(&self) -> Option<&str> {
        self.shared.shared_with_hosts.get().map(String::as_str)
    }

    /// Cancels the calls of a session that another host has taken over, and closes its workspace here.
    pub async fn lose(&self, id: SessionId) {
        self.in_flight().cancel_calls(id, None);
        let mut place = self.place(id).lock_owned().await;
        if let Some(kept) = place.take() {
            close_now(kept, place).await;
        }
    }

    /// Closes a session's workspace so that another host can open it. Ends its processes and waits for its calls.
    #[doc(hidden)]
    pub async fn hand_over(&self, id: SessionId) -> Result<(), HubError> {
        self.refresh(id).await?;
        self.end_processes(id, HAND_OVER_TIME_LIMIT).await;
        let is_quiet = || !self.in_flight().calls().iter().any(|call| call.session == id);
        if self.close_once(id, Instant::now() + HAND_OVER_TIME_LIMIT, |_| is_quiet()).await {
            return Ok(());
        }
        Err(HubError::Busy { session: self.session(id).await?.name().to_owned(), what: "a call is in flight" })
    }
}
