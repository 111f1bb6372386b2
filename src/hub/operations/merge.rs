//! Merging a child's changes into an ancestor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong, check_agent,
    reading, request_id,
};
use crate::engine::event::{MergeConflict, Node};
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{ConflictHunk, ConflictSide, MergeChoices, conflict_hunks};
use crate::tools::{MergeOutcome, MergeReport};

/// Limit for the lines in conflict of a result, in bytes.
const HUNKS_BYTES: usize = 4 << 20;

/// Merges a clone's changes since its beginning or last merge into the session that it was cloned from: files by path,
/// text by line. On a conflict nothing changes, and the conflicts are returned.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeRequest")]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The child, by name or id prefix.
    pub child: String,
    /// Paths and globs (`src`, `*.lock`, `docs/**`) where the child's side wins conflicts, also below them; `/` for
    /// all. `PATH:2` is the second hunk of a text file alone. A path or glob that matches no entry of either side is an
    /// error.
    #[serde(default)]
    pub theirs: Vec<String>,
    /// Paths, globs and hunks where the parent's side wins conflicts, also below them.
    #[serde(default)]
    pub ours: Vec<String>,
    /// Globs of additional generated files. If both sides changed one, the parent's version stays without a conflict,
    /// as for `__pycache__`, other tool caches, and paths that the parent's `.gitignore` files ignore.
    #[serde(default)]
    pub generated: Vec<String>,
    /// True to only report what would be merged.
    #[serde(default)]
    pub dry_run: bool,
    /// True to return the lines in conflict, hunk by hunk.
    #[serde(default)]
    pub patch: bool,
    /// The agent who merges.
    pub agent: Option<String>,
    /// An id for retries, 1 to 200 bytes. A second request with the same id returns the recorded merge.
    pub call_id: Option<String>,
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
        .hiding(&["agent", "patch", "call_id"]),
    );
    type Output = MergeDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<MergeDocument, OperationError> {
        let choices = MergeChoices::of_texts(&self.ours, &self.theirs)?.with_generated(&self.generated)?;
        let agent = self.agent.as_deref().unwrap_or_default();
        check_agent(agent)?;
        let id = request_id(self.call_id.as_deref())?;
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
        let report = context.hub.merge(child.id(), &into, &choices, (self.dry_run, id)).await?;
        let session = into.session().clone();
        reading(move || {
            let mut document = merged(report, &session, self.dry_run);
            if self.patch {
                document.hunks = Some(hunks_in_conflict(&session, &document.report.conflicts)?);
            }
            Ok(document)
        })
        .await
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
    /// The lines in conflict, with `patch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<Vec<HunkDocument>>,
}

/// Lines that both sides changed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConflictHunk")]
pub struct HunkDocument {
    /// The path of the file.
    #[schemars(with = "String")]
    pub path: EntryPath,
    /// The number of the hunk in the file, from 1.
    pub hunk: usize,
    /// The parent's lines.
    pub ours: HunkSide,
    /// The lines before both changes.
    pub base: HunkSide,
    /// The child's lines.
    pub theirs: HunkSide,
}

/// Lines of one side of a conflict.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HunkSide {
    /// The number of the first line, from 1; if there are no lines, they would begin there.
    pub first: usize,
    /// The lines, with their ends.
    pub text: String,
}

/// Returns the lines in conflict of text files, hunk by hunk, up to a total size.
pub fn hunks_in_conflict(parent: &Session, conflicts: &[MergeConflict]) -> Result<Vec<HunkDocument>, SessionError> {
    let text = |node: &Option<Node>| match node {
        None => Ok(Some(Vec::new())),
        Some(Node::File { content, text: true, incomplete: false, .. }) => {
            parent.content(content).map(|bytes| Some(bytes.to_vec()))
        }
        Some(_) => Ok(None),
    };
    let side =
        |side: ConflictSide| HunkSide { first: side.first, text: String::from_utf8_lossy(&side.text).into_owned() };
    let (mut hunks, mut bytes) = (Vec::new(), 0);
    for conflict in conflicts {
        let sides = [text(&conflict.base)?, text(&conflict.ours)?, text(&conflict.theirs)?];
        let [Some(base), Some(ours), Some(theirs)] = sides else { continue };
        for (number, ConflictHunk { base, ours, theirs }) in (1..).zip(conflict_hunks(&base, &ours, &theirs)) {
            bytes += base.text.len() + ours.text.len() + theirs.text.len();
            if bytes > HUNKS_BYTES {
                return Ok(hunks);
            }
            let (path, base, ours, theirs) = (conflict.path.clone(), side(base), side(ours), side(theirs));
            hunks.push(HunkDocument { path, hunk: number, ours, base, theirs });
        }
    }
    Ok(hunks)
}

/// Returns a merge as a document.
pub fn merged(report: MergeReport, into: &Session, dry_run: bool) -> MergeDocument {
    MergeDocument { report, into: into.id(), into_name: into.name().to_owned(), dry_run, hunks: None }
}
