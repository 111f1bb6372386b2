//! The changes of a child, brought into a session further up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::check_agent;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::event::MergeConflict;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::MergeChoices;
use crate::tools::{MergeOutcome, MergeReport, MergedChange};

/// Merges what a clone changed since it began, or since it was merged last, into the session that it comes from: files by
/// paths, texts by lines. With a conflict nothing is changed, and the conflicts are told.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeRequest")]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The child, by name or by the beginning of its id.
    pub child: String,
    /// Paths at or below which conflicts are decided for the child's side; `/` for all.
    #[serde(default)]
    pub theirs: Vec<String>,
    /// Paths at or below which conflicts are decided for the parent's side; `/` for all.
    #[serde(default)]
    pub ours: Vec<String>,
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
        let choices = MergeChoices::of_texts(&self.ours, &self.theirs)?;
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
        let (child, into) = (&merge.child_name, &merge.into_name);
        let mut text = match merge.outcome {
            MergeOutcome::Nothing => format!("{child} has changed nothing that {into} does not have"),
            MergeOutcome::Merged if merge.dry_run => format!("{child} could be merged into {into}:"),
            MergeOutcome::Merged => format!("{child} is merged into {into}:"),
            MergeOutcome::Conflicted => format!(
                "{child} is not merged into {into}: both changed the same; choose with ours or theirs for each of these paths:"
            ),
        };
        match merge.outcome {
            MergeOutcome::Conflicted => {
                merge.conflicts.iter().for_each(|conflict| text.push_str(&format!("\n  {}", conflict.path.rooted())));
            }
            _ => {
                for merged in &merge.merged {
                    text.push_str(&format!("\n  {} {}", merged.change, merged.entry.path.rooted()));
                }
            }
        }
        text
    }

    fn is_well(merge: &MergeDocument) -> bool {
        merge.outcome != MergeOutcome::Conflicted
    }
}

/// The outcome of a merge, done or not.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Merge")]
pub struct MergeDocument {
    /// The child.
    #[schemars(with = "String")]
    pub child: SessionId,
    /// Its name.
    pub child_name: String,
    /// The position from which its changes were counted.
    pub base: Seq,
    /// The child's last position that was looked at.
    pub child_at: Seq,
    /// `nothing`, `merged` or `conflicted`.
    #[schemars(with = "String")]
    pub outcome: MergeOutcome,
    /// Its position in the history; null when nothing was recorded.
    pub seq: Option<Seq>,
    /// The changes that came, or would come: `path`, `from`, `both`, `change`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub merged: Vec<MergedChange>,
    /// The changes of both sides that differ: `path`, `kind`, `base`, `ours`, `theirs`, `resolved`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub conflicts: Vec<MergeConflict>,
    /// Paths of what could not be made again.
    #[schemars(with = "Vec<String>")]
    pub left_out: Vec<EntryPath>,
    /// Paths for which a side was chosen in vain.
    #[schemars(with = "Vec<String>")]
    pub unused: Vec<EntryPath>,
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
    let MergeReport { child, child_name, base, child_at, outcome, seq, merged, conflicts, left_out, unused } = report;
    let (into, into_name) = (into.id(), into.name().to_owned());
    MergeDocument {
        child,
        child_name,
        base,
        child_at,
        outcome,
        seq,
        merged,
        conflicts,
        left_out,
        unused,
        into,
        into_name,
        dry_run,
    }
}
