//! Undo of calls: what they changed is taken back, and what others changed stays.

mod history;
mod left;
mod plan;
mod select;
mod unrecorded;

use serde_json::{Map, Value};

use super::call::tool_runner::ToolRunner;
use super::error::WorkspaceError;
use super::off_thread::off_thread;
use super::workspace::managed::{Extent, files_of};
use super::workspace::project::Landing;
use crate::engine::commit::CallLink;
use crate::engine::event::{CallFinished, CallReason, CallStarted, CallStatus, REVERT_TOOL, UNDO_TOOL};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{AgentRuns, Change, GitWorktree, VirtualFileSystem};

use history::ChangeHistory;
pub use left::{UndoLeft, UndoLeftReason, UndoPassed};
use plan::{UndoPlan, Undoing};
pub(crate) use select::known_run;
use select::{UndoSelection, nothing, selected};
use unrecorded::unrecorded;

/// The changes that are taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoSubject {
    /// The latest call that changed files and is not undone; each further undo takes the call before.
    Last,
    /// A call, by its position; an undo is one, so its undo is a redo.
    Call(Seq),
    /// All calls of an agent's run, by the id that the agent gives it.
    Run(String),
    /// All calls that changed files after a position.
    After(Seq),
    /// Changes from outside of any call, by a position in them; without one the latest that are not undone.
    External(Option<Seq>),
    /// The latest undo that is not undone.
    Redo,
    /// Everything that differs from a position at these paths and below them, whoever changed it. Entries that are there
    /// only now stay.
    Paths {
        /// Paths that get their earlier entries.
        paths: Vec<EntryPath>,
        /// Position of the earlier entries.
        at: Seq,
    },
}

/// Options of an undo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndoOptions {
    /// Gives paths their entries before where others changed the same place since, or may have changed it. The present
    /// contents are kept, so a redo brings them back.
    pub overwrite: bool,
    /// Removes also what nothing could bring back, as its contents were not kept.
    pub force: bool,
    /// Only reports what would happen; external changes are recorded.
    pub dry_run: bool,
    /// The position up to which the caller has seen the history: a change of files after that refuses the undo.
    pub seen: Option<Seq>,
}

/// The report of an undo.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoReport {
    /// The calls whose changes it takes back, in order.
    pub calls: Vec<Seq>,
    /// Undos that took back only these calls, and undos of these: they go with them.
    pub undos: Vec<Seq>,
    /// The external changes that it takes back, each by the position of its first event.
    pub external: Vec<Seq>,
    /// The last position before it.
    pub seen: Seq,
    /// The call as which it is recorded; none where nothing was to be done, and in a dry run.
    pub call: Option<Seq>,
    /// The changes of files.
    pub changes: Vec<Change>,
    /// Changes that stay, by path.
    pub left: Vec<UndoLeft>,
    /// Later calls that an undo without a choice skips, the latest first. A later undo does not name them again.
    pub passed: Vec<UndoPassed>,
    /// Hard links that became separate files: the file system can't link them.
    pub apart: Vec<EntryPath>,
    /// The git worktree was at another commit or branch before: now it is at this one.
    pub git: Option<GitWorktree>,
}

impl ToolRunner {
    /// Takes back changes, as a call of its own: the files, not the history. What others changed since stays, by a
    /// three-way merge of lines where both changed a text. What can't be taken back is listed in the report with its
    /// reason; the rest is taken back.
    ///
    /// It happens whole or not at all, as a [merge](crate::tools::merge_child) does.
    ///
    /// # Errors
    /// [`WorkspaceError::NothingToUndo`]: there are no such changes. [`WorkspaceError::Moved`]: files have changed since
    /// the caller looked. [`WorkspaceError`] otherwise.
    pub async fn undo(&self, subject: UndoSubject, options: UndoOptions) -> Result<UndoReport, WorkspaceError> {
        let turn = self.session().turn().await;
        self.machine().record_drift(self.session(), Extent::All).await?;
        let runner = self.clone();
        let work = move || UndoWork { runner: &runner, session: runner.session(), options }.run(&subject);
        let (mut report, opened) = off_thread(turn, WorkspaceError::Stopped, work).await?;
        if !opened.is_empty() {
            let _turn = self.session().turn().await;
            let found = self.machine().record_unseen(self.session(), &report.calls).await?;
            let found = found.into_iter().filter(|path| opened.iter().any(|opened| path.is_below(opened)));
            report.left.extend(found.map(|path| UndoLeft { path, reason: UndoLeftReason::Doubtful }));
        }
        Ok(report)
    }
}

struct UndoWork<'a> {
    runner: &'a ToolRunner,
    session: &'a Session,
    options: UndoOptions,
}

impl UndoWork<'_> {
    /// Returns the report, and the directories that could not be entered before.
    fn run(&self, subject: &UndoSubject) -> Result<(UndoReport, Vec<EntryPath>), WorkspaceError> {
        let run = match subject {
            UndoSubject::Run(run) => Some(known_run(self.session, run)?),
            _ => None,
        };
        let history = ChangeHistory::read(self.session, run.as_deref())?;
        let last_change = history.changes.last().map_or(0, |changes| changes.last);
        if let Some(seen) = self.options.seen.filter(|seen| last_change > *seen) {
            return Err(WorkspaceError::Moved { seen, at: last_change });
        }
        let now = files_of(self.session)?;
        let (selection, plan, passed) = self.planned(subject, &history, &now)?;
        let mut then = now.clone();
        plan.steps.iter().for_each(|step| step.apply_to(&mut then, self.session.now()));
        let left = plan.left();
        let mut report = UndoReport {
            calls: selection.calls.clone(),
            undos: selection.undos.clone(),
            external: selection.external.clone(),
            seen: self.session.head()?,
            call: None,
            changes: now.diff(&then),
            left,
            passed,
            apart: Vec::new(),
            git: self.moved(&selection)?,
        };
        if !self.options.dry_run && !plan.steps.is_empty() {
            let (call, apart) = self.land(subject, &report, &plan, &now)?;
            (report.call, report.apart) = (Some(call), apart);
            return Ok((report, plan.opened(&now)));
        }
        Ok((report, Vec::new()))
    }

    /// Selects the changes of a subject and plans to take them back.
    fn planned(
        &self,
        subject: &UndoSubject,
        history: &ChangeHistory,
        now: &VirtualFileSystem,
    ) -> Result<(UndoSelection, UndoPlan, Vec<UndoPassed>), WorkspaceError> {
        let plan = |subject: &UndoSubject| self.plan(selected(history, subject, self.options.overwrite)?, now);
        let (selection, plan) = match subject {
            UndoSubject::Last => return self.planned_latest(history, plan),
            UndoSubject::Redo => plan(&UndoSubject::Call(history.redoable().ok_or(WorkspaceError::NothingToRedo)?))?,
            UndoSubject::Paths { paths, at } => {
                let plan = UndoPlan::revert(self.session, now, (paths, *at), self.options.force)?;
                (UndoSelection::default(), plan)
            }
            other => plan(other)?,
        };
        Ok((selection, plan, Vec::new()))
    }

    /// Plans to undo the latest call with a change that can be undone; without one, the latest call with a change that is
    /// still there.
    fn planned_latest(
        &self,
        history: &ChangeHistory,
        plan: impl Fn(&UndoSubject) -> Result<(UndoSelection, UndoPlan), WorkspaceError>,
    ) -> Result<(UndoSelection, UndoPlan, Vec<UndoPassed>), WorkspaceError> {
        let (mut latest, mut passed) = (None, Vec::new());
        for call in history.undoable() {
            let (selection, plan) = plan(&UndoSubject::Call(call))?;
            // A call that succeeded has run: it is the one that is meant, even if all its changes are in doubt.
            let is_meant =
                plan.left().iter().any(|left| left.reason == UndoLeftReason::Doubtful) && self.succeeded(call)?;
            if !plan.steps.is_empty() || is_meant {
                passed.retain(|passed: &UndoPassed| !history.was_passed(passed.call));
                return Ok((selection, plan, passed));
            }
            if !plan.left.is_empty() {
                passed.push(UndoPassed { call, left: plan.left() });
                latest.get_or_insert((selection, plan));
            }
        }
        let (selection, plan) = latest.ok_or_else(|| nothing(history))?;
        passed.remove(0);
        Ok((selection, plan, passed))
    }

    /// Returns true for an agent's call whose end was reported as a success.
    fn succeeded(&self, call: Seq) -> Result<bool, WorkspaceError> {
        let state = self.session.state()?;
        let mut ended = state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.ended);
        Ok(ended.any(|ended| ended.call == call && ended.status == CallStatus::Ok))
    }

    fn plan(
        &self,
        selection: UndoSelection,
        now: &VirtualFileSystem,
    ) -> Result<(UndoSelection, UndoPlan), WorkspaceError> {
        let mut undoing = Undoing::new(self.session, now);
        for piece in selection.pieces(self.session)?.iter().rev() {
            undoing.take_back(piece)?;
        }
        if self.options.overwrite {
            undoing.overwrite();
        }
        if let Some(disk) = self.runner.workspace().capture() {
            let (session, forced) = (self.session, self.options.overwrite);
            undoing.keep(|changes, files| unrecorded(session, disk, &selection, (changes, files), forced))?;
        }
        let plan = undoing.plan(selection.uncertain(self.session, now)?, self.options.force)?;
        Ok((selection, plan))
    }

    /// Returns the worktree's place if it changed since the first of the changes.
    fn moved(&self, selection: &UndoSelection) -> Result<Option<GitWorktree>, WorkspaceError> {
        let Some(first) = selection.first() else { return Ok(None) };
        let place = |state: &crate::engine::state::State| state.slice::<GitWorktree>().cloned().unwrap_or_default();
        let (then, now) = (place(&self.session.state_at(first - 1)?), place(&self.session.state()?));
        let is_same = then.seq == 0 || (&then.head, &then.branch) == (&now.head, &now.branch);
        Ok((!is_same).then_some(now))
    }

    /// Records the undo as a call, and changes the disk with it.
    fn land(
        &self,
        subject: &UndoSubject,
        report: &UndoReport,
        plan: &UndoPlan,
        now: &VirtualFileSystem,
    ) -> Result<(Seq, Vec<EntryPath>), WorkspaceError> {
        let since = self.session.steady_micros();
        let mut commit = self.session.commit().of_call(CallLink::Opens);
        let tool = if matches!(subject, UndoSubject::Paths { .. }) { REVERT_TOOL } else { UNDO_TOOL };
        let started = CallStarted { tool: tool.to_owned(), params: params(subject) };
        commit.push(&started)?;
        let call = self.session.record(commit)?.first;
        let mut commit = self.session.commit().of_call(CallLink::Of(call));
        for step in &plan.steps {
            step.push_to(&mut commit)?;
            step.new_content(&plan.fresh).into_iter().for_each(|content| commit.keep(content));
        }
        let positions = |positions: &[Seq]| positions.iter().map(|seq| Value::from(*seq)).collect::<Value>();
        let mut result = Map::from_iter([("calls".to_owned(), positions(&report.calls))]);
        for (name, others) in [("undos", &report.undos), ("external", &report.external)] {
            if !others.is_empty() {
                result.insert(name.to_owned(), positions(others));
            }
        }
        if !report.passed.is_empty() {
            let calls: Vec<Seq> = report.passed.iter().map(|passed| passed.call).collect();
            result.insert("passed".to_owned(), positions(&calls));
        }
        let result = Value::Object(result);
        // Its end is recorded with the changes, so before they are on the disk.
        let micros = self.session.steady_micros().saturating_sub(since);
        let done = CallFinished { status: CallStatus::Ok, result, message: String::new(), micros, reason: None };
        commit.push(&done)?;
        let workspace = self.runner.workspace().as_ref();
        let landing = Landing { session: self.session, workspace, now, steps: &plan.steps, fresh: &plan.fresh };
        match landing.land(commit) {
            Ok((_, apart)) => Ok((call, apart)),
            Err(failure) => {
                let mut commit = self.session.commit().of_call(CallLink::Of(call));
                let (status, reason) = (CallStatus::Error, CallReason::Failed);
                let failed = CallFinished::without_success(status, reason, failure.to_string(), 0);
                commit.push(&failed)?;
                self.session.record(commit)?;
                Err(failure)
            }
        }
    }
}

fn params(subject: &UndoSubject) -> Value {
    let fields = match subject {
        UndoSubject::Last => Vec::new(),
        UndoSubject::Call(call) => vec![("call", Value::from(*call))],
        UndoSubject::Run(run) => vec![("run", Value::from(run.clone()))],
        UndoSubject::After(seq) => vec![("to", Value::from(*seq))],
        UndoSubject::External(at) => vec![("external", at.map_or(Value::Bool(true), Value::from))],
        UndoSubject::Redo => vec![("redo", Value::Bool(true))],
        UndoSubject::Paths { paths, at } => {
            let paths = paths.iter().map(|path| Value::from(path.to_string())).collect();
            vec![("paths", paths), ("to", Value::from(*at))]
        }
    };
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
