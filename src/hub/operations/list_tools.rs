//! The tools that sessions offer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::tools::ToolDescription;

/// Lists the tools that sessions offer, with JSON Schemas of their parameters and results.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTools {}

/// A tool that can be called.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Tool", transparent)]
pub struct ToolBody(#[schemars(with = "ToolShape")] pub ToolDescription);

/// The form of a tool.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is only the schema of a tool")]
struct ToolShape {
    /// Its name.
    name: String,
    /// The text about it, for a model.
    description: String,
    /// `read_only`, `additive` or `destructive`.
    effect: String,
    /// JSON Schema of its parameters.
    params: Map<String, Value>,
    /// JSON Schema of its result.
    output: Map<String, Value>,
}

impl Operation for ListTools {
    const NAME: &'static str = "list_tools";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("tools", "/v1/tools");
    type Output = Vec<ToolBody>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<ToolBody>, OperationError> {
        Ok(context.hub.options().tools.describe().into_iter().map(ToolBody).collect())
    }
}
