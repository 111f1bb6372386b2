//! Idempotent creation of sessions, for clients that retry after a lost response.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Mutex as AsyncMutex;

use super::{Hub, HubError, OpenSession, blocking, joined};
use crate::backends::WorkspaceSpec;
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::tools::MountSpec;

/// Locks for sessions with chosen ids that are being created.
#[derive(Default)]
pub(super) struct Beginning(Mutex<BTreeMap<SessionId, Arc<AsyncMutex<()>>>>);

impl Beginning {
    pub(super) fn of(&self, id: SessionId) -> Arc<AsyncMutex<()>> {
        let mut all = lock(&self.0);
        all.retain(|_, one| Arc::strong_count(one) > 1);
        Arc::clone(all.entry(id).or_default())
    }
}

/// Derives a session's id from a client's request id, and for a fork also from the parent and the fork's number.
pub fn chosen_id(request: &str, of: Option<(SessionId, u32)>) -> SessionId {
    let mut bytes = b"foldspace create id\0".to_vec();
    if let Some((parent, number)) = of {
        bytes.extend(parent.as_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(request.as_bytes());
    let digest = Digest::of(&bytes);
    let mut id = [0; 16];
    id.copy_from_slice(&digest.as_bytes()[..16]);
    SessionId::from_bytes(id)
}

impl Hub {
    /// Creates a session with a chosen id, or returns the existing one. Concurrent requests are serialized.
    #[doc(hidden)]
    pub async fn create_once(
        &self,
        id: SessionId,
        name: Option<String>,
        spec: &WorkspaceSpec,
        mounts: &[MountSpec],
    ) -> Result<OpenSession, HubError> {
        let (hub, spec, mounts) = (self.clone(), spec.clone(), mounts.to_vec());
        // Spawned, so that it completes even if the caller stops waiting.
        let begun = tokio::spawn(async move {
            let alone = hub.shared.beginning.of(id);
            let _alone = alone.lock().await;
            match hub.known(id).await? {
                Some(_) => hub.open(id).await,
                None => hub.create_as((name, Some(id)), &spec, &mounts).await,
            }
        });
        joined(begun.await)?
    }

    /// Creates a fork, or returns the existing one with the chosen id. The flag is true if the fork is new.
    #[doc(hidden)]
    pub async fn fork_once(&self, parent: SessionId, new: ForkOptions) -> Result<(Session, bool), HubError> {
        let Some(id) = new.id else { return Ok((self.start_child(parent, new).await?.session().clone(), true)) };
        let hub = self.clone();
        let begun = tokio::spawn(async move {
            let alone = hub.shared.beginning.of(id);
            let _alone = alone.lock().await;
            match hub.known(id).await? {
                Some(known) => Ok((known, false)),
                None => Ok((hub.start_child(parent, new).await?.session().clone(), true)),
            }
        });
        joined(begun.await)?
    }

    pub(super) async fn known(&self, id: SessionId) -> Result<Option<Session>, HubError> {
        let sessions = self.sessions().clone();
        let known = move || match sessions.store().entry(id)? {
            Some(_) => sessions.session(id).map(Some),
            None => Ok(None),
        };
        Ok(blocking(known).await??)
    }
}
