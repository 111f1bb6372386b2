//! The prompt section about a workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute};

/// Returns the prompt section about a session's workspace. Opens the workspace.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Section {}

/// The prompt section about a session's workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SectionDocument {
    /// The text for the model: the workspace's kind, tools, limits and mounts.
    pub text: String,
    /// The workspace's directory as its commands see it; null without a directory.
    #[serde(default)]
    pub root: Option<String>,
}

impl Operation for Section {
    const NAME: &'static str = "section";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions/{session}/section");
    type Output = SectionDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<SectionDocument, OperationError> {
        let open = context.open().await?;
        Ok(SectionDocument { text: open.section(None).await?, root: open.tool_runner().workspace().root() })
    }
}
