//! The three trees of a merge, and where they differ.

use std::collections::BTreeSet;

use super::is_within;
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::reducers::virtual_file_system::range_below;
use crate::reducers::{Change, Entry, VirtualFileSystem, directories_above};

/// Three trees, and the paths where two of them differ from the first.
pub(super) struct Sides<'a> {
    pub(super) base: &'a VirtualFileSystem,
    pub(super) ours: &'a VirtualFileSystem,
    pub(super) theirs: &'a VirtualFileSystem,
    pub(super) of_ours: BTreeSet<EntryPath>,
    pub(super) of_theirs: BTreeSet<EntryPath>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes<'a> {
    pub(super) base: Option<&'a Node>,
    pub(super) ours: Option<&'a Node>,
    pub(super) theirs: Option<&'a Node>,
}

impl<'a> Sides<'a> {
    pub(super) fn new(base: &'a VirtualFileSystem, ours: &'a VirtualFileSystem, theirs: &'a VirtualFileSystem) -> Self {
        let changed = |side: &VirtualFileSystem| base.diff(side).iter().map(Change::path).cloned().collect();
        Self { base, ours, theirs, of_ours: changed(ours), of_theirs: changed(theirs) }
    }

    pub(super) fn nodes(&self, path: &EntryPath) -> Nodes<'a> {
        Nodes { base: self.base.node(path), ours: self.ours.node(path), theirs: self.theirs.node(path) }
    }

    /// Returns the topmost places where one side has a directory with entries and the other something else, except
    /// places that affect ignored paths only.
    pub(super) fn clashes(&self, is_ignored: impl Fn(&EntryPath) -> bool) -> BTreeSet<EntryPath> {
        let clash = |path| self.clash(path).filter(|_| !is_ignored(path));
        let found: BTreeSet<EntryPath> = self.of_theirs.iter().filter_map(clash).collect();
        let is_topmost = |path: &&EntryPath| path.parent().is_none_or(|parent| !is_within(&parent, &found));
        found.iter().filter(is_topmost).cloned().collect()
    }

    /// Returns true if both sides changed a path of the child in different ways, or clash there.
    pub(super) fn are_apart(&self, path: &EntryPath) -> bool {
        let Nodes { ours, theirs, .. } = self.nodes(path);
        let are_directories = [ours, theirs].iter().all(|node| node.is_some_and(Node::is_directory));
        self.of_ours.contains(path) && ours != theirs && !are_directories || self.clash(path).is_some()
    }

    /// Returns the place at or above a path of the child where the two sides clash.
    fn clash(&self, path: &EntryPath) -> Option<EntryPath> {
        let Nodes { base, ours, theirs } = self.nodes(path);
        if let Some(above) = self.blocked(path).filter(|_| theirs.is_some()) {
            return Some(above);
        }
        let was_a_directory = base.is_some_and(Node::is_directory);
        let was_a_file = base.is_some() && !was_a_directory;
        let is_directory = |side: Option<&Node>| side.map(Node::is_directory);
        let clashes = match (is_directory(ours), is_directory(theirs)) {
            (Some(true), Some(true)) | (None, None) => false,
            (Some(true), Some(false)) => !was_a_directory || self.have_more_below(path),
            (Some(true), None) | (None, Some(true)) => was_a_file,
            (Some(false), Some(true)) => ours != base,
            _ => false,
        };
        clashes.then(|| path.clone())
    }

    /// Returns the parent's entry in place of a directory of the child above the path.
    fn blocked(&self, path: &EntryPath) -> Option<EntryPath> {
        let place = directories_above(path).find(|place| self.ours.get(place).is_some())?;
        let Nodes { base, ours, .. } = self.nodes(&place);
        (!ours.is_some_and(Node::is_directory) && ours != base).then_some(place)
    }

    fn have_more_below(&self, path: &EntryPath) -> bool {
        below(&self.of_ours, path).any(|path| self.ours.get(path).is_some())
    }

    /// Returns true if the parent has removed a directory above the path.
    pub(super) fn is_in_deleted(&self, path: &EntryPath) -> bool {
        let mut missing = directories_above(path).take_while(|place| self.ours.get(place).is_none());
        missing.any(|place| self.base.get(&place).is_some_and(Entry::is_directory))
    }

    /// Lists files and empty directories that the parent created in directories that the child removed.
    pub(super) fn made_in_deleted(&self) -> impl Iterator<Item = &EntryPath> {
        let is_deleted = move |path: &&EntryPath| {
            let nodes = self.nodes(path);
            nodes.base.is_some_and(Node::is_directory) && nodes.theirs.is_none()
        };
        // Deeper entries are found with the topmost removed directory.
        let is_topmost = move |path: &&EntryPath| path.parent().is_none_or(|parent| !is_deleted(&&parent));
        let directories = self.of_theirs.iter().filter(is_deleted).filter(is_topmost);
        let made = directories.flat_map(|directory| below(&self.of_ours, directory));
        made.filter(move |path| {
            let nodes = self.nodes(path);
            nodes.base.is_none() && nodes.ours.is_some() && is_leaf(self.ours, path)
        })
    }

    /// Returns the paths, at and below a path, where the two sides may differ.
    pub(super) fn at_and_below(&self, path: &EntryPath) -> BTreeSet<EntryPath> {
        let below = below(&self.of_ours, path).chain(below(&self.of_theirs, path));
        below.chain([path]).cloned().collect()
    }
}

pub(super) fn is_leaf(side: &VirtualFileSystem, path: &EntryPath) -> bool {
    side.below(path).next().is_none()
}

pub(super) fn below<'a>(
    set: &'a BTreeSet<EntryPath>,
    path: &EntryPath,
) -> impl Iterator<Item = &'a EntryPath> + use<'a> {
    let (from, until) = range_below(path.as_bytes());
    set.range::<[u8], _>((from.as_ref().map(Vec::as_slice), until.as_ref().map(Vec::as_slice)))
}
