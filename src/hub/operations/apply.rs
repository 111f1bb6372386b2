//! Merging a session's changes into the directory that it started from.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{MergeDocument, merged};
use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, reading};
use crate::backends::{HostOptions, HostPath, WorkspaceSpec};
use crate::engine::advice::Advice;
use crate::engine::session::Session;
use crate::reducers::MergeChoices;

/// Merges a session's changes into the directory that it started from, with a three-way merge against the directory's
/// current state. All or nothing: on a conflict nothing changes, and the conflicts are returned. Theirs is the
/// session's side, ours the directory's.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ApplyRequest")]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Another directory: existing, not empty, and below a directory that the server allows.
    #[schemars(with = "Option<String>")]
    pub to: Option<HostPath>,
    /// Paths and globs where the session's side wins conflicts, also below them; `/` for all. A path or glob that
    /// matches no entry of either side is an error.
    #[serde(default)]
    pub take: Vec<String>,
    /// Paths and globs where the directory's side wins conflicts, also below them.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Globs of additional generated files. If both sides changed one, the directory's version stays, as in `merge`.
    #[serde(default)]
    pub generated: Vec<String>,
    /// True to only report what would be done. The directory's current state is recorded nevertheless.
    #[serde(default)]
    pub dry_run: bool,
    /// The agent who applies the changes.
    pub agent: Option<String>,
    /// Host directories that may contain `to`, instead of the server's. Only for clients on the unix socket, from the
    /// server's sandbox.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
}

impl Operation for Apply {
    const NAME: &'static str = "apply";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/apply", 200);
    type Output = ApplyDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<ApplyDocument, OperationError> {
        let choices = MergeChoices::of_texts(&self.keep, &self.take)?.with_generated(&self.generated)?;
        let agent = self.agent.as_deref().unwrap_or_default();
        check_agent(agent)?;
        let hub = context.hub_within(self.allow_roots).await?;
        let session = context.session().await?;
        let to = match self.to {
            None => None,
            Some(HostPath(to)) => {
                let (roots, place) = (hub.options().roots.clone(), hub.options().home.clone());
                Some(reading(move || checked(&roots.place_of(&to)?, &place)).await?)
            }
        };
        check_elsewhere(&session, to.as_deref())?;
        let home = hub.home_of(&session, to.as_deref()).await?;
        let home = if agent.is_empty() { home } else { home.as_agent(agent) };
        let report = hub.apply(&session, &home, &choices, self.dry_run).await?;
        let directory =
            WorkspaceSpec::directory_of(home.session().started()).unwrap_or_default().to_string_lossy().into_owned();
        Ok(ApplyDocument { merge: merged(report, home.session(), self.dry_run), directory })
    }
}

/// The outcome of applying changes to a directory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Applied")]
pub struct ApplyDocument {
    /// The merge into the session that works in the directory: the child is the session, ours is the directory's side.
    #[serde(flatten)]
    pub merge: MergeDocument,
    /// The directory.
    pub directory: String,
}

fn check_elsewhere(session: &Session, to: Option<&Path>) -> Result<(), OperationError> {
    match WorkspaceSpec::directory_of(session.started()) {
        Some(own) if to.is_none_or(|to| to == own) => {
            let (name, own) = (session.name(), own.display());
            let what = format!("session {name} works in {own} itself: its changes are already there");
            Err(OperationError::invalid(what))
        }
        _ => Ok(()),
    }
}

/// Refuses anything but a directory that can be merged into.
fn checked(to: &Path, home: &Path) -> Result<PathBuf, OperationError> {
    let shown = to.display();
    WorkspaceSpec::Host(HostOptions { directory: Some(to.to_owned()), ..HostOptions::default() })
        .check_new_directory(home)?;
    if !to.is_dir() {
        return Err(OperationError::not_found(format!("{shown} is not a directory")));
    }
    #[expect(clippy::disallowed_methods, reason = "only checks for entries to merge into")]
    let mut entries =
        std::fs::read_dir(to).map_err(|error| OperationError::invalid(format!("can't read {shown}: {error}")))?;
    match entries.next() {
        None => Err(OperationError::invalid(format!("{shown} is empty, so there is nothing to merge into"))
            .with_advice(Advice::WriteAllFiles)),
        Some(_) => Ok(to.to_owned()),
    }
}
