//! Sessions that begin once, although a client whose answer was lost asks for them again.

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

/// Sessions of chosen ids that are being begun.
#[derive(Default)]
pub(super) struct Beginning(Mutex<BTreeMap<SessionId, Arc<AsyncMutex<()>>>>);

impl Beginning {
    fn of(&self, id: SessionId) -> Arc<AsyncMutex<()>> {
        let mut all = lock(&self.0);
        all.retain(|_, one| Arc::strong_count(one) > 1);
        Arc::clone(all.entry(id).or_default())
    }
}

/// Returns the id of a session that a client begins under a name of its own for the request; of a fork also the parent
/// and its number.
pub(crate) fn chosen_id(request: &str, of: Option<(SessionId, u32)>) -> SessionId {
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
    /// Begins a session of a chosen id, or returns the one that has begun. Of two at once, the second waits.
    pub(crate) async fn create_once(
        &self,
        id: SessionId,
        name: Option<String>,
        spec: &WorkspaceSpec,
        mounts: &[MountSpec],
    ) -> Result<OpenSession, HubError> {
        let (hub, spec, mounts) = (self.clone(), spec.clone(), mounts.to_vec());
        // A task of its own: it completes also if the caller stops waiting.
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

    /// Begins a fork, or returns the one that has begun, if it has a chosen id. Tells whether it is new.
    pub(crate) async fn fork_once(&self, parent: SessionId, new: ForkOptions) -> Result<(Session, bool), HubError> {
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

    async fn known(&self, id: SessionId) -> Result<Option<Session>, HubError> {
        let sessions = self.sessions().clone();
        let known = move || match sessions.store().entry(id)? {
            Some(_) => sessions.session(id).map(Some),
            None => Ok(None),
        };
        Ok(blocking(known).await??)
    }
}
