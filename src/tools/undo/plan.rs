//! Planning an undo: the resulting files, and the changes that stay.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::left::{UndoLeft, UndoLeftReason};
use super::select::ChangedPiece;
use crate::engine::clock::Timestamp;
use crate::engine::event::{ConflictKind, DeleteEntry, MergeConflict, Node, WriteFile, WriteMode};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{
    Change, MergeChoices, MergePlan, MergeStep, VirtualFileSystem, can_be_made, directories_above, plan_merge,
};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::hard_links::{relink, take_back_links};
use crate::tools::workspace::plan::{ChangePlan, NewContents, PlannedChange};

/// The permission bits that let the owner list and enter a directory.
const ENTER: u32 = 0o500;

/// The steps of an undo, with the contents of merged files.
#[derive(Debug, Default)]
pub(super) struct UndoPlan {
    pub(super) steps: Vec<PlannedChange>,
    pub(super) fresh: NewContents,
    pub(super) left: BTreeMap<EntryPath, UndoLeftReason>,
}

impl UndoPlan {
    /// Lists the directories that the owner can't enter now, but can after the undo.
    pub(super) fn opened(&self, now: &VirtualFileSystem) -> Vec<EntryPath> {
        let is_shut = |node: &Node| matches!(node, Node::Directory { mode } if mode.bits() & ENTER != ENTER);
        let writes = self.steps.iter().filter_map(|step| match step {
            PlannedChange::Write(write) if !is_shut(&write.node) => Some(&write.path),
            _ => None,
        });
        writes.filter(|path| now.node(path).is_some_and(is_shut)).cloned().collect()
    }

    /// Lists the changes that stay, by path.
    pub(super) fn left(&self) -> Vec<UndoLeft> {
        self.left.iter().map(|(path, reason)| UndoLeft { path: path.clone(), reason: *reason }).collect()
    }
}

/// The files while an undo takes back changes.
pub(super) struct Undoing<'a> {
    session: &'a Session,
    now: &'a VirtualFileSystem,
    files: VirtualFileSystem,
    fresh: NewContents,
    /// The entries before the first undone change, by path.
    before: BTreeMap<EntryPath, Option<Node>>,
    /// The paths with a conflicting change.
    conflicts: Vec<EntryPath>,
    /// The entries that stay for other reasons.
    kept: Vec<(EntryPath, UndoLeftReason)>,
}

impl<'a> Undoing<'a> {
    pub(super) fn new(session: &'a Session, now: &'a VirtualFileSystem) -> Self {
        let (files, fresh, before) = (now.clone(), NewContents::new(), BTreeMap::new());
        Self { session, now, files, fresh, before, conflicts: Vec::new(), kept: Vec::new() }
    }

    /// Takes back one piece of the history. The caller passes the pieces latest first.
    pub(super) fn take_back(&mut self, piece: &ChangedPiece) -> Result<(), WorkspaceError> {
        let ChangedPiece { before, after, changes, touched: named } = piece;
        self.before.extend(changes.iter().map(|change| (change.path().clone(), node_before(change))));
        let is_as_left = |change: &&Change| self.files.node(change.path()) == after.node(change.path());
        let (untouched, touched): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(is_as_left);
        self.merge(after, &touched)?;
        let replaced: BTreeSet<&EntryPath> = untouched.iter().map(|change| change.path()).collect();
        let files = &self.files;
        let is_in_the_way =
            |above: &EntryPath| !replaced.contains(above) && files.node(above).is_some_and(|node| !node.is_directory());
        let is_blocked = |change: &&Change| {
            change.sides().0.is_some() && directories_above(change.path()).any(|above| is_in_the_way(&above))
        };
        let (blocked, free): (Vec<&Change>, Vec<&Change>) = untouched.iter().copied().partition(is_blocked);
        self.conflicts.extend(blocked.into_iter().map(|change| change.path().clone()));
        let free = free.into_iter().map(|change| (change.path().clone(), node_before(change)));
        set(&mut self.files, free, self.session.now());
        take_back_links(&mut self.files, (before, after), named.iter().chain(changes.iter().map(Change::path)));
        Ok(())
    }

    /// Takes back changes at paths with later changes by others: only the lines that they have not touched.
    fn merge(&mut self, after: &VirtualFileSystem, changes: &[&Change]) -> Result<(), WorkspaceError> {
        let mut wanted = after.clone();
        let time = self.session.now();
        set(&mut wanted, changes.iter().map(|change| (change.path().clone(), node_before(change))), time);
        let read = |digest: &Digest| match self.fresh.get(digest) {
            Some(bytes) => Ok(Bytes::clone(bytes)),
            None => self.session.content_to_restore(digest),
        };
        let MergePlan { steps, conflicts, left_out, .. } =
            plan_merge(after, &self.files, &wanted, &MergeChoices::without_generated(), read)?;
        // Entries that others created in a directory of the calls stay, so the directory stays, too.
        let is_in_the_way = |conflict: &MergeConflict| conflict.kind != ConflictKind::DirectoryDeletedByTheirs;
        self.conflicts.extend(conflicts.into_iter().filter(is_in_the_way).map(|conflict| conflict.path));
        self.conflicts.extend(left_out);
        for step in steps {
            match step {
                MergeStep::Delete { path } => self.files.delete(&DeleteEntry { path }),
                MergeStep::Write { path, mode, node, merged } => {
                    if let (Node::File { content, .. }, Some(bytes)) = (&node, merged) {
                        self.fresh.insert(*content, bytes);
                    }
                    self.files.write(&WriteFile { path, mode, node }, time);
                }
            }
        }
        Ok(())
    }

    /// Restores the earlier entries of conflicting paths, and discards later changes there.
    pub(super) fn overwrite(&mut self) {
        let conflicts = std::mem::take(&mut self.conflicts);
        let is_meant = |path: &EntryPath| conflicts.iter().any(|place| place == path || path.is_below(place));
        let meant = self.before.iter().filter(|(path, _)| is_meant(path));
        set(&mut self.files, meant.map(|(path, node)| (path.clone(), node.clone())), self.session.now());
    }

    /// Puts back the entries that `chosen` selects from the changes.
    pub(super) fn keep(
        &mut self,
        chosen: impl FnOnce(&[Change], &VirtualFileSystem) -> Result<Vec<(EntryPath, UndoLeftReason)>, WorkspaceError>,
    ) -> Result<(), WorkspaceError> {
        self.kept = chosen(&self.now.diff(&self.files), &self.files)?;
        for (path, _) in &self.kept {
            for path in directories_above(path).chain([path.clone()]) {
                let node = self.now.node(&path).filter(|node| self.files.node(&path) != Some(node)).cloned();
                if let Some(node) = node {
                    self.files.write(&WriteFile { path, mode: WriteMode::Overwrite, node }, self.session.now());
                }
            }
        }
        Ok(())
    }

    /// Plans the change from the current files to the result. Each rule is applied once, to the result.
    pub(super) fn plan(
        self,
        uncertain: Vec<(EntryPath, UndoLeftReason)>,
        is_forced: bool,
    ) -> Result<UndoPlan, WorkspaceError> {
        let Self { session, now, files, fresh, before, conflicts, kept } = self;
        let wanted = |path: &EntryPath| before.get(path).and_then(Option::as_ref);
        // Taking back an earlier step may have restored the entry after all.
        let conflicts: BTreeSet<EntryPath> =
            conflicts.into_iter().filter(|path| files.node(path) != wanted(path)).collect();
        let mut plan = UndoPlan::between(session, now, &files, (fresh, is_forced))?;
        for path in conflicts {
            let reason = match wanted(&path).is_none_or(can_be_made) {
                true => UndoLeftReason::ChangedSince,
                false => UndoLeftReason::NotKept,
            };
            plan.left.insert(path, reason);
        }
        plan.left.extend(uncertain.into_iter().chain(kept));
        Ok(plan)
    }
}

impl UndoPlan {
    /// Plans the change between two states. With `is_forced`, also removes contents that can't be restored.
    fn between(
        session: &Session,
        now: &VirtualFileSystem,
        files: &VirtualFileSystem,
        (fresh, is_forced): (NewContents, bool),
    ) -> Result<Self, WorkspaceError> {
        let ChangePlan { steps, left, .. } = ChangePlan::kept(session, now, files, (&fresh, is_forced))?;
        let mut plan = Self { steps, fresh, ..Self::default() };
        for path in left {
            let is_there = match files.node(&path) {
                Some(node) => {
                    can_be_made(node) && node.content().map_or(Ok(true), |digest| session.has_content(digest))?
                }
                None => true,
            };
            let reason = if is_there { UndoLeftReason::NotRecoverable } else { UndoLeftReason::NotKept };
            plan.left.insert(path, reason);
        }
        Ok(plan)
    }

    /// Plans to restore earlier entries at and below paths. Newer entries stay.
    ///
    /// # Errors
    /// [`WorkspaceError::NotThere`]: a path did not exist at the position.
    pub(super) fn revert(
        session: &Session,
        now: &VirtualFileSystem,
        (paths, at): (&[EntryPath], Seq),
        is_forced: bool,
    ) -> Result<Self, WorkspaceError> {
        let (mut files, then) = (now.clone(), VirtualFileSystem::of(&session.state_at(at)?));
        for path in paths {
            let own = then.get(path).map(|entry| (path, entry));
            let entries: Vec<_> = own.into_iter().chain(then.below(path)).collect();
            if entries.is_empty() {
                return Err(WorkspaceError::NotThere { path: path.clone(), at });
            }
            let differ = entries.iter().filter(|(path, entry)| now.node(path) != Some(&entry.node));
            set(&mut files, differ.map(|(path, entry)| ((*path).clone(), Some(entry.node.clone()))), session.now());
            relink(&mut files, &then, entries.iter().map(|(path, _)| *path));
        }
        Self::between(session, now, &files, (NewContents::new(), is_forced))
    }
}

/// Sets the entries of paths, given in order. A directory with remaining entries stays.
fn set(files: &mut VirtualFileSystem, wanted: impl Iterator<Item = (EntryPath, Option<Node>)>, time: Timestamp) {
    // Deepest first, so that a directory is empty when it is removed.
    let wanted: Vec<_> = wanted.collect();
    for (path, node) in wanted.into_iter().rev() {
        match node {
            Some(node) => files.write(&WriteFile { path, mode: WriteMode::Overwrite, node }, time),
            None if files.below(&path).next().is_none() => files.delete(&DeleteEntry { path }),
            None => {}
        }
    }
}

fn node_before(change: &Change) -> Option<Node> {
    change.sides().0.map(|entry| entry.node.clone())
}
