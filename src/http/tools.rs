//! The tools that sessions offer.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{HttpFace, HttpProblem};

/// A tool, for who wants to call it.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct ToolBody {
    /// Its name.
    name: &'static str,
    /// What it does, for a model.
    description: &'static str,
    /// `read_only`, `additive` or `destructive`.
    effect: Value,
    /// JSON Schema of its parameters.
    #[schema(value_type = Object)]
    params: Value,
    /// JSON Schema of its result.
    #[schema(value_type = Object)]
    output: Value,
}

/// Lists the tools that sessions offer, with JSON Schemas of their parameters and results.
#[utoipa::path(get, path = "/v1/tools", tag = "tools",
    responses((status = 200, body = Vec<ToolBody>), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn list(State(face): State<HttpFace>) -> axum::Json<Vec<ToolBody>> {
    let described = face.hub().options().tools.describe();
    let tools = described.into_iter().map(|tool| ToolBody {
        name: tool.name,
        description: tool.description,
        effect: serde_json::to_value(tool.effect).unwrap_or_default(),
        params: tool.params.into(),
        output: tool.output.into(),
    });
    axum::Json(tools.collect())
}
