//! The text about a workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute};

/// Gives the text about a session's workspace that belongs into a prompt. The workspace is opened for it.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Section {}

/// The words of a prompt about a session's workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SectionDocument {
    /// The text for the model: what the workspace is, its tools, its limits, what was copied into it.
    pub text: String,
    /// The workspace's directory, as its commands know it; null where they have none.
    #[serde(default)]
    pub root: Option<String>,
}

impl Operation for Section {
    const NAME: &'static str = "section";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions/{session}/section");
    type Output = SectionDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<SectionDocument, OperationError> {
        let open = context.open().await?;
        Ok(SectionDocument { text: open.section().await?, root: open.tool_runner().workspace().root() })
    }
}
