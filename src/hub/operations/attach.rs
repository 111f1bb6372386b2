//! Attached directories: agents that work there report to a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::backends::HostPath;
use crate::engine::event::Node;
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;
use crate::hub::attached::{AttachDirectory, AttachedDirectory, all_attached};
use crate::hub::hook_message::{HookMessage, ReportOutcome};
use crate::hub::{HubError, IgnoredLeftOut};
use crate::reducers::VirtualFileSystem;

/// An attached directory, with a summary of its recorded files.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AttachedDocument {
    /// The directory.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The number of recorded files.
    pub files: u64,
    /// The number of recorded files with borrowed contents, which git has.
    pub borrowed: u64,
    /// Files recorded only by digest, since they are large or look like secrets.
    #[schemars(with = "Vec<String>")]
    pub not_kept: Vec<EntryPath>,
    /// Ignored entries that exceed a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredLeftOut>,
    /// True if small ignored files are recorded.
    pub keep_ignored: bool,
    /// True if the contents of files that look like secrets are stored, on this machine only.
    pub keep_secrets: bool,
    /// Limit for copies of contents that exist only in git, in bytes; 0 disables them.
    pub own_copy: u64,
}

impl Operation for AttachDirectory {
    const NAME: &'static str = "attach_directory";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("attached", "/v1/attached", 200);
    type Output = AttachedDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<AttachedDocument, OperationError> {
        context.caller.may_name_roots()?;
        let attached = context.hub.attach(self).await?;
        // A different clone may be at the same path by now.
        context.hub.repeat_own_copies(&attached);
        let sessions = context.hub.sessions().clone();
        reading(move || {
            let session = sessions.session(attached.session)?;
            let tree = VirtualFileSystem::of(&session.state()?);
            let (mut files, mut borrowed, mut not_kept) = (0, 0, Vec::new());
            for (path, entry) in tree.iter() {
                let Node::File { content, incomplete, .. } = &entry.node else { continue };
                files += 1;
                borrowed += u64::from(content.git_blob().is_some());
                if *incomplete {
                    not_kept.push(path.clone());
                }
            }
            let ignored = IgnoredLeftOut::of(&attached, &tree);
            let AttachedDirectory { directory, keep_ignored, keep_secrets, own_copy, .. } = attached;
            let (session, name) = (session.id(), session.name().to_owned());
            Ok(AttachedDocument {
                directory,
                session,
                name,
                files,
                borrowed,
                not_kept,
                ignored,
                keep_ignored,
                keep_secrets,
                own_copy,
            })
        })
        .await
    }
}

/// Detaches a directory. `purge` removes its session too. Only for clients on the unix socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachDirectory {
    /// The directory, or a path in it.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// True to also remove its session and the sessions of its other worktrees.
    #[serde(default)]
    pub purge: bool,
}

impl Operation for DetachDirectory {
    const NAME: &'static str = "detach_directory";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("attached", "/v1/attached/detach", 200);
    type Output = AttachedDirectory;

    async fn run(self, context: &OperationContext<'_>) -> Result<AttachedDirectory, OperationError> {
        context.caller.may_name_roots()?;
        let shown = self.directory.0.display().to_string();
        let none = || OperationError::not_found(format!("no directory is attached at {shown}"));
        context.hub.detach(self.directory.0, self.purge).await?.ok_or_else(none)
    }
}

/// Lists the attached directories. Only for clients on the unix socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAttached {}

impl Operation for ListAttached {
    const NAME: &'static str = "list_attached";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("attached", "/v1/attached");
    type Output = Vec<AttachedDirectory>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<AttachedDirectory>, OperationError> {
        context.caller.may_name_roots()?;
        let home = context.hub.options().home.clone();
        let failed = |error: std::io::Error| {
            let reason = format!("can't read the list of attached directories: {error}");
            HubError::from(crate::backends::BackendError { backend: "host", reason })
        };
        reading(move || Ok(all_attached(&home).map_err(failed)?)).await
    }
}

/// The outcome of a report.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReportDocument {
    /// The outcome.
    pub outcome: ReportOutcome,
}

impl Operation for HookMessage {
    const NAME: &'static str = "report_hook";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("attached", "/v1/hooks", 200);
    type Output = ReportDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<ReportDocument, OperationError> {
        context.caller.may_name_roots()?;
        Ok(ReportDocument { outcome: context.hub.report(self).await? })
    }
}
