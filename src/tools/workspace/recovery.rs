//! Repair of a disk after a process died in a transition between states.

use std::collections::{BTreeMap, BTreeSet};

use super::capture::{CaptureBudget, compare};
use super::intent::{Intended, Intent};
use super::plan::{PlannedChange, link_steps};
use super::populate::write_all;
use crate::backends::{BackendError, ChangeDetector, DirtyPath, FileChange, Observed, Workspace};
use crate::engine::event::{LinkFile, Node};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Entry, VirtualFileSystem, directories_above};
use crate::tools::error::WorkspaceError;

/// Restores the entries of an interrupted rewind or merge to the recorded state. External changes stay, to be found as
/// drift.
pub(crate) fn put_back(
    session: &Session,
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
    disk: &dyn ChangeDetector,
    budget: CaptureBudget,
    intent: &Intent,
) -> Result<(), WorkspaceError> {
    let RecoveryReport { unwanted, mut directories, missing } = RecoveryReport::find(tree, disk, budget, intent)?;
    let deletes: Vec<FileChange> = unwanted.into_iter().map(|path| FileChange::Delete { path }).collect();
    workspace.apply(&deletes)?;
    // Deepest first; a directory with external entries stays.
    while let Some(path) = directories.pop_last() {
        let below = disk.below(&path)?;
        if below.entries.is_empty() && below.closed.is_empty() {
            workspace.apply(&[FileChange::Delete { path }])?;
        }
    }
    let mut made = BTreeMap::new();
    for (path, entry) in missing {
        let is_free = |disk: &dyn ChangeDetector| match disk.observe(&path)? {
            Some(Observed::Directory { .. }) => Ok::<_, BackendError>(entry.is_directory()),
            _ => has_room(disk, &path, &made),
        };
        if is_free(disk)? {
            made.insert(path, entry);
        }
    }
    // Each entry is written atomically: a process that is killed here leaves nothing that looks external.
    let entries = made.iter().map(|(path, entry)| (path, *entry)).collect();
    write_all(session, (entries, Vec::new()), |piece| workspace.apply(piece))?;
    let paths = intent.entries.iter().map(|entry| entry.path.clone());
    if let Err(error) = join_again(tree, workspace, (disk, budget), paths) {
        tracing::warn!(%error, "failed to restore hard links after an interrupted change");
    }
    Ok(())
}

/// Rejoins names that an interrupted change of these paths may have separated. Externally changed names stay.
fn join_again(
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
    (disk, budget): (&dyn ChangeDetector, CaptureBudget),
    paths: impl Iterator<Item = EntryPath>,
) -> Result<(), BackendError> {
    let firsts: BTreeSet<&EntryPath> = paths.filter_map(|path| tree.first_name(&path)).collect();
    if firsts.is_empty() {
        return Ok(());
    }
    let names = || firsts.iter().flat_map(|first| tree.names(first));
    let captured = compare(disk, names().map(DirtyPath::Entry).collect(), tree, budget)?;
    let steps = link_steps(&captured.changes, tree, tree);
    let links = steps.iter().filter_map(PlannedChange::link);
    let links = links.map(|LinkFile { path, to }| FileChange::Link { path: path.clone(), to: to.clone() });
    workspace.apply(&links.collect::<Vec<_>>())
}

/// Returns true if the nearest entry above a path is a directory, or will be.
fn has_room(
    disk: &dyn ChangeDetector,
    path: &EntryPath,
    made: &BTreeMap<EntryPath, &Entry>,
) -> Result<bool, BackendError> {
    for above in directories_above(path) {
        if let Some(entry) = made.get(&above) {
            return Ok(entry.is_directory());
        }
        match disk.observe(&above)? {
            Some(Observed::Directory { .. }) => return Ok(true),
            Some(_) => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

#[derive(Default)]
struct RecoveryReport<'a> {
    unwanted: Vec<EntryPath>,
    /// Directories to remove if empty.
    directories: BTreeSet<EntryPath>,
    missing: BTreeMap<EntryPath, &'a Entry>,
}

impl<'a> RecoveryReport<'a> {
    fn find(
        tree: &'a VirtualFileSystem,
        disk: &dyn ChangeDetector,
        budget: CaptureBudget,
        intent: &Intent,
    ) -> Result<Self, BackendError> {
        let touched = intent.entries.iter().map(|entry| DirtyPath::Entry(entry.path.clone())).collect();
        let captured = compare(disk, touched, tree, budget)?;
        let written = captured.changes.iter().filter_map(|change| match change {
            PlannedChange::Write(write) => Some((&write.path, &write.node)),
            PlannedChange::Delete(_) | PlannedChange::Link(_) => None,
        });
        let differ = written.collect();
        let mut found = Self::default();
        for intended in &intent.entries {
            found.sort(tree, disk.observe(&intended.path)?, intended, &differ);
        }
        Ok(found)
    }

    fn sort(
        &mut self,
        tree: &'a VirtualFileSystem,
        observed: Option<Observed>,
        intended: &Intended,
        differ: &BTreeMap<&EntryPath, &Node>,
    ) {
        let path = &intended.path;
        let wanted = tree.get(path);
        match (&observed, differ.get(path)) {
            (Some(Observed::Directory { .. }), differs) => {
                let is_wanted = wanted.is_some_and(Entry::is_directory);
                if is_wanted && differs.is_none() || !intended.may_leave(&Node::DIRECTORY) {
                    return;
                }
                if !is_wanted {
                    self.directories.insert(path.clone());
                }
            }
            // Already as recorded, or an external change.
            (Some(_), None) => return,
            (Some(_), Some(node)) if !intended.may_leave(node) => return,
            (Some(_), Some(_)) if wanted.is_none() => self.unwanted.push(path.clone()),
            _ => {}
        }
        if let Some(entry) = wanted {
            self.missing.insert(path.clone(), entry);
        }
    }
}
