//! The hosts that share a store, and their session claims.

use std::time::Duration;

use super::Result;
use crate::engine::SessionId;

/// The file that marks a directory as a copy of a shared store.
pub(super) const COPY_FILE: &str = "nats-host";

/// A host of a shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHost {
    /// Name, unique among the store's hosts.
    pub name: String,
    /// URL of its API for other hosts. `None` if they can't reach it.
    pub at: Option<String>,
}

/// The state of a session's files on the host that claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionClaim {
    /// The host was the last to work in the session: its files are current.
    Kept,
    /// Another host has worked in the session since: the files on this host are stale.
    Taken,
}

/// Figures of a host since it joined, from memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostFigures {
    /// Time that the host has been waiting for the store. `None` if it is not waiting.
    pub waited: Option<Duration>,
    /// Number of sessions that it holds.
    pub held: u64,
    /// Number of sessions that it took over without a release by their host.
    pub takeovers: u64,
    /// Number of sessions that it lost to another host or released because the store did not answer.
    pub lost: u64,
}

/// The hosts of a store, from the point of view of one host.
///
/// At most one host works in a session: the host that claimed it, while it sends heartbeats. A host that lost its claim
/// can no longer record in the session.
pub trait SessionHosts: Send + Sync {
    /// Returns this host.
    fn own(&self) -> &StoreHost;

    /// Claims a session for this host. Takes it over from a host with an expired lease.
    ///
    /// # Errors
    /// [`StoreError::OtherHost`](super::StoreError::OtherHost) if another host has claimed it.
    fn claim(&self, session: SessionId) -> Result<SessionClaim>;

    /// Records that this host has the files of a session that it took over. Until then a later claim returns
    /// [`SessionClaim::Taken`] again.
    fn ready(&self, session: SessionId) -> Result<()>;

    /// Releases a session. If the store can't be notified, other hosts wait until this host's lease expires.
    fn release(&self, session: SessionId);

    /// Returns the other host that works in a session. `None` if no other host works in it.
    fn other(&self, session: SessionId) -> Result<Option<StoreHost>>;

    /// Finds a live host by name. `None` if it is unknown or its lease has expired.
    fn find(&self, name: &str) -> Result<Option<StoreHost>>;

    /// Returns the maximum silence of a host before it is declared dead.
    fn lease(&self) -> Duration;

    /// Returns how long this host has been waiting for the store. `None` if it is not waiting.
    fn waited(&self) -> Option<Duration> {
        self.figures().waited
    }

    /// Returns this host's figures.
    fn figures(&self) -> HostFigures;

    /// Sets the callback for the loss of a session. It must not block.
    fn on_loss(&self, tell: Box<dyn Fn(SessionId) + Send + Sync>);
}
