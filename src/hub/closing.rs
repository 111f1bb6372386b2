//! Open workspaces, and closing them when idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;

use super::open::KeptWorkspace;
use super::{Hub, HubError, WorkspaceSlot, blocking, close_now, hosts};
use crate::backends::WorkspaceSpec;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::session::Session;

/// Interval of polling until a workspace may be closed.
const LOOK: Duration = Duration::from_millis(10);

impl Hub {
    /// Closes workspaces that have been idle for at least `unused`; returns their number.
    pub async fn close_unused(&self, unused: Duration) -> usize {
        let places: Vec<_> = lock(&self.shared.places).values().cloned().collect();
        let mut closed = 0;
        for place in places {
            // A workspace that is being opened or closed counts as in use.
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

    /// Closes the least recently used workspaces, so that one more may open.
    pub(super) async fn make_room(&self) {
        let Some(most) = self.options.open_max else { return };
        let mut open = self.open_workspaces();
        let excess = (open.len() + 1).saturating_sub(most);
        open.sort_by_key(|(_, _, idle)| std::cmp::Reverse(*idle));
        for (id, _, _) in open.into_iter().filter(|(_, _, idle)| idle.is_some()).take(excess) {
            // Never waits: the caller holds another slot.
            if let Ok(mut place) = self.place(id).try_lock_owned()
                && let Some(kept) = place.take_if(|kept| !kept.is_used())
            {
                close_now(kept, place).await;
            }
        }
    }

    /// Closes a session's workspace unless it is in use.
    pub(super) async fn close_if_unused(&self, id: SessionId) {
        let mut place = self.place(id).lock_owned().await;
        if let Some(kept) = place.take_if(|kept| !kept.is_used()) {
            close_now(kept, place).await;
        }
    }

    /// Closes a session's workspace as soon as `may_close` allows. Returns false if it does not before `until`.
    pub(super) async fn close_once(
        &self,
        id: SessionId,
        until: Instant,
        may_close: impl Fn(Option<&Arc<KeptWorkspace>>) -> bool,
    ) -> bool {
        loop {
            let mut place = self.place(id).lock_owned().await;
            if may_close(place.as_ref()) {
                if let Some(kept) = place.take() {
                    close_now(kept, place).await;
                }
                return true;
            }
            drop(place);
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Locks a session's slot. If the workspace's directory is gone or was replaced, closes the workspace first.
    pub(super) async fn slot_in_place(&self, id: SessionId) -> OwnedMutexGuard<WorkspaceSlot> {
        let mut place = self.place(id).lock_owned().await;
        match place.take_if(|kept| !kept.is_used() && !kept.workspace().is_in_place()) {
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

    /// Returns the sessions with an open workspace, its backend, and its idle time if it is not in use. Omits those
    /// being opened or closed.
    #[doc(hidden)]
    pub fn open_workspaces(&self) -> Vec<(SessionId, &'static str, Option<Duration>)> {
        let open = |(id, place): (&SessionId, &Arc<AsyncMutex<WorkspaceSlot>>)| {
            let place = place.try_lock().ok()?;
            let kept = place.as_ref()?;
            Some((*id, kept.workspace().backend_name(), (!kept.is_used()).then(|| kept.unused_for())))
        };
        lock(&self.shared.places).iter().filter_map(open).collect()
    }

    /// Removes a session with its files, unless it is in use. Its children keep the history that they share with it.
    pub async fn remove(&self, id: SessionId) -> Result<(), HubError> {
        let session = self.session(id).await?;
        let mut place = self.place(id).lock_owned().await;
        if let Some(kept) = &*place
            && kept.is_used()
        {
            return Err(HubError::Busy { session: session.name().to_owned(), what: "it is open" });
        }
        let hub = self.clone();
        blocking(move || {
            hub.remove_now(&session, place.take())?;
            lock(&hub.shared.places).remove(&id);
            hub.shared.processes.forget(id);
            Ok(())
        })
        .await?
    }

    fn remove_now(&self, session: &Session, kept: Option<Arc<KeptWorkspace>>) -> Result<(), HubError> {
        match kept {
            Some(kept) => kept.close(),
            None => hosts::claim_bare(session)?,
        }
        // Files first: only the session's record locates them.
        let spec = session.started().map(WorkspaceSpec::of_session).transpose()?;
        if let Some(spec) = spec {
            spec.remove(session.id(), &self.options().home)?;
        }
        Ok(self.sessions().remove(session.id())?)
    }
}
