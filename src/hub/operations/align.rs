//! Alignment of the calls of two sessions.

use std::ops::ControlFlow;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::{DiffOp, TextDiff};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::CallStatus;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::tools::running_calls;
use crate::view::{CallFilter, CallRow, CallRows, Position, subject};

/// Number of calls of each session that are compared.
const CALLS: usize = 10_000;
/// Time limit for an exact comparison; after that it is coarser.
const DIFF_TIME_LIMIT: Duration = Duration::from_secs(2);
const SUBJECT_MAX: usize = 200;

/// Aligns the calls of two sessions: matches calls with the same tool and parameters along their longest common
/// subsequence, with unmatched calls in between. Compares the first 10,000 calls of each.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Align {
    /// The other session, by name or id prefix; may be the same session.
    pub other: String,
    /// Only calls up to this position; the last one by default.
    pub to: Option<Position>,
    /// Only the other session's calls up to this position; the last one by default.
    pub other_to: Option<Position>,
}

/// The aligned calls of two sessions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Alignment {
    /// The rows, in the order of both sessions.
    pub rows: Vec<AlignedRow>,
    /// True if either session has more calls than were compared.
    pub more: bool,
}

/// A pair of matching calls, or an unmatched call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AlignedRow {
    /// The session's call; null if only the other session made it.
    pub left: Option<AlignedCall>,
    /// The other session's call; null if it did not make it.
    pub right: Option<AlignedCall>,
    /// True if both sessions made the call.
    pub same: bool,
    /// True if both sessions made the call, with different outcomes.
    pub result_differs: bool,
}

/// A call and its outcome.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AlignedCall {
    /// The position of its intent.
    pub call: Seq,
    /// The position of its outcome.
    pub finished: Option<Seq>,
    /// The tool.
    pub tool: String,
    /// Its command, path or pattern, in one line. Misleading characters are escaped.
    pub summary: String,
    /// `ok`, `error`, `interrupted` or `running`.
    pub status: &'static str,
    /// The exit code in its result.
    pub exit_code: Option<i64>,
    /// Its duration in microseconds.
    pub micros: Option<u64>,
}

impl Operation for Align {
    const NAME: &'static str = "align_sessions";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions/{session}/alignment");
    type Output = Alignment;

    async fn run(self, context: &OperationContext<'_>) -> Result<Alignment, OperationError> {
        let session = context.session().await?;
        let other = context.caller.session(Some(&self.other)).await?;
        reading(move || {
            let (left, right) = (rows(&session, self.to)?, rows(&other, self.other_to)?);
            let more = left.len() > CALLS || right.len() > CALLS;
            let (old, new) = (keys(&left), keys(&right));
            let diff = TextDiff::configure().timeout(DIFF_TIME_LIMIT).diff_slices(&old, &new);
            let mut found = Vec::new();
            for op in diff.ops() {
                let is_same = matches!(op, DiffOp::Equal { .. });
                let (old, new) = (op.old_range(), op.new_range());
                if is_same {
                    for (left, right) in left[old].iter().zip(&right[new]) {
                        found.push(row(Some((&session, left)), Some((&other, right))));
                    }
                    continue;
                }
                for left in &left[old] {
                    found.push(row(Some((&session, left)), None));
                }
                for right in &right[new] {
                    found.push(row(None, Some((&other, right))));
                }
            }
            Ok(Alignment { rows: found, more })
        })
        .await
    }
}

/// Returns the calls to compare, plus one if there are more.
fn rows(session: &Session, to: Option<Position>) -> Result<Vec<CallRow>, OperationError> {
    let to = to.unwrap_or(Position::Back(0)).resolve(session)?;
    let (filter, mut found) = (CallFilter::default(), Vec::new());
    CallRows::new(&filter, running_calls(session))?.with_digests().visit(session, (1, to), &mut |row| {
        found.push(row);
        if found.len() <= CALLS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

fn keys(rows: &[CallRow]) -> Vec<&str> {
    rows.iter().take(CALLS).map(|row| row.key.as_str()).collect()
}

type AlignedSide<'a> = Option<(&'a Session, &'a CallRow)>;

fn row(left: AlignedSide<'_>, right: AlignedSide<'_>) -> AlignedRow {
    let document = |side: AlignedSide<'_>| side.map(|(session, row)| aligned(session, row));
    let both = left.zip(right);
    AlignedRow {
        left: document(left),
        right: document(right),
        same: both.is_some(),
        result_differs: both.is_some_and(|((_, left), (_, right))| left.outcome != right.outcome),
    }
}

pub(super) fn aligned(session: &Session, row: &CallRow) -> AlignedCall {
    AlignedCall {
        call: row.call,
        finished: row.finished,
        tool: row.tool.to_string(),
        summary: subject(session, &row.params, SUBJECT_MAX),
        status: match row.status {
            Some(status) => status.word(),
            None if row.failed => CallStatus::Interrupted.word(),
            None => "running",
        },
        exit_code: row.exit_code,
        micros: row.finished.map(|_| row.micros),
    }
}
