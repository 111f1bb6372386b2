//! Reducer of the files, in two shapes with one rule: a persistent map for few events, a hash table for many.

use super::leaves::Leaves;
use super::links::HardLinks;
use super::table::EntryTable;
use super::{Entry, EntryMap, VirtualFileSystem};
use crate::engine::event::{CodecError, Common, Event, LinkFile, Node, delete_path};
use crate::engine::path::parent_bytes;
use crate::engine::reducer::Folding;
use crate::engine::{EntryPath, EventRef, Timestamp};

/// Minimum events that make a hash table worth building.
const MANY: usize = 512;
/// Maximum directory removals before the hash table is abandoned, because each searches all of it.
const SEARCHES_MAX: usize = 32;

/// Puts a node at a path. Returns true if entries below a directory had to be searched.
pub(super) fn write(tree: &mut impl EntryMap, raw: &[u8], node: Node, time: Timestamp) -> Result<bool, &'static str> {
    if let Some(entry) = tree.get_mut(raw) {
        let searched = entry.is_directory() && !node.is_directory();
        entry.node = node;
        entry.version += 1;
        entry.updated_at = time;
        if searched {
            tree.remove_below(&EntryPath::from_bytes(raw).map_err(|_| "a path is malformed")?);
        }
        return Ok(searched);
    }
    let path = EntryPath::from_bytes(raw).map_err(|_| "a path is malformed")?;
    if path.is_root() {
        return Err("the root can't be written");
    }
    if path.as_bytes() != raw {
        return write(tree, path.as_bytes(), node, time);
    }
    add_parents(tree, &path, time);
    tree.add(path, Entry { node, version: 1, created_at: time, updated_at: time });
    Ok(false)
}

/// Makes every ancestor a directory, even if it was a file.
fn add_parents(tree: &mut impl EntryMap, path: &EntryPath, time: Timestamp) {
    let mut bytes = path.as_bytes();
    while let Some(parent) = parent_bytes(bytes).filter(|parent| !parent.is_empty()) {
        if tree.is_directory(parent) == Some(true) {
            return;
        }
        if let Some(entry) = tree.get_mut(parent) {
            entry.node = Node::DIRECTORY;
            entry.version += 1;
            entry.updated_at = time;
            return;
        }
        if let Ok(parent) = EntryPath::from_bytes(parent) {
            tree.add(parent, Entry { node: Node::DIRECTORY, version: 1, created_at: time, updated_at: time });
        }
        bytes = parent;
    }
}

pub(super) fn delete(tree: &mut impl EntryMap, raw: &[u8]) -> Result<bool, &'static str> {
    let path = EntryPath::from_bytes(raw).map_err(|_| "a path is malformed")?;
    let Some(removed) = tree.remove(path.as_bytes()) else { return Ok(false) };
    if removed.is_directory() {
        tree.remove_below(&path);
    }
    Ok(removed.is_directory())
}

/// Makes the path of a link another name of its file.
pub(super) fn link(tree: &impl EntryMap, links: &mut HardLinks, event: &LinkFile) {
    let is_file = |path: &EntryPath| tree.is_directory(path.as_bytes()) == Some(false);
    if is_file(&event.path) && is_file(&event.to) {
        links.join(&event.path, &event.to);
    }
}

/// Applies an event to a tree; returns true if the whole tree had to be searched.
fn apply(tree: &mut impl EntryMap, links: &mut HardLinks, event: &EventRef<'_>) -> Result<bool, CodecError> {
    let outcome = if event.common == Common::WriteFile {
        let view = event.written()?;
        let unknown = || CodecError::new(event.kind, event.version, "unknown kind of entry");
        let node = view.node().ok_or_else(unknown)?;
        links.written(view.path(), node.is_directory());
        write(tree, view.path(), node, event.time)
    } else if event.common == Common::DeleteEntry {
        let path = delete_path(event.version, event.payload)?;
        links.removed(path);
        delete(tree, path)
    } else if event.kind == LinkFile::KIND {
        link(tree, links, &LinkFile::decode(event.version, event.payload)?);
        Ok(false)
    } else {
        Ok(false)
    };
    outcome.map_err(|what| CodecError::new(event.kind, event.version, what))
}

pub(super) fn open(slice: VirtualFileSystem, expected: usize) -> Box<dyn Folding<VirtualFileSystem>> {
    let VirtualFileSystem { entries, links } = slice;
    let is_few = expected < MANY || expected < entries.len() * 3 / 2;
    let mut table = EntryTable::with_capacity(if is_few { 0 } else { entries.len() });
    let all_fit = entries.iter().take_while(|_| !is_few).all(|(path, entry)| {
        table.add(path.clone(), entry.clone());
        table.has_room()
    });
    let tree = if is_few || !all_fit { Shape::Ordered(entries) } else { Shape::Hashed(table) };
    Box::new(TreeFold { tree, links, searches: 0 })
}

struct TreeFold {
    tree: Shape,
    links: HardLinks,
    searches: usize,
}

enum Shape {
    Hashed(EntryTable),
    Ordered(Leaves),
}

impl Folding<VirtualFileSystem> for TreeFold {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        match &mut self.tree {
            Shape::Ordered(tree) => {
                apply(tree, &mut self.links, event)?;
            }
            Shape::Hashed(tree) => {
                self.searches += usize::from(apply(tree, &mut self.links, event)?);
                if self.searches > SEARCHES_MAX || !tree.has_room() {
                    self.tree = Shape::Ordered(Leaves::from_sorted(std::mem::take(tree).into_sorted()));
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> VirtualFileSystem {
        let entries = match self.tree {
            Shape::Ordered(tree) => tree,
            Shape::Hashed(tree) => Leaves::from_sorted(tree.into_sorted()),
        };
        VirtualFileSystem { entries, links: self.links }
    }
}
