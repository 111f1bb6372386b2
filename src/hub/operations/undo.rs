//! Undoing calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effects::effects_after;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{check_agent, reading};
use crate::engine::clock::Timestamp;
use crate::engine::event::UNDO_TOOL;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, EffectEntry, GitWorktree};
use crate::tools::{UndoLeft, UndoOptions, UndoPassed, UndoReport, UndoSubject};
use crate::view::{Call, Position, call_at, subject};

/// Undoes file changes: of a call, a run, an undo, all calls after a position, or external changes. Without
/// a choice it undoes the latest call that is not undone yet, so that repeated undos go back call by call. Calls that
/// can't be undone are skipped and listed. Later changes by others stay, even in the same file; changes that can't be
/// undone are listed with reasons. An undo is itself a call in the history, and `redo` reverts it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "UndoRequest")]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The call.
    pub call: Option<Seq>,
    /// The run, by its agent's id for it, a prefix of that, or `last`.
    pub run: Option<String>,
    /// Undoes all calls after this position; with `paths`, restores their entries as of this position.
    pub to: Option<Position>,
    /// External changes: `true` for the latest, or a position among them.
    pub external: Option<ExternalChange>,
    /// True to undo the latest undo.
    #[serde(default)]
    pub redo: bool,
    /// Paths to restore as of `to`; directories include everything below them. Newer entries stay.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub paths: Vec<EntryPath>,
    /// True to restore earlier entries even where others have since changed the same place, or may have. A redo
    /// restores the present entries.
    #[serde(default)]
    pub overwrite: bool,
    /// True to also remove entries that can't be restored later, since their contents were not stored.
    #[serde(default)]
    pub force: bool,
    /// True to only report what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// The last position that the caller has seen. If files have changed after it, nothing is done.
    pub seen: Option<Seq>,
    /// The agent who undoes; none by default.
    pub agent: Option<String>,
}

/// A choice of external changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ExternalChange {
    /// The latest, if true.
    Latest(bool),
    /// The changes recorded at a position.
    At(Seq),
}

impl Undo {
    /// Resolves the subject of the undo in a session.
    async fn subject(&self, session: &Session) -> Result<UndoSubject, OperationError> {
        let to = match self.to.clone() {
            Some(to) => {
                let session = session.clone();
                Some(reading(move || Ok(to.resolve(&session)?)).await?)
            }
            None => None,
        };
        if !self.paths.is_empty() && to.is_none() {
            return Err(OperationError::invalid("paths need `to`, the position to restore them from"));
        }
        let external = match self.external {
            None | Some(ExternalChange::Latest(false)) => None,
            Some(ExternalChange::Latest(true)) => Some(UndoSubject::External(None)),
            Some(ExternalChange::At(at)) => Some(UndoSubject::External(Some(at))),
        };
        let paths = self.paths.clone();
        let chosen = [
            self.call.map(UndoSubject::Call),
            self.run.clone().map(UndoSubject::Run),
            to.map(|at| if paths.is_empty() { UndoSubject::After(at) } else { UndoSubject::Paths { paths, at } }),
            external,
            self.redo.then_some(UndoSubject::Redo),
        ];
        let mut chosen = chosen.into_iter().flatten();
        match (chosen.next(), chosen.next()) {
            (Some(subject), None) => Ok(subject),
            (None, _) => Ok(UndoSubject::Last),
            (Some(_), Some(_)) => Err(OperationError::invalid("give one of call, run, to, external and redo")),
        }
    }
}

impl Operation for Undo {
    const NAME: &'static str = "undo";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/undo", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new("session_undo", OperationEffect::Changes, TooLong::Cut("session_diff shows the changes"))
            .hiding(&["agent"]),
    );
    type Output = UndoDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<UndoDocument, OperationError> {
        let open = context.open().await?;
        let session = open.session().clone();
        let subject = self.subject(&session).await?;
        let Self { overwrite, force, dry_run, seen, agent, .. } = self;
        let mut runner = open.tool_runner().clone();
        if let Some(agent) = agent {
            check_agent(&agent)?;
            runner = runner.as_agent(agent);
        }
        let report = runner.undo(subject, UndoOptions { overwrite, force, dry_run, seen }).await?;
        reading(move || UndoDocument::of(&session, report, dry_run)).await
    }

    fn text(undone: &UndoDocument) -> String {
        let (count, left) = (undone.changes.len(), undone.left.len());
        let done = match undone.call {
            Some(call) => format!("undone: {count} entries changed, as call {call}; undo that call to revert it"),
            None if undone.dry_run => format!("{count} entries would change"),
            None => "nothing was undone".to_owned(),
        };
        let stay = match left {
            0 => String::new(),
            _ => format!("; {left} entries stay, each with its reason in `left`"),
        };
        let apart = match undone.apart.len() {
            0 => String::new(),
            count => format!("; {count} hard links are separate files now, see `apart`"),
        };
        let passed: Vec<String> = undone.passed.iter().map(|passed| passed.call.call.to_string()).collect();
        let passed = match passed.len() {
            0 => String::new(),
            _ => format!("; later calls can't be undone: {}", passed.join(", ")),
        };
        format!("{done}{stay}{apart}{passed}")
    }
}

/// The changes of an undo, done or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Undone")]
pub struct UndoDocument {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// True if it was a dry run.
    pub dry_run: bool,
    /// The undone calls, in order.
    pub calls: Vec<Seq>,
    /// The latest of these calls; for an undo, the call that it undid. Null if no call was undone.
    pub latest: Option<UndoneCall>,
    /// True if an undo of `latest` is undone, so that `latest` is redone.
    pub redoes: bool,
    /// Undos of only these calls, and undos of those, which are undone along with them.
    pub undos: Vec<Seq>,
    /// The undone external changes, each by the position of its first event.
    pub external: Vec<Seq>,
    /// The last position before the undo.
    pub seen: Seq,
    /// The call that records the undo; null if nothing was done.
    pub call: Option<Seq>,
    /// The file changes, without patches.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<Change>,
    /// Changes that stay, by path, each with its `reason`: `changed_since`, `shared`, `doubtful`,
    /// `not_kept`, `not_recoverable`, `not_made` or `not_empty`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub left: Vec<UndoLeft>,
    /// Later calls that an undo without a choice skipped, the latest first: none of their changes can be undone.
    #[serde(default)]
    pub passed: Vec<PassedCall>,
    /// Paths of hard links that became separate files: the file system can't link them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub apart: Vec<EntryPath>,
    /// The state of the git worktree, if it differs from before the calls; otherwise null.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub git: Option<GitWorktree>,
    /// Effects outside of the workspace that are not taken back.
    #[serde(default)]
    pub effects: Vec<EffectEntry>,
}

/// A call that an undo undoes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UndoneCall {
    /// The position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: String,
    /// Its command, path or pattern, in one line.
    pub subject: String,
    /// The agent that made it; empty if unnamed.
    pub agent: String,
    /// Its start, in UTC.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
}

/// A call that can't be undone now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PassedCall {
    /// The call.
    #[serde(flatten)]
    pub call: UndoneCall,
    /// Its changes, by path, each with its `reason` as in the undo's `left`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub left: Vec<UndoLeft>,
}

/// Limit for a call's subject, in characters.
const SUBJECT_MAX: usize = 200;

/// Limit for following undos of undos to the original call.
const DEPTH_MAX: usize = 64;

impl UndoneCall {
    /// Reads a call. For an undo, returns the call that it finally refers to, with the number of undos in between.
    fn read(session: &Session, call: Seq) -> Result<Option<(Self, usize)>, OperationError> {
        let mut next = call;
        for depth in 0..DEPTH_MAX {
            let Some((call, _)) = call_at(session, next)? else { return Ok(None) };
            let taken_back = call.end.as_ref().and_then(|end| end.result["calls"].as_array()?.last()?.as_u64());
            if let Some(earlier) = taken_back.filter(|earlier| call.tool == UNDO_TOOL && *earlier < next) {
                next = earlier;
                continue;
            }
            let Call { call, tool, agent, started_at, params, .. } = call;
            let subject = subject(session, &params, SUBJECT_MAX);
            return Ok(Some((Self { call, tool, subject, agent: agent.to_string(), started_at }, depth)));
        }
        Ok(None)
    }
}

impl UndoDocument {
    fn of(session: &Session, report: UndoReport, dry_run: bool) -> Result<Self, OperationError> {
        let UndoReport { calls, undos, external, seen, call, changes, left, passed, apart, git } = report;
        let latest = calls.last().map(|call| UndoneCall::read(session, *call)).transpose()?.flatten();
        let redoes = latest.as_ref().is_some_and(|(_, undos)| undos % 2 == 1);
        let passed = passed.into_iter().map(|UndoPassed { call, left }| {
            Ok(UndoneCall::read(session, call)?.map(|(call, _)| PassedCall { call, left }))
        });
        let passed = passed.filter_map(Result::transpose).collect::<Result<_, OperationError>>()?;
        let mut effects = effects_after(session, 0)?;
        effects.retain(|effect| effect.call.is_some_and(|call| calls.contains(&call)));
        let (session, latest) = (session.id(), latest.map(|(latest, _)| latest));
        Ok(Self {
            session,
            dry_run,
            calls,
            latest,
            redoes,
            undos,
            external,
            seen,
            call,
            changes,
            left,
            passed,
            apart,
            git,
            effects,
        })
    }
}
