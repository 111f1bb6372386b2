//! The tools that sessions offer.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::tools::ToolDescription;

/// Lists the tools that sessions offer, with JSON Schemas of their parameters and results.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTools {
    /// A session; includes the tools that programs registered only for it.
    pub session: Option<String>,
}

impl Operation for ListTools {
    const NAME: &'static str = "list_tools";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("tools", "/v1/tools");
    type Output = Vec<ToolDescription>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<ToolDescription>, OperationError> {
        let session = match &self.session {
            Some(wanted) => Some(context.caller.session(Some(wanted)).await?.id()),
            None => None,
        };
        Ok(context.hub.options().tools.describe_for(session))
    }
}
