//! The policy's rules for the paths of a call: of its reads, of its changes, and of its commands' changes.

use std::collections::BTreeSet;

use super::context::ToolContext;
use super::error::ToolError;
use super::filesystem::Filesystem;
use crate::backends::Workspace;
use crate::engine::event::{DeleteEntry, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::reducers::{Change, OutsideTreatment, VirtualFileSystem, directories_above};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::plan::{ChangePlan, PlannedChange};
use crate::tools::workspace::project::project;

/// Changes that commands of a call made outside of the paths that the policy allows.
pub(super) struct OutsideChanges {
    /// The changed paths.
    pub(super) paths: Vec<EntryPath>,
    /// The reason that the policy does not allow the first of them.
    pub(super) reason: String,
    pub(super) undone: Undone,
}

pub(super) enum Undone {
    Yes,
    /// The policy keeps them.
    NotWanted,
    /// An entry that was replaced can't be restored.
    Impossible,
    Failed(WorkspaceError),
}

fn refused(refusal: Option<String>) -> Result<(), ToolError> {
    refusal.map_or(Ok(()), |refusal| Err(ToolError::new(refusal)))
}

impl ToolContext {
    /// Refuses a command that outlives its call: its changes belong to no call, so no rule can confine them.
    pub(super) fn check_background(&self) -> Result<(), ToolError> {
        match self.files.rules.outside {
            None => Ok(()),
            Some(_) => Err(ToolError::new(
                "policy: write has rules, which a background command could break; run the command in a call",
            )),
        }
    }
}

impl Filesystem {
    /// Returns the reason that the policy does not allow reading a file.
    pub(crate) fn read_refusal(&self, path: &EntryPath) -> Option<String> {
        self.rules.read_refusal(path)
    }

    pub(super) fn check_read(&self, path: &EntryPath) -> Result<(), ToolError> {
        refused(self.read_refusal(path))
    }

    /// Refuses staged changes that the policy does not allow.
    pub(super) fn check_staged(&self) -> Result<(), ToolError> {
        let staged = &self.staged[self.landed..];
        for change in staged {
            let path = change.path();
            let is_directory = matches!(change, PlannedChange::Write(WriteFile { node: Node::Directory { .. }, .. }));
            // A missing directory of an allowed entry may be created.
            if !(is_directory && staged.iter().any(|other| other.path().is_below(path))) {
                refused(self.rules.write_refusal(path))?;
            }
            self.check_order(path)?;
            if matches!(change, PlannedChange::Delete(_)) {
                for (below, _) in self.begun.below(path) {
                    refused(self.rules.write_refusal(below))?;
                    self.check_order(below)?;
                }
            }
        }
        Ok(())
    }

    fn check_order(&self, path: &EntryPath) -> Result<(), ToolError> {
        match self.begun.node(path) {
            Some(Node::File { .. }) => refused(self.rules.order_refusal(path)),
            _ => Ok(()),
        }
    }

    /// Finds changes that commands made outside of the allowed paths, and undoes them if the policy says so. Staged
    /// changes stay.
    pub(super) fn confine(&mut self, workspace: &dyn Workspace) -> Option<OutsideChanges> {
        let treatment = self.rules.outside.filter(|_| self.landed > 0)?;
        let time = self.session.now();
        let mut now = self.begun.clone();
        self.staged[..self.landed].iter().for_each(|change| change.apply_to(&mut now, time));
        let changes = self.begun.diff(&now);
        let is_allowed = |change: &&Change| self.rules.write_refusal(change.path()).is_none();
        let implied: BTreeSet<EntryPath> =
            changes.iter().filter(is_allowed).flat_map(|change| directories_above(change.path())).collect();
        let is_implied = |change: &Change| matches!(change, Change::Added { path, after } if after.is_directory() && implied.contains(path));
        let outside: Vec<&Change> =
            changes.iter().filter(|change| !is_allowed(change) && !is_implied(change)).collect();
        let reason = self.rules.write_refusal(outside.first()?.path())?;
        let paths: Vec<EntryPath> = outside.iter().map(|change| change.path().clone()).collect();
        let target = without(&now, &outside);
        let undone = match treatment {
            OutsideTreatment::Report => Undone::NotWanted,
            OutsideTreatment::Undo => {
                self.undo_outside(workspace, &now, &target, &paths).unwrap_or_else(Undone::Failed)
            }
        };
        Some(OutsideChanges { paths, reason, undone })
    }

    fn undo_outside(
        &mut self,
        workspace: &dyn Workspace,
        now: &VirtualFileSystem,
        target: &VirtualFileSystem,
        paths: &[EntryPath],
    ) -> Result<Undone, WorkspaceError> {
        let plan = ChangePlan::kept(&self.session, now, target, (&self.fresh, false))?;
        if !plan.left.is_empty() {
            return Ok(Undone::Impossible);
        }
        project(&self.session, workspace, &plan.steps, &self.fresh, &mut 0)?;
        let (time, waiting) = (self.session.now(), self.staged.split_off(self.landed));
        // Without the undone changes, the rest usually leads to the same files; else the undo is recorded as well.
        let rest: Vec<PlannedChange> =
            self.staged.iter().filter(|change| paths.binary_search(change.path()).is_err()).cloned().collect();
        let mut reached = self.begun.clone();
        rest.iter().for_each(|change| change.apply_to(&mut reached, time));
        match reached.diff(target).is_empty() {
            true => self.staged = rest,
            false => self.staged.extend(plan.steps),
        }
        self.landed = self.staged.len();
        self.tree = target.clone();
        waiting.iter().for_each(|change| change.apply_to(&mut self.tree, time));
        self.staged.extend(waiting);
        Ok(Undone::Yes)
    }
}

/// Returns the files without these changes, which are in the order of their paths.
fn without(now: &VirtualFileSystem, changes: &[&Change]) -> VirtualFileSystem {
    let mut files = now.clone();
    for change in changes {
        let path = change.path().clone();
        let (before, after) = change.sides();
        let is_replaced = before.is_some_and(crate::reducers::Entry::is_directory)
            != after.is_some_and(crate::reducers::Entry::is_directory);
        if after.is_some() && is_replaced || before.is_none() {
            files.delete(&DeleteEntry { path: path.clone() });
        }
        if let Some(before) = before {
            files.write(&WriteFile { path, mode: WriteMode::Overwrite, node: before.node.clone() }, before.updated_at);
        }
    }
    files
}
