//! Release of a session's processes and workspace.

use std::time::Duration;

use tokio::time::Instant;

use super::{Hub, HubError};
use crate::engine::id::SessionId;

/// Time limit for processes to end and for their ends to be recorded.
const RELEASE_TIME_LIMIT: Duration = Duration::from_secs(10);

impl Hub {
    /// Ends the processes and calls of a session, and closes its workspace: the container goes, the files stay. A
    /// workspace that is still in use stays open.
    #[doc(hidden)]
    pub async fn release(&self, id: SessionId) -> Result<(), HubError> {
        let until = Instant::now() + RELEASE_TIME_LIMIT;
        self.end_processes(id, RELEASE_TIME_LIMIT).await;
        self.in_flight().cancel_calls(id, None);
        if self.close_once(id, until, |kept| kept.is_none_or(|kept| !kept.is_used())).await {
            return Ok(());
        }
        Err(HubError::Busy { session: self.session(id).await?.name().to_owned(), what: "it is open" })
    }
}
