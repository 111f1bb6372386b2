//! Mounts for an existing session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{NewMount, Operation, OperationContext, OperationError, OperationRoute};
use crate::backends::HostPath;
use crate::engine::event::MountHydrated;
use crate::tools::hydrate;

/// Copies host directories into a session's workspace if it is still empty. All or nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyMounts {
    /// The directories.
    pub mounts: Vec<NewMount>,
    /// Host directories that mounts may come from, instead of the server's. Only for clients on the unix socket, from
    /// the server's sandbox.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
}

/// The mounts that were copied.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CopiedMounts {
    /// The mounts as recorded; empty if the workspace was not empty.
    #[schemars(with = "Vec<Value>")]
    pub copied: Vec<MountHydrated>,
}

impl Operation for CopyMounts {
    const NAME: &'static str = "copy_mounts";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("sessions", "/v1/sessions/{session}/mounts", 200);
    type Output = CopiedMounts;

    async fn run(self, context: &OperationContext<'_>) -> Result<CopiedMounts, OperationError> {
        let hub = context.hub_within(self.allow_roots).await?;
        let mounts = self.mounts.into_iter().map(NewMount::spec).collect::<Result<Vec<_>, _>>()?;
        let open = context.open().await?;
        let runner = open.tool_runner();
        let copied = hydrate(runner.session(), runner.workspace().as_ref(), &mounts, &hub.options().roots).await?;
        Ok(CopiedMounts { copied })
    }
}
