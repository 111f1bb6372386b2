//! The end of all that runs in a session.

use std::time::Duration;

use tokio::time::Instant;

use super::{Hub, HubError, close_now};
use crate::engine::id::SessionId;

/// Time for processes to end, and for their ends to be recorded.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

impl Hub {
    /// Ends the processes of a session, and closes its workspace: its container goes, its files stay. A workspace that
    /// another still uses is left open.
    pub(crate) async fn release(&self, id: SessionId) -> Result<(), HubError> {
        let since = Instant::now();
        self.end_processes(id, PATIENCE).await;
        loop {
            let mut place = self.place(id).lock_owned().await;
            if place.is_none() {
                return Ok(());
            }
            if let Some(kept) = place.take_if(|kept| !kept.is_used()) {
                close_now(kept, place).await;
                return Ok(());
            }
            drop(place);
            if since.elapsed() > PATIENCE {
                let session = self.session(id).await?;
                return Err(HubError::Busy { session: session.name().to_owned(), what: "it is open" });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
