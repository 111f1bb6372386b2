//! Verification of a session by folding it again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::verify::{VerifyDifference, VerifyReport};

/// Folds a session again from its events and compares the result with everything stored.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {}

/// The outcome of a verification.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Verification {
    sessions: u64,
    events: u64,
    snapshots: u64,
    contents: u64,
    /// The number of unreadable events.
    unreadable: u64,
    /// The number of lost events.
    lost: u64,
    /// Each difference from the events: `session`, `seq`, `slice`, `what`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    differences: Vec<VerifyDifference>,
}

impl Operation for Verify {
    const NAME: &'static str = "verify";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("states", "/v1/sessions/{session}/verify", 200);
    type Output = Verification;

    async fn run(self, context: &OperationContext<'_>) -> Result<Verification, OperationError> {
        let (id, sessions) = (context.session().await?.id(), context.hub.sessions().clone());
        let report = reading(move || Ok(sessions.verify(Some(id))?)).await?;
        let VerifyReport { sessions, events, snapshots, contents, unreadable, lost, differences } = report;
        Ok(Verification { sessions, events, snapshots, contents, unreadable, lost, differences })
    }
}
