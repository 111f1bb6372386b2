//! Mounts of a session that has begun without them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{NewMount, Operation, OperationContext, OperationError, OperationRoute};
use crate::backends::HostPath;
use crate::engine::event::MountHydrated;
use crate::tools::hydrate;

/// Copies host directories into a session's workspace, if that is still empty. All or none.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyMounts {
    /// The directories.
    pub mounts: Vec<NewMount>,
    /// Directories of the host below which they may be, instead of those that the server allows. Only a client on the unix
    /// socket may name some, from the same sandbox as the server.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
}

/// The mounts that were copied.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CopiedMounts {
    /// The mounts as they are recorded; nothing if the workspace was not empty.
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
