//! One session.

use schemars::JsonSchema;
use serde::Deserialize;

use super::list_sessions::{SessionDocument, listed};
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::SessionId;
use crate::engine::store::StoreError;
use crate::hub::Hub;

/// Shows a session.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowSession {}

impl Operation for ShowSession {
    const NAME: &'static str = "show_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions/{session}");
    type Output = SessionDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<SessionDocument, OperationError> {
        shown(context.hub, context.session().await?.id()).await
    }
}

pub(super) async fn shown(hub: &Hub, id: SessionId) -> Result<SessionDocument, OperationError> {
    let sessions = hub.sessions().clone();
    reading(move || {
        let entry = sessions.store().entry(id)?.ok_or(StoreError::NoSession(id))?;
        // A session that can't be read is an error.
        sessions.session(id)?.state()?;
        Ok(listed(&entry))
    })
    .await
}
