//! The hosts that share a store, and their sessions.

use std::time::Duration;

use super::Result;
use crate::engine::SessionId;

/// The file of a directory that is a copy of a shared store.
pub(super) const COPY_FILE: &str = "nats-host";

/// A host that works in sessions of a shared store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHost {
    /// Name, which no other host of the store has.
    pub name: String,
    /// URL at which other hosts reach its API; none if they can't.
    pub at: Option<String>,
}

/// The state of a session's files on a host that has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionClaim {
    /// The host was the last one to work in the session: what it has of the files is the session's.
    Kept,
    /// Another host has worked in it since: what this one has of the files is old.
    Taken,
}

/// The hosts of a store, as one of them sees them.
///
/// Of all hosts one at most works in a session: the one that has claimed it, as long as it says that it is there. A host
/// whose session was taken can't record in it any more.
pub trait SessionHosts: Send + Sync {
    /// Returns this host.
    fn own(&self) -> &StoreHost;

    /// Makes this host the one that works in a session. Takes it from a host that has been silent for the time of a
    /// lease.
    ///
    /// # Errors
    /// [`StoreError::OtherHost`](super::StoreError::OtherHost): another host works in it.
    fn claim(&self, session: SessionId) -> Result<SessionClaim>;

    /// Notes that this host has the files of a session that it has taken. Before that a later claim takes it again.
    fn ready(&self, session: SessionId) -> Result<()>;

    /// Lets go of a session. Where the store can't be told, others wait until this host is silent.
    fn release(&self, session: SessionId);

    /// Returns the other host that works in a session; none if no other one does.
    fn other(&self, session: SessionId) -> Result<Option<StoreHost>>;

    /// Finds a host that is there, by its name; none also for one that has been silent for the time of a lease.
    fn find(&self, name: &str) -> Result<Option<StoreHost>>;

    /// Returns the time after which a silent host is taken for gone.
    fn lease(&self) -> Duration;

    /// Returns the time for which this host has been waiting for the store; none where it does not wait.
    fn waited(&self) -> Option<Duration>;

    /// Sets what is done when this host loses a session. It must not block.
    fn on_loss(&self, tell: Box<dyn Fn(SessionId) + Send + Sync>);
}
