//! Open workspaces, and their end for want of use.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::open::User;
use super::{Hub, HubError, WorkspaceSlot, close_now};
use crate::engine::id::SessionId;
use crate::engine::lock::lock;

impl Hub {
    /// Closes the workspaces that were unused for so long; returns their number.
    pub async fn close_unused(&self, unused: Duration) -> usize {
        let places: Vec<_> = lock(&self.shared.places).values().cloned().collect();
        let mut closed = 0;
        for place in places {
            // One that is being opened or closed is in use.
            let Ok(mut place) = place.try_lock_owned() else { continue };
            if let Some(kept) = place.take_if(|kept| !kept.is_used() && kept.unused_for() >= unused) {
                closed += 1;
                close_now(kept, place).await;
            }
        }
        lock(&self.shared.places)
            .retain(|_, place| Arc::strong_count(place) > 1 || place.try_lock().is_ok_and(|place| place.is_some()));
        closed
    }

    /// Records what has changed outside of calls in a workspace that is open, unless a call is under way.
    pub(crate) async fn refresh(&self, id: SessionId) -> Result<(), HubError> {
        let place = lock(&self.shared.places).get(&id).cloned();
        let user = place.and_then(|place| place.try_lock().ok().and_then(|slot| slot.as_ref().map(User::of)));
        match user {
            Some(user) if user.is_in_place() => Ok(user.tool_runner().refresh().await?),
            _ => Ok(()),
        }
    }

    /// Locks a session's slot. A workspace whose directory is gone, or another one by now, is closed before.
    pub(super) async fn slot_in_place(&self, id: SessionId) -> OwnedMutexGuard<WorkspaceSlot> {
        let mut place = self.place(id).lock_owned().await;
        match place.take_if(|kept| !kept.is_used() && !kept.is_in_place()) {
            Some(kept) => {
                close_now(kept, place).await;
                self.place(id).lock_owned().await
            }
            None => place,
        }
    }

    /// Returns the number of open workspaces.
    pub fn open_count(&self) -> usize {
        let places = lock(&self.shared.places);
        places.values().filter(|place| place.try_lock().map_or(true, |place| place.is_some())).count()
    }

    /// Returns the sessions with an open workspace, its backend, and the time since it was used last if it is not used
    /// now. One that is being opened or closed is left out.
    pub(crate) fn open_workspaces(&self) -> Vec<(SessionId, &'static str, Option<Duration>)> {
        let open = |(id, place): (&SessionId, &Arc<AsyncMutex<WorkspaceSlot>>)| {
            let place = place.try_lock().ok()?;
            let kept = place.as_ref()?;
            Some((*id, kept.backend_name(), (!kept.is_used()).then(|| kept.unused_for())))
        };
        lock(&self.shared.places).iter().filter_map(open).collect()
    }
}
