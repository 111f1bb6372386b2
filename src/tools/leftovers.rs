//! What a process that died has left on a disk that it was filling.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::capture::{CaptureBudget, Captured, compare};
use super::machine::DispatchError;
use crate::backends::{Capture, FileChange, Observed, Workspace};
use crate::engine::event::{Node, WriteFile};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::VirtualFileSystem;

/// Removes from a disk that was just filled what the history once had and the present has not: there a rewind was
/// cut off. What the history never had was put there by somebody else, and stays to be found.
pub(super) fn clear(
    session: &Session,
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
    disk: &dyn Capture,
    budget: CaptureBudget,
) -> Result<(), DispatchError> {
    let captured = compare(disk, disk.touched()?, tree, budget)?;
    let known = known(session, &captured)?;
    let above = known.iter().flat_map(|path| std::iter::successors(path.parent(), EntryPath::parent));
    let mut directories: BTreeSet<EntryPath> =
        above.filter(|path| !path.is_root() && tree.get(path).is_none()).collect();
    let mut changes = Vec::new();
    for path in known {
        match disk.observe(&path)? {
            Some(Observed::Directory) => drop(directories.insert(path)),
            Some(_) => changes.push(FileChange::Delete { path }),
            None => {}
        }
    }
    workspace.project(&changes)?;
    // What is below a directory comes before it; one in which somebody has something stays.
    for path in directories.into_iter().rev() {
        let below = disk.below(&path)?;
        if below.entries.is_empty() && below.closed.is_empty() {
            workspace.project(&[FileChange::Delete { path }])?;
        }
    }
    Ok(())
}

/// Of what is on the disk and not in the files, what the history knows.
fn known(session: &Session, captured: &Captured) -> Result<BTreeSet<EntryPath>, DispatchError> {
    let mut found = BTreeSet::new();
    if captured.written.is_empty() {
        return Ok(found);
    }
    let asked: BTreeMap<&EntryPath, &Node> = captured.written.iter().map(|write| (&write.path, &write.node)).collect();
    session.visit(1, &mut |event| {
        if let Some(Ok(write)) = event.typed::<WriteFile>() {
            let WriteFile { path, node, .. } = write.event;
            if asked.get(&path).is_some_and(|asked| **asked == node) {
                found.insert(path.clone());
            }
            let above = std::iter::successors(path.parent(), EntryPath::parent);
            found.extend(above.filter(|above| asked.get(above) == Some(&&Node::Directory)));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
