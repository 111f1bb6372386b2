//! Three-way merge of file trees by path, as a pure function: the steps to take, and the conflicts.

mod choices;
mod decide;
mod generated;
mod sides;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{VirtualFileSystem, directories_above};
use crate::engine::event::{ConflictKind, MergeConflict, MergeSide, Node, WriteMode};
use crate::engine::{Digest, EntryPath};

pub use choices::MergeChoices;

use decide::EntryDecision;
pub use decide::can_be_made;
use generated::Generated;
use sides::Sides;
pub use text::{ConflictHunk, ConflictSide, conflict_hunks};

/// Steps and conflicts of a merge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergePlan {
    /// Steps in order: removals first, then writes, each directory before its entries.
    pub steps: Vec<MergeStep>,
    /// Conflicting changes, by path; with the chosen side, if any.
    pub conflicts: Vec<MergeConflict>,
    /// Number of hunks of each text with conflicting lines.
    pub hunks: BTreeMap<EntryPath, usize>,
    /// Sockets and devices of the child, which can't be created; and entries of the parent that the child could not
    /// have, which stay.
    pub left_out: Vec<EntryPath>,
    /// Generated files that both sides changed; the parent's stay.
    pub generated: Vec<EntryPath>,
    /// True if the child has changed anything.
    pub has_changes: bool,
}

/// A change of the parent's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeStep {
    /// Removes an entry, with everything below a directory.
    Delete {
        /// Path of the entry.
        path: EntryPath,
    },
    /// Creates or replaces an entry, and creates missing directories above it.
    Write {
        /// Path of the entry.
        path: EntryPath,
        /// Kind of the write.
        mode: WriteMode,
        /// New entry.
        node: Node,
        /// Contents combined from both sides; `None` if they are in the store.
        merged: Option<Bytes>,
    },
}

impl MergeStep {
    /// Returns the path of the entry.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Delete { path } | Self::Write { path, .. } => path,
        }
    }
}

impl MergePlan {
    /// Iterates over the conflicts without a choice. While there is any, the steps must not be taken.
    pub fn open(&self) -> impl Iterator<Item = &MergeConflict> {
        self.conflicts.iter().filter(|conflict| conflict.resolved.is_none())
    }
}

/// Plans a merge by the rules of `tools::merge_child`. Examines only paths that differ. `read`
/// returns contents by their digest.
pub fn plan_merge<E>(
    base: &VirtualFileSystem,
    ours: &VirtualFileSystem,
    theirs: &VirtualFileSystem,
    choices: &MergeChoices,
    mut read: impl FnMut(&Digest) -> Result<Bytes, E>,
) -> Result<MergePlan, E> {
    let sides = Sides::new(base, ours, theirs);
    let generated = Generated::read(&sides, choices, &mut read)?;
    let clashes = sides.clashes(|path| generated.includes(path));
    let mut planning = Planning { sides: &sides, choices, generated, out: MergeDecision::default() };
    for path in sides.of_theirs.iter().filter(|path| !is_within(path, &clashes)) {
        let nodes = sides.nodes(path);
        if sides.are_apart(path) && planning.generated.includes(path) {
            planning.keep_generated(path);
            continue;
        }
        match decide::decide(&sides, path, &|hunk| choices.side_of_hunk(path, hunk), &mut read)? {
            EntryDecision::Nothing => {}
            EntryDecision::Take => planning.out.take(path, nodes.theirs),
            EntryDecision::Merge { node, bytes } => {
                planning.out.writes.insert(path.clone(), (node, bytes));
            }
            EntryDecision::Unavailable => {
                planning.out.unavailable += 1;
                planning.out.left_out.push(path.clone());
                planning.out.keep(path, nodes.ours);
            }
            EntryDecision::LeaveOut => planning.out.left_out.push(path.clone()),
            EntryDecision::Conflict(kind) => planning.conflict(path, kind),
            EntryDecision::Lines(hunks, result) => planning.lines(path, hunks, result),
        }
    }
    for path in sides.made_in_deleted().filter(|path| !is_within(path, &clashes)) {
        planning.conflict(path, ConflictKind::DirectoryDeletedByTheirs);
    }
    clashes.iter().for_each(|path| planning.clash(path));
    Ok(planning.finish())
}

fn is_within(path: &EntryPath, places: &BTreeSet<EntryPath>) -> bool {
    places.contains(path) || directories_above(path).any(|place| places.contains(&place))
}

struct Planning<'a> {
    sides: &'a Sides<'a>,
    choices: &'a MergeChoices,
    generated: Generated<'a>,
    out: MergeDecision,
}

#[derive(Default)]
struct MergeDecision {
    writes: BTreeMap<EntryPath, (Node, Option<Bytes>)>,
    deletes: BTreeSet<EntryPath>,
    conflicts: BTreeMap<EntryPath, MergeConflict>,
    hunks: BTreeMap<EntryPath, usize>,
    left_out: Vec<EntryPath>,
    generated: Vec<EntryPath>,
    /// Entries of the parent that stay although the child's differ.
    kept: BTreeSet<EntryPath>,
    /// Number of entries that only seem to be changed: the child could not have them.
    unavailable: usize,
}

impl MergeDecision {
    /// Takes the child's side of a path.
    fn take(&mut self, path: &EntryPath, theirs: Option<&Node>) {
        match theirs {
            Some(node) => drop(self.writes.insert(path.clone(), (node.clone(), None))),
            None => drop(self.deletes.insert(path.clone())),
        }
    }

    /// Keeps the parent's side of a path.
    fn keep(&mut self, path: &EntryPath, ours: Option<&Node>) {
        self.kept.extend(ours.map(|_| path.clone()));
    }
}

impl Planning<'_> {
    /// Adds a conflict of lines, with the result if each hunk has a chosen side.
    fn lines(&mut self, path: &EntryPath, hunks: usize, result: Option<(Node, Bytes)>) {
        self.out.hunks.insert(path.clone(), hunks);
        let Some((node, bytes)) = result else {
            return self.conflict(path, ConflictKind::Text);
        };
        let nodes = self.sides.nodes(path);
        if Some(&node) == nodes.ours {
            self.out.keep(path, nodes.ours);
        } else {
            let is_theirs = Some(&node) == nodes.theirs;
            self.out.writes.insert(path.clone(), (node, (!is_theirs).then_some(bytes)));
        }
        let sides: Vec<_> = (1..=hunks).filter_map(|hunk| self.choices.side_of_hunk(path, hunk)).collect();
        let is_one = sides.iter().all(|side| Some(side) == sides.first());
        let side = if is_one { sides.first().copied() } else { Some(MergeSide::Mixed) };
        self.note(path, ConflictKind::Text, side);
    }

    fn keep_generated(&mut self, path: &EntryPath) {
        self.out.keep(path, self.sides.nodes(path).ours);
        self.out.generated.push(path.clone());
    }

    fn conflict(&mut self, path: &EntryPath, kind: ConflictKind) {
        if self.generated.includes(path) {
            return self.keep_generated(path);
        }
        let nodes = self.sides.nodes(path);
        let mut resolved = self.choices.side(path);
        if resolved == Some(MergeSide::Theirs) && !nodes.theirs.is_none_or(can_be_made) {
            resolved = None;
        }
        match resolved {
            Some(MergeSide::Theirs) => self.out.take(path, nodes.theirs),
            _ => self.out.keep(path, nodes.ours),
        }
        self.note(path, kind, resolved);
    }

    /// Adds a conflict of all entries at and below a path.
    fn clash(&mut self, path: &EntryPath) {
        let all = self.sides.at_and_below(path);
        let is_incomplete = |node: &Node| matches!(node, Node::File { incomplete: true, .. });
        let can_be_taken = || !all.iter().any(|path| self.sides.nodes(path).theirs.is_some_and(is_incomplete));
        let mut resolved = self.choices.side(path);
        if resolved == Some(MergeSide::Theirs) && !can_be_taken() {
            resolved = None;
        }
        for below in &all {
            let nodes = self.sides.nodes(below);
            match resolved {
                Some(MergeSide::Theirs) if nodes.ours == nodes.theirs => {}
                Some(MergeSide::Theirs) if !nodes.theirs.is_none_or(can_be_made) => {
                    self.out.left_out.push(below.clone());
                }
                Some(MergeSide::Theirs) => self.out.take(below, nodes.theirs),
                _ => self.out.keep(below, nodes.ours),
            }
        }
        self.note(path, ConflictKind::Kind, resolved);
    }

    fn note(&mut self, path: &EntryPath, kind: ConflictKind, resolved: Option<MergeSide>) {
        let nodes = self.sides.nodes(path);
        let (base, ours, theirs) = (nodes.base.cloned(), nodes.ours.cloned(), nodes.theirs.cloned());
        let conflict = MergeConflict { path: path.clone(), kind, base, ours, theirs, resolved };
        self.out.conflicts.insert(path.clone(), conflict);
    }

    /// Orders the steps so that each is possible.
    fn finish(self) -> MergePlan {
        let MergeDecision { writes, deletes, conflicts, hunks, mut left_out, mut generated, kept, unavailable } =
            self.out;
        let sides = self.sides;
        let keeps_something = |path: &EntryPath| sides::below(&kept, path).next().is_some();
        let going: BTreeSet<EntryPath> = deletes.into_iter().filter(|path| !keeps_something(path)).collect();
        let replaced = |path: &EntryPath| writes.get(path).is_some_and(|(node, _)| !node.is_directory());
        let goes_with_another =
            |path: &EntryPath| directories_above(path).any(|place| going.contains(&place) || replaced(&place));
        let topmost = going.iter().filter(|path| !goes_with_another(path));
        let mut steps: Vec<MergeStep> = topmost.map(|path| MergeStep::Delete { path: path.clone() }).collect();
        let written: BTreeSet<EntryPath> = writes.keys().cloned().collect();
        for (path, (node, merged)) in writes {
            let is_new = sides.ours.get(&path).is_none();
            let comes_with_another = || sides::below(&written, &path).next().is_some();
            if node.is_implied() && is_new && comes_with_another() {
                continue;
            }
            let mode = if is_new { WriteMode::Create } else { WriteMode::Overwrite };
            steps.push(MergeStep::Write { path, mode, node, merged });
        }
        left_out.sort();
        generated.sort();
        let has_changes = sides.of_theirs.len() > unavailable;
        MergePlan { steps, conflicts: conflicts.into_values().collect(), hunks, left_out, generated, has_changes }
    }
}
