//! Mounts: the files of a session as a read-only directory of this machine.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, OperationContext, OperationError, OperationRoute, check_sandbox, reading};
use crate::engine::session::Session;
use crate::fuse::{FuseError, MountDocument, MountRequest, mounts, unmount};
use crate::hub::Hub;
use crate::view::Position;

/// Mounts the session's files as a read-only directory of the server's machine, which the server chooses. Equal mounts
/// share one directory. The mount ends with the session or an unmount.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSession {
    /// The position; by default the mount follows the session.
    pub at: Option<Position>,
    /// True for the hidden directories `.at`, `.call` and `.sessions` in its root, which have all positions, calls and
    /// sessions.
    #[serde(default)]
    pub all: bool,
}

impl Operation for MountSession {
    const NAME: &'static str = "mount_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("files", "/v1/sessions/{session}/mounted", 200);
    type Output = MountDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<MountDocument, OperationError> {
        check_sandbox(&context.caller.rules().caller)?;
        let (hub, session) = (context.hub.clone(), context.session().await?);
        reading(move || mounted(&hub, &session, self.at, self.all)).await
    }
}

/// Mounts a session's files with the hidden directories, and returns the directory. It blocks.
pub fn mounted_directory(hub: &Hub, session: &Session, at: Option<Position>) -> Result<PathBuf, OperationError> {
    Ok(mounted(hub, session, at, true)?.directory)
}

fn mounted(hub: &Hub, session: &Session, at: Option<Position>, all: bool) -> Result<MountDocument, OperationError> {
    let helper = hub.options().mounts.as_ref();
    let helper =
        helper.ok_or_else(|| OperationError::refused("this server was started without a program for mounts"))?;
    let at = at.map(|at| at.resolve(session)).transpose()?;
    Ok(helper.start(session, &MountRequest { at, all, directory: None })?)
}

/// Lists the mounts of the session.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMounts {}

impl Operation for ListMounts {
    const NAME: &'static str = "list_mounts";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("files", "/v1/sessions/{session}/mounted");
    type Output = Vec<MountDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<MountDocument>, OperationError> {
        let (hub, session) = (context.hub.clone(), context.session().await?);
        reading(move || mounts_of(&hub, &session)).await
    }
}

fn mounts_of(hub: &Hub, session: &Session) -> Result<Vec<MountDocument>, OperationError> {
    let mut all = mounts(&hub.options().home)?;
    all.retain(|mount| mount.session == session.id());
    Ok(all)
}

/// Unmounts a mount of the session.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unmount {
    /// The directory of the mount.
    pub directory: String,
    /// True to unmount it even if processes use it; they keep their open files.
    #[serde(default)]
    pub lazy: bool,
}

impl Operation for Unmount {
    const NAME: &'static str = "unmount";
    const ROUTE: Option<OperationRoute> = OperationRoute::delete("files", "/v1/sessions/{session}/mounted", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        check_sandbox(&context.caller.rules().caller)?;
        let (hub, session) = (context.hub.clone(), context.session().await?);
        reading(move || {
            let all = mounts_of(&hub, &session)?;
            let mount = all.into_iter().find(|mount| mount.directory.as_os_str() == self.directory.as_str());
            let mount = mount.ok_or_else(|| FuseError::NotMounted(self.directory.into()))?;
            Ok(unmount(&mount.directory, self.lazy)?)
        })
        .await
    }
}
