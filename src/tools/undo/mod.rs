//! Undo of calls: takes back the changes of selected calls and leaves other changes.

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
pub use select::known_run;
use select::{UndoSelection, nothing, selected};
use unrecorded::unrecorded;

/// The changes to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoSubject {
    /// The latest call that changed files and is not undone. Another undo takes back the call before it.
    Last,
    /// A call, by its position. An undo is a call, too, and undoing it is a redo.
    Call(Seq),
    /// All calls of an agent's run, by the agent's id of the run.
    Run(String),
    /// All calls that changed files after a position.
    After(Seq),
    /// External changes, by a position within them. `None` stands for the latest that are not undone.
    External(Option<Seq>),
    /// The latest undo that is not undone.
    Redo,
    /// All differences from a position at and below these paths, by any author. Entries that did not exist at the
    /// position stay.
    Paths {
        /// The paths to revert.
        paths: Vec<EntryPath>,
        /// The position of the earlier entries.
        at: Seq,
    },
}

/// The options of an undo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndoOptions {
    /// True to restore earlier entries even if later changes touched the same place, or may have. The current contents
    /// are stored, so a redo restores them.
    pub overwrite: bool,
    /// True to also remove contents that were not stored and so can't be restored.
    pub force: bool,
    /// True to only report the result. External changes are recorded anyway.
    pub dry_run: bool,
    /// The last position that the caller has seen. A later file change makes the undo fail.
    pub seen: Option<Seq>,
}

/// The report of an undo.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoReport {
    /// The calls that the undo takes back, in order.
    pub calls: Vec<Seq>,
    /// The undos that took back only these calls, and the undos of those undos. They are taken back, too.
    pub undos: Vec<Seq>,
    /// The external changes that the undo takes back, each by the position of its first event.
    pub external: Vec<Seq>,
    /// The last position before the undo.
    pub seen: Seq,
    /// The call that records the undo. `None` in a dry run, or if there was nothing to do.
    pub call: Option<Seq>,
    /// The changes of files.
    pub changes: Vec<Change>,
    /// The changes that stay, by path.
    pub left: Vec<UndoLeft>,
    /// The calls that [`UndoSubject::Last`] skips, latest first. A later undo does not report them again.
    pub passed: Vec<UndoPassed>,
    /// The hard links that became separate files because the file system can't link them.
    pub apart: Vec<EntryPath>,
    /// The current place of the git worktree, if it was at another commit or branch before the undone changes.
    pub git: Option<GitWorktree>,
}

impl ToolRunner {
    /// Takes back changes to files, and records this as a call; the history stays. Later changes by others stay, by a
    /// three-way merge of lines in text files. The report lists changes that can't be taken back, with reasons.
    ///
    /// An undo happens completely or not at all, like a [merge](crate::tools::merge_child).
    ///
    /// # Errors
    /// [`WorkspaceError::NothingToUndo`]: the changes were not found. [`WorkspaceError::Moved`]: files have changed
    /// after [`seen`](UndoOptions::seen). Other [`WorkspaceError`]s: the undo failed.
    pub async fn undo(&self, subject: UndoSubject, options: UndoOptions) -> Result<UndoReport, WorkspaceError> {
        let turn = self.runtime().lock_workspace().await;
        self.machine().record_drift(self.session(), Extent::All).await?;
        let runner = self.clone();
        let work = move || UndoWork { runner: &runner, session: runner.session(), options }.run(&subject);
        let (mut report, opened) = off_thread(turn, WorkspaceError::Stopped, work).await?;
        if !opened.is_empty() {
            let _turn = self.runtime().lock_workspace().await;
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
    /// Returns the report, and the directories that could not be entered before the undo.
    fn run(&self, subject: &UndoSubject) -> Result<(UndoReport, Vec<EntryPath>), WorkspaceError> {
        let run = match subject {
            UndoSubject::Run(run) => Some(known_run(self.session, run)?),
            UndoSubject::Call(seq) => {
                let event = self.session.event(*seq)?;
                if event.typed::<CallStarted>().is_none() {
                    return Err(WorkspaceError::NotACall { seq: *seq, call: event.call });
                }
                None
            }
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

    /// Selects the changes of a subject, and plans their undo.
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

    /// Plans the undo of the latest call with a change that can be undone. If no call has one, reports the latest call
    /// with a change that still exists.
    fn planned_latest(
        &self,
        history: &ChangeHistory,
        plan: impl Fn(&UndoSubject) -> Result<(UndoSelection, UndoPlan), WorkspaceError>,
    ) -> Result<(UndoSelection, UndoPlan, Vec<UndoPassed>), WorkspaceError> {
        let (mut latest, mut passed) = (None, Vec::new());
        for call in history.undoable() {
            let (selection, plan) = plan(&UndoSubject::Call(call))?;
            // A successful call did run, so the user means it, even if all its changes are doubtful.
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
        let (selection, plan) = latest.ok_or_else(|| nothing(history, None))?;
        passed.remove(0);
        Ok((selection, plan, passed))
    }

    /// Returns true if a call's agent reported its success.
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

    /// Returns the worktree's place if it has changed since the first selected change.
    fn moved(&self, selection: &UndoSelection) -> Result<Option<GitWorktree>, WorkspaceError> {
        let Some(first) = selection.first() else { return Ok(None) };
        let place = |state: &crate::engine::state::State| state.slice::<GitWorktree>().cloned().unwrap_or_default();
        let (then, now) = (place(&self.session.state_at(first - 1)?), place(&self.session.state()?));
        let is_same = then.seq == 0 || (&then.head, &then.branch) == (&now.head, &now.branch);
        Ok((!is_same).then_some(now))
    }

    /// Records the undo as a call, and updates the disk.
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
        // The end is recorded together with the changes, before they are on the disk.
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
