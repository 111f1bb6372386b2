//! The policy's rules for the paths of a call: of its changes, and of its commands' changes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::approval::note_refusal;
use super::context::ToolContext;
use super::error::ToolError;
use super::filesystem::Filesystem;
use crate::backends::Workspace;
use crate::engine::event::{DeleteEntry, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::reducers::{Change, Entry, OutsideTreatment, VirtualFileSystem, directories_above};
use crate::tools::words::counted;
use crate::tools::workspace::plan::PlannedChange;

/// Maximum number of paths in a result.
const SHOWN: usize = 50;

/// Changes that a call's commands made outside of the paths that the policy allows.
pub(super) struct OutsideChanges {
    pub(super) note: String,
    /// The field of the call's result.
    pub(super) field: Value,
    /// True if the undo failed halfway.
    pub(super) is_unsettled: bool,
}

fn refused(refusal: Option<String>) -> Result<(), ToolError> {
    let Some(refusal) = refusal else { return Ok(()) };
    note_refusal();
    Err(ToolError::new(refusal))
}

impl ToolContext {
    /// Refuses a command that outlives its call: its changes belong to no call, so no rule can confine them.
    pub(super) fn check_background(&self) -> Result<(), ToolError> {
        let what = "policy: write has rules, which a background command could break; run the command in a call";
        refused(self.files.rules.outside.map(|_| what.to_owned()))
    }
}

impl Filesystem {
    /// Refuses to read a file that the policy does not allow.
    pub(crate) fn check_read(&self, path: &EntryPath) -> Result<(), ToolError> {
        refused(self.rules.read_refusal(path))
    }

    /// Refuses staged changes that the policy does not allow.
    pub(super) fn check_staged(&self) -> Result<(), ToolError> {
        let staged = &self.staged[self.landed..];
        for change in staged {
            let path = change.path();
            let is_directory = matches!(change, PlannedChange::Write(WriteFile { node: Node::Directory { .. }, .. }));
            // A missing directory of an allowed entry may be created.
            if !(is_directory && staged.iter().any(|other| other.path().is_below(path))) {
                self.check_change(path)?;
            }
            if matches!(change, PlannedChange::Delete(_)) {
                self.begun.below(path).try_for_each(|(below, _)| self.check_change(below))?;
            }
        }
        Ok(())
    }

    fn check_change(&self, path: &EntryPath) -> Result<(), ToolError> {
        refused(self.rules.write_refusal(path))?;
        match self.begun.node(path) {
            Some(Node::File { .. }) => refused(self.rules.order_refusal(path)),
            _ => Ok(()),
        }
    }

    /// Finds changes that commands made outside of the allowed paths, and undoes them if the policy says so. Staged
    /// changes stay.
    pub(super) fn confine(&mut self, workspace: &dyn Workspace) -> Option<OutsideChanges> {
        let treatment = self.rules.outside.filter(|_| self.has_landed())?;
        let now = self.on_disk();
        let changes = self.begun.diff(&now);
        let is_allowed = |change: &Change| self.rules.write_refusal(change.path()).is_none();
        let allowed = changes.iter().filter(|change| is_allowed(change));
        let implied: BTreeSet<EntryPath> = allowed.flat_map(|change| directories_above(change.path())).collect();
        let is_implied = |change: &Change| matches!(change, Change::Added { path, after } if after.is_directory() && implied.contains(path));
        let outside: Vec<&Change> = changes.iter().filter(|one| !is_allowed(one) && !is_implied(one)).collect();
        let reason = self.rules.write_refusal(outside.first()?.path())?;
        let (mut is_undone, mut is_unsettled) = (false, false);
        let what = match treatment {
            OutsideTreatment::Report => "stay".to_owned(),
            OutsideTreatment::Undo => match self.return_to(workspace, &without(&now, &outside)) {
                Ok(Some(_)) => {
                    is_undone = true;
                    "were undone".to_owned()
                }
                Ok(None) => "stay: an entry that they replaced can't be restored".to_owned(),
                Err(error) => {
                    is_unsettled = true;
                    format!("could not be undone: {error}")
                }
            },
        };
        let (entries, count) = (outside.len(), counted(outside.len(), "entry"));
        let note = format!("changes of {count} outside of the policy's paths {what} ({reason})");
        let paths: Vec<String> = outside.iter().take(SHOWN).map(|change| change.path().rooted()).collect();
        let field = json!({ "entries": entries, "paths": paths, "undone": is_undone, "note": note });
        Some(OutsideChanges { note, field, is_unsettled })
    }
}

/// Returns the files without these changes, which are in the order of their paths.
fn without(now: &VirtualFileSystem, changes: &[&Change]) -> VirtualFileSystem {
    let mut files = now.clone();
    for change in changes {
        let path = change.path().clone();
        let (before, after) = change.sides();
        let [was, is] = [before, after].map(|entry| entry.is_some_and(Entry::is_directory));
        if after.is_some() && (before.is_none() || was != is) {
            files.delete(&DeleteEntry { path: path.clone() });
        }
        if let Some(before) = before {
            files.write(&WriteFile { path, mode: WriteMode::Overwrite, node: before.node.clone() }, before.updated_at);
        }
    }
    files
}
