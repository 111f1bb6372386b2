//! The end of all that runs in a session.

use std::time::Duration;

use tokio::time::Instant;

use super::{Hub, HubError};
use crate::engine::id::SessionId;

/// Time for processes to end, and for their ends to be recorded.
const PATIENCE: Duration = Duration::from_secs(10);

impl Hub {
    /// Ends the processes of a session, and closes its workspace: its container goes, its files stay. A workspace that
    /// another still uses is left open.
    pub(crate) async fn release(&self, id: SessionId) -> Result<(), HubError> {
        let until = Instant::now() + PATIENCE;
        self.end_processes(id, PATIENCE).await;
        if self.close_once(id, until, |kept| kept.is_none_or(|kept| !kept.is_used())).await {
            return Ok(());
        }
        Err(HubError::Busy { session: self.session(id).await?.name().to_owned(), what: "it is open" })
    }
}
