//! Undo of calls: what they changed is taken back, and what others changed stays.

mod select;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::call::tool_runner::ToolRunner;
use super::error::WorkspaceError;
use super::workspace::managed::{Extent, files_of};
use super::workspace::plan::{ChangePlan, PlannedChange};
use super::workspace::project::Landing;
use crate::engine::commit::{CallLink, Content};
use crate::engine::event::{
    CallFinished, CallReason, CallStarted, CallStatus, DeleteEntry, MergeConflict, Node, WriteFile,
};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{
    Change, GitWorktree, MergeChoices, MergePlan, MergeStep, VirtualFileSystem, can_be_made, plan_merge,
};

pub(crate) use select::known_run;
use select::{UndoSelection, selected, taken_up};

/// The name of the call as which an undo is recorded.
const TOOL: &str = "undo";

/// The calls whose changes are taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoSubject {
    /// The latest call that changed files.
    Last,
    /// A call, by its position.
    Call(Seq),
    /// All calls of an agent's run, by the id that the agent gives it.
    Run(String),
    /// All calls that changed files after a position.
    After(Seq),
}

/// Options of an undo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndoOptions {
    /// Undoes the rest where something can't be undone, which stays as it is.
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
    /// The last position before it.
    pub seen: Seq,
    /// The call as which it is recorded; none where nothing was to be done, and in a dry run.
    pub call: Option<Seq>,
    /// The changes of files.
    pub changes: Vec<Change>,
    /// Changes that others made at the same places. They stay.
    pub conflicts: Vec<MergeConflict>,
    /// Entries that were there before the session, and that would be removed. They stay.
    pub earlier: Vec<EntryPath>,
    /// Entries whose contents before the calls, or now, were not kept. They stay as they are.
    pub not_kept: Vec<EntryPath>,
    /// Changes that several calls may have made, not all of which are undone. They stay.
    pub shared: Vec<EntryPath>,
    /// The git worktree was at another commit or branch before: now it is at this one.
    pub git: Option<GitWorktree>,
}

impl UndoReport {
    /// Returns true if all that the calls changed is, or would be, taken back.
    pub fn is_whole(&self) -> bool {
        self.conflicts.is_empty() && self.earlier.is_empty() && self.not_kept.is_empty() && self.shared.is_empty()
    }
}

impl ToolRunner {
    /// Takes back what calls changed, as a call of its own: the files, not the history. Only what they changed is
    /// touched; what others changed since is kept, by a three-way merge of lines where both changed a text. It is undone
    /// by another undo.
    ///
    /// It happens whole or not at all, as a [merge](crate::tools::merge_child) does.
    ///
    /// # Errors
    /// [`WorkspaceError::NotUndone`]: something would stay as it is, and [`force`](UndoOptions::force) is not set.
    /// [`WorkspaceError::Moved`]: files have changed since the caller looked. [`WorkspaceError`] otherwise.
    pub async fn undo(&self, subject: UndoSubject, options: UndoOptions) -> Result<UndoReport, WorkspaceError> {
        let turn = self.session().turn().await;
        self.machine().record_drift(self.session(), Extent::All).await?;
        let runner = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = UndoWork { runner: &runner, session: runner.session(), options }.run(&subject);
            drop(turn);
            done
        });
        done.await.map_err(|_| WorkspaceError::Stopped)?
    }
}

struct UndoWork<'a> {
    runner: &'a ToolRunner,
    session: &'a Session,
    options: UndoOptions,
}

/// The steps of an undo, with the contents that come of merged lines.
#[derive(Default)]
struct UndoPlan {
    steps: Vec<PlannedChange>,
    fresh: BTreeMap<Digest, Bytes>,
}

impl UndoWork<'_> {
    fn run(&self, subject: &UndoSubject) -> Result<UndoReport, WorkspaceError> {
        let selected = selected(self.session, subject)?;
        if let Some(seen) = self.options.seen.filter(|seen| selected.last_change > *seen) {
            return Err(WorkspaceError::Moved { seen, at: selected.last_change });
        }
        let now = files_of(self.session)?;
        let mut report = UndoReport {
            calls: selected.calls.clone(),
            seen: self.session.head()?,
            call: None,
            changes: Vec::new(),
            conflicts: Vec::new(),
            earlier: Vec::new(),
            not_kept: Vec::new(),
            shared: selected.shared.clone(),
            git: self.moved(&selected)?,
        };
        let plan = self.plan(&selected, &now, &mut report)?;
        let mut then = now.clone();
        plan.steps.iter().for_each(|step| step.apply_to(&mut then, self.session.now()));
        report.changes = now.diff(&then);
        if !report.is_whole() && !self.options.force && !self.options.dry_run {
            return Err(WorkspaceError::NotUndone(Box::new(report)));
        }
        if !self.options.dry_run && !plan.steps.is_empty() {
            report.call = Some(self.land(subject, &report, &plan, &now)?);
        }
        Ok(report)
    }

    /// Returns the worktree's place, if it was another one before the first of the calls.
    fn moved(&self, selected: &UndoSelection) -> Result<Option<GitWorktree>, WorkspaceError> {
        let Some(first) = selected.commits.first() else { return Ok(None) };
        let place = |state: &crate::engine::state::State| state.slice::<GitWorktree>().cloned().unwrap_or_default();
        let (then, now) = (place(&self.session.state_at(first.first - 1)?), place(&self.session.state()?));
        let is_same = then.seq == 0 || (&then.head, &then.branch) == (&now.head, &now.branch);
        Ok((!is_same).then_some(now))
    }

    /// Takes back one commit after the other, the latest first.
    fn plan(
        &self,
        selected: &UndoSelection,
        now: &VirtualFileSystem,
        report: &mut UndoReport,
    ) -> Result<UndoPlan, WorkspaceError> {
        let earlier = taken_up(self.session)?;
        let (mut files, mut fresh) = (now.clone(), BTreeMap::new());
        for commit in selected.commits.iter().rev() {
            let choices = MergeChoices::default();
            let read = |digest: &Digest| match fresh.get(digest) {
                Some(bytes) => Ok(Bytes::clone(bytes)),
                None => self.session.content(digest),
            };
            let MergePlan { steps, conflicts, left_out, .. } =
                plan_merge(&commit.after, &files, &commit.before, &choices, read)?;
            let is_unkept = |conflict: &MergeConflict| !conflict.theirs.as_ref().is_none_or(can_be_made);
            let (unkept, conflicts): (Vec<_>, Vec<_>) = conflicts.into_iter().partition(is_unkept);
            report.not_kept.extend(unkept.into_iter().map(|conflict| conflict.path).chain(left_out));
            report.conflicts.extend(conflicts.into_iter().filter(|conflict| conflict.resolved.is_none()));
            for step in steps {
                match step {
                    MergeStep::Delete { path } => {
                        let stays: Vec<EntryPath> = remaining(&files, &earlier, &path);
                        if !stays.is_empty() {
                            report.earlier.extend(stays);
                            continue;
                        }
                        files.delete(&DeleteEntry { path });
                    }
                    MergeStep::Write { path, mode, node, merged } => {
                        if let (Node::File { content, .. }, Some(bytes)) = (&node, merged) {
                            fresh.insert(*content, bytes);
                        }
                        files.write(&WriteFile { path, mode, node }, self.session.now());
                    }
                }
            }
        }
        let ChangePlan { steps, left, .. } = ChangePlan::between(now, &files);
        report.not_kept.extend(left);
        for paths in [&mut report.earlier, &mut report.not_kept] {
            paths.sort();
            paths.dedup();
        }
        report.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        report.conflicts.dedup_by(|one, other| one.path == other.path);
        Ok(UndoPlan { steps, fresh })
    }

    /// Records the undo as a call, and changes the disk with it.
    fn land(
        &self,
        subject: &UndoSubject,
        report: &UndoReport,
        plan: &UndoPlan,
        now: &VirtualFileSystem,
    ) -> Result<Seq, WorkspaceError> {
        let since = self.session.steady_micros();
        let mut commit = self.session.commit().of_call(CallLink::Opens);
        let started = CallStarted { tool: TOOL.to_owned(), params: params(subject) };
        commit.push(&started).map_err(SessionError::from)?;
        let call = self.session.record(commit)?.first;
        let mut commit = self.session.commit().of_call(CallLink::Of(call));
        for step in &plan.steps {
            step.push_to(&mut commit).map_err(SessionError::from)?;
            if let PlannedChange::Write(WriteFile { node: Node::File { content, .. }, .. }) = step
                && let Some(bytes) = plan.fresh.get(content)
            {
                commit.keep(Content { digest: *content, bytes: bytes.clone() });
            }
        }
        let calls = report.calls.iter().map(|call| Value::from(*call)).collect();
        let result = Value::Object(Map::from_iter([("calls".to_owned(), calls)]));
        // Its end is recorded with the changes, so before they are on the disk.
        let micros = self.session.steady_micros().saturating_sub(since);
        let done = CallFinished { status: CallStatus::Ok, result, message: String::new(), micros, reason: None };
        commit.push(&done).map_err(SessionError::from)?;
        let workspace = self.runner.workspace().as_ref();
        let landing = Landing { session: self.session, workspace, now, steps: &plan.steps, fresh: &plan.fresh };
        match landing.land(commit) {
            Ok(_) => Ok(call),
            Err(failure) => {
                let mut commit = self.session.commit().of_call(CallLink::Of(call));
                let (status, reason) = (CallStatus::Error, CallReason::Failed);
                let failed = CallFinished::without_success(status, reason, failure.to_string(), 0);
                commit.push(&failed).map_err(SessionError::from)?;
                self.session.record(commit)?;
                Err(failure)
            }
        }
    }
}

/// Lists what was there before the session and is there now, at a path and below it.
fn remaining(now: &VirtualFileSystem, earlier: &VirtualFileSystem, path: &EntryPath) -> Vec<EntryPath> {
    let all = std::iter::once(path).chain(now.below(path).map(|(path, _)| path));
    all.filter(|path| now.get(path).is_some() && earlier.get(path).is_some()).cloned().collect()
}

fn params(subject: &UndoSubject) -> Value {
    let (name, value) = match subject {
        UndoSubject::Last => return Value::Object(Map::new()),
        UndoSubject::Call(call) => ("call", Value::from(*call)),
        UndoSubject::Run(run) => ("run", Value::from(run.clone())),
        UndoSubject::After(seq) => ("to", Value::from(*seq)),
    };
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}
