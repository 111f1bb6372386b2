//! Removal of a session.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, OperationContext, OperationError, OperationRoute};

/// Removes a session with its files. Its children keep the history that they share with it.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveSession {}

impl Operation for RemoveSession {
    const NAME: &'static str = "remove_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::delete("sessions", "/v1/sessions/{session}", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        Ok(context.hub.remove(context.session().await?.id()).await?)
    }
}
