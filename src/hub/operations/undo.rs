//! Undo of calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{check_agent, reading};
use crate::engine::clock::Timestamp;
use crate::engine::event::UNDO_TOOL;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, GitWorktree};
use crate::tools::{UndoLeft, UndoOptions, UndoPassed, UndoReport, UndoSubject};
use crate::view::{Call, Position, call_at, subject};

/// Takes back changes of files: those of one call, of an agent's run, of all calls after a position, those from outside of
/// any call, or those of an undo. Without a choice it takes the latest call that is not undone, and the next time the call
/// before. It passes over calls that it can't undo, and names them. What others changed since stays, also in the same file;
/// what can't be taken back is listed with its reason. The history grows: an undo is a call, and `redo` takes it back.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "UndoRequest")]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The call.
    pub call: Option<Seq>,
    /// The run, by the id that its agent gives it or the beginning of that, or `last`.
    pub run: Option<String>,
    /// The position after which all calls are undone; with `paths` the one whose entries they get.
    pub to: Option<Position>,
    /// Changes from outside of any call: `true` for the latest, or a position in them.
    pub external: Option<ExternalChange>,
    /// Takes back the latest undo.
    #[serde(default)]
    pub redo: bool,
    /// Paths to restore as of `to`, directories with everything below them. Newer entries stay.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub paths: Vec<EntryPath>,
    /// Gives paths their entries before also where others changed the same place since, or may have changed it. A redo
    /// brings the present ones back.
    #[serde(default)]
    pub overwrite: bool,
    /// Removes also what nothing could bring back, as its contents were not kept.
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

/// Changes from outside of any call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ExternalChange {
    /// The latest, for true.
    Latest(bool),
    /// Those recorded at a position.
    At(Seq),
}

impl Undo {
    /// Returns what is meant, with positions of that session.
    async fn subject(&self, session: &Session) -> Result<UndoSubject, OperationError> {
        let to = match self.to.clone() {
            Some(to) => {
                let session = session.clone();
                Some(reading(move || Ok(to.resolve(&session)?)).await?)
            }
            None => None,
        };
        if !self.paths.is_empty() && to.is_none() {
            return Err(OperationError::invalid("paths need `to`, the position as of which they are restored"));
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
        OperationTool::new(
            "session_undo",
            OperationEffect::Changes,
            TooLong::Cut("session_diff shows what changed where"),
        )
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
            Some(call) => format!("undone: {count} entries changed, as call {call}, which an undo takes back"),
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
    /// True where nothing was to be done.
    pub dry_run: bool,
    /// The calls whose changes it takes back, in order.
    pub calls: Vec<Seq>,
    /// The latest of these calls; for an undo, the call that it took back. Null if there is none.
    pub latest: Option<UndoneCall>,
    /// True if an undo of `latest` is taken back, so that it is done again.
    pub redoes: bool,
    /// Undos that took back only these calls, and undos of these: they go with them.
    pub undos: Vec<Seq>,
    /// The external changes that it takes back, each by the position of its first event.
    pub external: Vec<Seq>,
    /// The last position before it.
    pub seen: Seq,
    /// The call as which it is recorded; null where nothing was done.
    pub call: Option<Seq>,
    /// The changes of files, without patches.
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
    /// The place of the git worktree, where it is another one than before the calls; else null.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub git: Option<GitWorktree>,
}

/// A call that an undo takes back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UndoneCall {
    /// The position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: String,
    /// Its command, path or pattern, in one line.
    pub subject: String,
    /// The agent that made it; empty where none was named.
    pub agent: String,
    /// When it began, in UTC.
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

/// Characters of a call's subject.
const SUBJECT_MAX: usize = 200;

/// Undos of undos that are followed to the call that the first of them took back.
const DEPTH_MAX: usize = 64;

impl UndoneCall {
    /// Reads a call. Of an undo it is the latest call that came of it, with the number of undos between.
    fn read(session: &Session, call: Seq) -> Result<Option<(Self, usize)>, OperationError> {
        let mut next = call;
        for depth in 0..DEPTH_MAX {
            let Some((call, _)) = call_at(session, next)? else { return Ok(None) };
            let taken_back =
                call.outcome.as_ref().and_then(|outcome| outcome.end.result["calls"].as_array()?.last()?.as_u64());
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
        })
    }
}
