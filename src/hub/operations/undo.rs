//! Undo of calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{check_agent, reading};
use crate::engine::event::MergeConflict;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::reducers::{Change, GitWorktree};
use crate::tools::{UndoOptions, UndoReport, UndoSubject};
use crate::view::Position;

/// Takes back what calls changed in the files: those of one call, of an agent's run, or all after a position. What others
/// changed since stays, also in the same file, and so does all that was there before the session. The history goes on: an
/// undo is a call, and is undone as one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "UndoRequest")]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The call; without any of the three the latest one that changed files.
    pub call: Option<Seq>,
    /// The run, by the id that its agent gives it or the beginning of that, or `last`.
    pub run: Option<String>,
    /// The position after which all calls are undone.
    pub to: Option<Position>,
    /// Undoes the rest where something can't be undone; that stays as it is.
    #[serde(default)]
    pub force: bool,
    /// Only tells what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// The position up to which the caller has seen the history: where files have changed after it, nothing is done.
    pub seen: Option<Seq>,
    /// The one who undoes; none by default.
    pub agent: Option<String>,
}

impl Operation for Undo {
    const NAME: &'static str = "undo";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/undo", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "session_undo",
            OperationEffect::Changes,
            TooLong::Cut("session_diff shows what changed where"),
        )
        .hiding(&["agent"]),
    );
    type Output = UndoDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<UndoDocument, OperationError> {
        let Self { call, run, to, force, dry_run, seen, agent } = self;
        let open = context.open().await?;
        let session = open.session().clone();
        let subject = match (call, run, to) {
            (None, None, None) => UndoSubject::Last,
            (Some(call), None, None) => UndoSubject::Call(call),
            (None, Some(run), None) => UndoSubject::Run(run),
            (None, None, Some(to)) => UndoSubject::After(
                reading({
                    let session = session.clone();
                    move || Ok(to.resolve(&session)?)
                })
                .await?,
            ),
            _ => return Err(OperationError::invalid("give one of call, run and to")),
        };
        let mut runner = open.tool_runner().clone();
        if let Some(agent) = agent {
            check_agent(&agent)?;
            runner = runner.as_agent(agent);
        }
        let report = runner.undo(subject, UndoOptions { force, dry_run, seen }).await?;
        Ok(UndoDocument::of(session.id(), report, dry_run))
    }

    fn text(undone: &UndoDocument) -> String {
        let count = undone.changes.len();
        match undone.call {
            Some(call) => format!("undone: {count} entries changed, as call {call}, which an undo takes back"),
            None => format!("{count} entries would change"),
        }
    }
}

/// The changes of an undo, done or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Undone")]
pub struct UndoDocument {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// True where nothing was to be done.
    pub dry_run: bool,
    /// The calls whose changes it takes back, in order.
    pub calls: Vec<Seq>,
    /// The last position before it.
    pub seen: Seq,
    /// The call as which it is recorded; null where nothing was done.
    pub call: Option<Seq>,
    /// The changes of files, without patches.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<Change>,
    /// Changes that others made at the same places. They stay.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub conflicts: Vec<MergeConflict>,
    /// Entries that were there before the session, and that would be removed. They stay.
    #[schemars(with = "Vec<String>")]
    pub earlier: Vec<EntryPath>,
    /// Entries whose contents before the calls were not kept. They stay as they are.
    #[schemars(with = "Vec<String>")]
    pub not_kept: Vec<EntryPath>,
    /// Changes that several calls may have made, not all of which are undone. They stay.
    #[schemars(with = "Vec<String>")]
    pub shared: Vec<EntryPath>,
    /// The place of the git worktree, where it is another one than before the calls; else null.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub git: Option<GitWorktree>,
}

impl UndoDocument {
    fn of(session: SessionId, report: UndoReport, dry_run: bool) -> Self {
        let UndoReport { calls, seen, call, changes, conflicts, earlier, not_kept, shared, git } = report;
        Self { session, dry_run, calls, seen, call, changes, conflicts, earlier, not_kept, shared, git }
    }

    /// Returns true if all that the calls changed is, or would be, taken back.
    pub fn is_whole(&self) -> bool {
        self.conflicts.is_empty() && self.earlier.is_empty() && self.not_kept.is_empty() && self.shared.is_empty()
    }
}
