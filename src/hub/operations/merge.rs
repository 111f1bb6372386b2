//! The changes of a child, brought into a session further up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_agent;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::reducers::MergeChoices;
use crate::tools::{MergeOutcome, MergeReport};

/// Merges what a clone changed since it began, or since it was merged last, into the session that it comes from: files by
/// paths, texts by lines. With a conflict nothing is changed, and the conflicts are told.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeRequest")]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The child, by name or by the beginning of its id.
    pub child: String,
    /// Paths and globs (`src`, `*.lock`, `docs/**`) at or below which conflicts are decided for the child's side; `/` for
    /// all. One that fits no entry of either side is an error.
    #[serde(default)]
    pub theirs: Vec<String>,
    /// Paths and globs at or below which conflicts are decided for the parent's side.
    #[serde(default)]
    pub ours: Vec<String>,
    /// Globs of more generated files. Where both sides changed one, the parent's stays without a conflict, as for
    /// `__pycache__`, other caches of tools, and what the parent's `.gitignore` files ignore.
    #[serde(default)]
    pub generated: Vec<String>,
    /// Only tells what would be merged.
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
        .for_session("into", "The session to merge into: the child's parent, which is the default, or one further up.")
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
                let what = format!("session {} began by itself: it has no parent to be merged into", child.name());
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
            MergeOutcome::Nothing => format!("{child} has changed nothing that {into} does not have"),
            MergeOutcome::Merged if merge.dry_run => format!("{child} could be merged into {into}:"),
            MergeOutcome::Merged => format!("{child} is merged into {into}:"),
            MergeOutcome::Conflicted => format!(
                "{child} is not merged into {into}: both changed the same; choose with ours or theirs for each of these paths:"
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
    /// The session that it was merged into.
    #[schemars(with = "String")]
    pub into: SessionId,
    /// Its name.
    pub into_name: String,
    /// True where nothing was to be done.
    pub dry_run: bool,
}

/// Returns a merge as a document.
pub fn merged(report: MergeReport, into: &Session, dry_run: bool) -> MergeDocument {
    MergeDocument { report, into: into.id(), into_name: into.name().to_owned(), dry_run }
}
