//! What a process that died has left on a disk that it was bringing from one state to another.

use std::collections::{BTreeMap, BTreeSet};

use super::capture::{CaptureBudget, compare};
use super::populate::write_all;
use crate::backends::{BackendError, ChangeDetector, DirtyPath, FileChange, Observed, Workspace};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::tools::error::WorkspaceError;
use crate::tools::rewind::{Intended, Intent};

/// Makes what a rewind or a merge changed that was cut off what the history says. What somebody has put there
/// meanwhile stays, to be found as drift.
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
    workspace.project(&deletes)?;
    // What is below a directory comes before it; one in which somebody has something stays.
    while let Some(path) = directories.pop_last() {
        let below = disk.below(&path)?;
        if below.entries.is_empty() && below.closed.is_empty() {
            workspace.project(&[FileChange::Delete { path }])?;
        }
    }
    let mut made = BTreeMap::new();
    for (path, entry) in missing {
        let is_free = |disk: &dyn ChangeDetector| match disk.observe(&path)? {
            Some(Observed::Directory) => Ok::<_, BackendError>(false),
            _ => has_room(disk, &path, &made),
        };
        if is_free(disk)? {
            made.insert(path, entry);
        }
    }
    // Each whole or not at all: who is killed here, too, leaves nothing that would count as somebody's.
    write_all(session, made.iter().map(|(path, entry)| (path, *entry)).collect(), |piece| workspace.project(piece))
}

/// Whether everything above a path is a directory, or will be.
fn has_room(
    disk: &dyn ChangeDetector,
    path: &EntryPath,
    made: &BTreeMap<EntryPath, &Entry>,
) -> Result<bool, BackendError> {
    for above in std::iter::successors(path.parent(), EntryPath::parent) {
        if let Some(entry) = made.get(&above) {
            return Ok(entry.is_directory());
        }
        match disk.observe(&above)? {
            Some(Observed::Directory) => return Ok(true),
            Some(_) => return Ok(false),
            None => {}
        }
    }
    Ok(true)
}

/// Where half a landing lies on a disk.
#[derive(Default)]
struct RecoveryReport<'a> {
    /// What has to go.
    unwanted: Vec<EntryPath>,
    /// Directories that have to go when nothing is in them.
    directories: BTreeSet<EntryPath>,
    /// What has to be there.
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
        let differ = captured.written.iter().map(|write| (&write.path, &write.node)).collect();
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
            (Some(Observed::Directory), _) => {
                let is_wanted = wanted.is_some_and(Entry::is_directory);
                if is_wanted || !intended.may_leave(&Node::Directory) {
                    return;
                }
                self.directories.insert(path.clone());
            }
            // As it is to be, or somebody's.
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
