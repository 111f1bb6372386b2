//! `session_merge`: what a child changed, brought into its parent.

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::shorten::Shortened;
use super::{OperationContext, OperationEffect, OperationError, OperationOutcome};
use crate::reducers::MergeChoices;
use crate::tools::{MergeOutcome, MergeReport};
use crate::view::{self, MergeDocument};

pub(super) const NAME: &str = "session_merge";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeParams {
    /// The child, by name or by the beginning of its id.
    child: String,
    /// The session to merge into: the child's parent, which is the default, or one further up.
    into: Option<String>,
    /// Paths at or below which conflicts are decided for the child's side; "/" for all.
    #[serde(default)]
    theirs: Vec<String>,
    /// Paths at or below which conflicts are decided for the parent's side; "/" for all.
    #[serde(default)]
    ours: Vec<String>,
    /// Only tells what would be merged.
    #[serde(default)]
    dry_run: bool,
}

pub(super) fn tool() -> Tool {
    let words = "Merges what a clone changed since it began, or since it was merged last, into the session that it comes \
                 from: files by paths, texts by lines. With a conflict nothing is changed, and the conflicts are told.";
    super::tool::<MergeParams, Shortened<MergeDocument>>(NAME, words, OperationEffect::Changes)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: MergeParams,
) -> Result<OperationOutcome, OperationError> {
    let child = request.session(Some(&params.child)).await?;
    let choices = MergeChoices::of_texts(&params.ours, &params.theirs)?;
    let into = match (&params.into, child.origin()) {
        (Some(wanted), _) => wanted.clone(),
        (None, Some(origin)) => origin.parent.to_string(),
        (None, None) => {
            let what = format!("session {} began by itself: it has no parent to be merged into", child.name());
            return Err(OperationError(what));
        }
    };
    let into = request.client.open(Some(&into), request.context).await?;
    let report = request.client.hub().merge(child.id(), &into, &choices, params.dry_run).await?;
    let document = view::merged(&report, into.session(), params.dry_run);
    let mut done = OperationOutcome::new(words(&report, into.session().name(), params.dry_run), &document)?;
    done.is_well = report.outcome != MergeOutcome::Conflicted;
    Ok(done.shortened("session_diff shows what the child changed, session_log what was merged"))
}

fn words(report: &MergeReport, into: &str, dry_run: bool) -> String {
    let child = &report.child_name;
    let mut text = match report.outcome {
        MergeOutcome::Nothing => format!("{child} has changed nothing that {into} does not have"),
        MergeOutcome::Merged if dry_run => format!("{child} could be merged into {into}:"),
        MergeOutcome::Merged => format!("{child} is merged into {into}:"),
        MergeOutcome::Conflicted => format!(
            "{child} is not merged into {into}: both changed the same; choose with ours or theirs for each of these paths:"
        ),
    };
    match report.outcome {
        MergeOutcome::Conflicted => {
            report.conflicts.iter().for_each(|conflict| text.push_str(&format!("\n  {}", conflict.path.rooted())));
        }
        _ => {
            for merged in &report.merged {
                text.push_str(&format!("\n  {} {}", merged.change, merged.entry.path.rooted()));
            }
        }
    }
    text
}
