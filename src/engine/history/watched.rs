//! Part of the tree that is followed through the events, by the rules of `VirtualFileSystem`.

use std::collections::BTreeMap;

use super::FileEvent;
use crate::engine::event::{DeleteEntry, Node, WriteFile};
use crate::engine::path::EntryPath;
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
            let replaces = self.root.is_below(path) && node != Node::Directory;
            return if replaces { self.remove_all() } else { Vec::new() };
        }
        let mut steps = self.add_parents(path);
        if node != Node::Directory {
            steps.extend(self.remove_below(path));
        }
        let before = self.live.insert(path.clone(), node.clone());
        steps.push(EntryStep { path: path.clone(), before, after: Some(node) });
        steps
    }

    /// Creates the directories above a path. Only a file that became one is reported.
    fn add_parents(&mut self, path: &EntryPath) -> Vec<EntryStep> {
        let mut steps = Vec::new();
        let mut above = path.parent();
        while let Some(directory) = above.filter(|directory| !directory.is_root() && self.is_inside(directory)) {
            let before = self.live.insert(directory.clone(), Node::Directory);
            match before {
                Some(Node::Directory) => return steps,
                Some(before) => {
                    let (before, after) = (Some(before), Some(Node::Directory));
                    steps.push(EntryStep { path: directory, before, after });
                    return steps;
                }
                None => above = directory.parent(),
            }
        }
        steps
    }

    fn delete(&mut self, path: &EntryPath) -> Vec<EntryStep> {
        if self.root.is_below(path) {
            return self.remove_all();
        }
        if !self.is_inside(path) {
            return Vec::new();
        }
        let Some(before) = self.live.remove(path) else { return Vec::new() };
        let mut steps = self.remove_below(path);
        steps.push(EntryStep { path: path.clone(), before: Some(before), after: None });
        steps
    }

    fn remove_all(&mut self) -> Vec<EntryStep> {
        let gone = std::mem::take(&mut self.live);
        gone.into_iter().map(|(path, before)| EntryStep { path, before: Some(before), after: None }).collect()
    }

    /// Removes the entries below a path; directories are not reported.
    fn remove_below(&mut self, path: &EntryPath) -> Vec<EntryStep> {
        let below = below(&self.live, path);
        let gone = below.into_iter().filter_map(|path| self.live.remove_entry(&path));
        let gone = gone.filter(|(_, before)| *before != Node::Directory);
        gone.map(|(path, before)| EntryStep { path, before: Some(before), after: None }).collect()
    }
}

pub(super) fn below<T>(map: &BTreeMap<EntryPath, T>, directory: &EntryPath) -> Vec<EntryPath> {
    // Entries below it follow it in order, though not all in a row: `a-b` is between `a` and `a/b`.
    let after = map.range(directory.clone()..).map(|(path, _)| path);
    let begins = |path: &&EntryPath| path.as_bytes().starts_with(directory.as_bytes());
    after.take_while(begins).filter(|path| path.is_below(directory)).cloned().collect()
}
