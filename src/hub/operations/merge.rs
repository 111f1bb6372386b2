//! Merging a child's changes into an ancestor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_agent;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::reducers::MergeChoices;
use crate::tools::{MergeOutcome, MergeReport};

/// Merges a clone's changes since its beginning or last merge into the session that it was cloned from: files by path,
/// text by line. On a conflict nothing changes, and the conflicts are returned.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeRequest")]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The child, by name or id prefix.
    pub child: String,
    /// Paths and globs (`src`, `*.lock`, `docs/**`) where the child's side wins conflicts, also below them; `/` for
    /// all. A path or glob that matches no entry of either side is an error.
    #[serde(default)]
    pub theirs: Vec<String>,
    /// Paths and globs where the parent's side wins conflicts, also below them.
    #[serde(default)]
    pub ours: Vec<String>,
    /// Globs of additional generated files. If both sides changed one, the parent's version stays without a conflict,
    /// as for `__pycache__`, other tool caches, and paths that the parent's `.gitignore` files ignore.
    #[serde(default)]
    pub generated: Vec<String>,
    /// True to only report what would be merged.
    #[serde(default)]
    pub dry_run: bool,
    /// The agent who merges.
    pub agent: Option<String>,
}

impl Operation for Merge {
    const NAME: &'static str = "merge";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/merge", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "session_merge",
            OperationEffect::Changes,
            TooLong::Cut("session_diff shows what the child changed, session_log what was merged"),
        )
        .for_session("into", "The session to merge into: an ancestor of the child, by default its parent.")
        .hiding(&["agent"]),
    );
    type Output = MergeDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<MergeDocument, OperationError> {
        let choices = MergeChoices::of_texts(&self.ours, &self.theirs)?.with_generated(&self.generated)?;
        let agent = self.agent.as_deref().unwrap_or_default();
        check_agent(agent)?;
        let child = context.caller.session(Some(&self.child)).await?;
        let into = match (&context.session, child.origin()) {
            (Some(wanted), _) => wanted.clone(),
            (None, Some(origin)) => origin.parent.to_string(),
            (None, None) => {
                let what = format!("session {} has no parent to merge into", child.name());
                return Err(OperationError::invalid(what));
            }
        };
        let into = context.caller.open(Some(&into)).await?;
        let into = if agent.is_empty() { into } else { into.as_agent(agent) };
        let report = context.hub.merge(child.id(), &into, &choices, self.dry_run).await?;
        Ok(merged(report, into.session(), self.dry_run))
    }

    fn text(merge: &MergeDocument) -> String {
        let (report, child, into) = (&merge.report, &merge.report.child_name, &merge.into_name);
        let mut text = match report.outcome {
            MergeOutcome::Nothing => format!("{child} has no changes that {into} lacks"),
            MergeOutcome::Merged if merge.dry_run => format!("{child} could be merged into {into}:"),
            MergeOutcome::Merged => format!("{child} is merged into {into}:"),
            MergeOutcome::Conflicted => format!(
                "{child} is not merged into {into}: conflicts; choose with ours or theirs for each of these paths:"
            ),
        };
        if report.outcome == MergeOutcome::Conflicted {
            return text + &report.conflicts.iter().map(|one| format!("\n  {}", one.path.rooted())).collect::<String>();
        }
        for merged in &report.merged {
            text.push_str(&format!("\n  {} {}", merged.change, merged.entry.path.rooted()));
        }
        text
    }

    fn is_well(merge: &MergeDocument) -> bool {
        merge.report.outcome != MergeOutcome::Conflicted
    }
}

/// The outcome of a merge, done or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Merge")]
pub struct MergeDocument {
    /// The merge.
    #[serde(flatten)]
    pub report: MergeReport,
    /// The session merged into.
    #[schemars(with = "String")]
    pub into: SessionId,
    /// Its name.
    pub into_name: String,
    /// True if it was a dry run.
    pub dry_run: bool,
}

/// Returns a merge as a document.
pub fn merged(report: MergeReport, into: &Session, dry_run: bool) -> MergeDocument {
    MergeDocument { report, into: into.id(), into_name: into.name().to_owned(), dry_run }
}
