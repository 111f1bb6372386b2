//! Part of the tree, followed through the events by the rules of `VirtualFileSystem`.

use std::collections::BTreeMap;

use super::FileEvent;
use crate::engine::event::{DeleteEntry, Node, WriteFile};
use crate::engine::path::{EntryPath, directories_above};
use crate::engine::recorded::EventRef;

pub(super) struct WatchedEntry {
    root: EntryPath,
    live: BTreeMap<EntryPath, Node>,
}

pub(super) struct EntryStep {
    pub(super) path: EntryPath,
    pub(super) before: Option<Node>,
    pub(super) after: Option<Node>,
}

impl WatchedEntry {
    pub(super) fn new(root: EntryPath) -> Self {
        Self { root, live: BTreeMap::new() }
    }

    /// Returns the changes that an event makes here, with the path that it names.
    pub(super) fn take(&mut self, event: &EventRef<'_>) -> Option<(EntryPath, Vec<EntryStep>)> {
        match FileEvent::of(event)? {
            FileEvent::Write(WriteFile { path, node, .. }) => {
                let steps = self.write(&path, node);
                Some((path, steps))
            }
            FileEvent::Delete(DeleteEntry { path }) => {
                let steps = self.delete(&path);
                Some((path, steps))
            }
        }
    }

    fn is_inside(&self, path: &EntryPath) -> bool {
        *path == self.root || path.is_below(&self.root)
    }

    fn write(&mut self, path: &EntryPath, node: Node) -> Vec<EntryStep> {
        if path.is_root() {
            return Vec::new();
        }
        if !self.is_inside(path) {
            // Only a directory has entries below it.
            let replaces = self.root.is_below(path) && !node.is_directory();
            return if replaces { self.remove_all() } else { Vec::new() };
        }
        let mut steps: Vec<_> = self.add_parents(path).into_iter().collect();
        let before = self.live.remove(path);
        if !node.is_directory() {
            let files = remove(&mut self.live, path).into_iter().filter(|(_, before)| !before.is_directory());
            steps.extend(files.map(EntryStep::removed));
        }
        self.live.insert(path.clone(), node.clone());
        steps.push(EntryStep { path: path.clone(), before, after: Some(node) });
        steps
    }

    /// Creates the directories above a path. Returns the change of a file that became one.
    fn add_parents(&mut self, path: &EntryPath) -> Option<EntryStep> {
        for path in directories_above(path) {
            if !self.is_inside(&path) {
                break;
            }
            if self.live.get(&path).is_some_and(Node::is_directory) {
                return None;
            }
            if let Some(before) = self.live.insert(path.clone(), Node::DIRECTORY) {
                return Some(EntryStep { path, before: Some(before), after: Some(Node::DIRECTORY) });
            }
        }
        None
    }

    /// Removes an entry and everything below it; directories below it are not reported.
    fn delete(&mut self, path: &EntryPath) -> Vec<EntryStep> {
        if self.root.is_below(path) {
            return self.remove_all();
        }
        let gone = remove(&mut self.live, path).into_iter();
        gone.filter(|(gone, before)| gone == path || !before.is_directory()).map(EntryStep::removed).collect()
    }

    fn remove_all(&mut self) -> Vec<EntryStep> {
        std::mem::take(&mut self.live).into_iter().map(EntryStep::removed).collect()
    }
}

impl EntryStep {
    fn removed((path, before): (EntryPath, Node)) -> Self {
        Self { path, before: Some(before), after: None }
    }
}

/// Removes the entries below a path, then the one at it.
pub(super) fn remove<T>(live: &mut BTreeMap<EntryPath, T>, path: &EntryPath) -> Vec<(EntryPath, T)> {
    // Entries below it follow it in order, though not contiguously: `a-b` is between `a` and `a/b`.
    let after = live.range(path.clone()..).map(|(path, _)| path);
    let begins = |other: &&EntryPath| other.as_bytes().starts_with(path.as_bytes());
    let mut gone: Vec<_> = after.take_while(begins).filter(|other| other.is_below(path)).cloned().collect();
    gone.push(path.clone());
    gone.into_iter().filter_map(|path| live.remove_entry(&path)).collect()
}

/// Removes what a write replaces: a file above the path, the entry at it and, unless the new entry is a directory,
/// everything below it.
pub(super) fn replace<T>(live: &mut BTreeMap<EntryPath, T>, path: &EntryPath, node: &Node) -> Vec<(EntryPath, T)> {
    let mut gone: Vec<_> = directories_above(path).filter_map(|above| live.remove_entry(&above)).collect();
    match node {
        Node::Directory { .. } => gone.extend(live.remove_entry(path)),
        _ => gone.extend(remove(live, path)),
    }
    gone
}
