//! Reducer of the files, in two shapes with one rule: a persistent map for few events, a hash table for many.

use super::leaves::Leaves;
use super::table::EntryTable;
use super::{Entry, VirtualFileSystem, range_below};
use crate::engine::clock::Timestamp;
use crate::engine::event::{CodecError, Common, DeleteEntry, Node, WriteFile, delete_path, node_code};
use crate::engine::path::{EntryPath, parent_bytes};
use crate::engine::recorded::EventRef;
use crate::engine::reducer::Folding;

/// Events below which a hash map is not worth building.
const MANY: usize = 512;
/// Directory removals after which a hash table, which has to be searched whole for each, is given up.
const SEARCHES_MAX: usize = 32;

/// The rule needs only these of a map. No order of iteration shows through them.
trait EntryMap {
    /// None where nothing is.
    fn is_directory(&self, path: &[u8]) -> Option<bool>;
    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry>;
    /// Puts in an entry where nothing is.
    fn add(&mut self, path: EntryPath, entry: Entry);
    fn remove(&mut self, path: &[u8]) -> Option<Entry>;
    fn remove_below(&mut self, path: &EntryPath);
}

impl EntryMap for Leaves {
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        Self::is_directory(self, path)
    }

    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        Self::get_mut(self, path)
    }

    fn add(&mut self, path: EntryPath, entry: Entry) {
        Self::add(self, path, entry);
    }

    fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        Self::remove(self, path)
    }

    fn remove_below(&mut self, path: &EntryPath) {
        let (from, until) = range_below(path.as_bytes());
        let below: Vec<EntryPath> = self.range(from, until).map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| {
            Self::remove(self, path.as_bytes());
        });
    }
}

impl EntryMap for EntryTable {
    #[inline]
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        Self::get(self, path).map(Entry::is_directory)
    }

    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        Self::get_mut(self, path)
    }

    fn add(&mut self, path: EntryPath, entry: Entry) {
        Self::insert(self, path, entry);
    }

    fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        Self::remove(self, path)
    }

    fn remove_below(&mut self, path: &EntryPath) {
        self.remove_where(|other| other.is_below(path));
    }
}

/// Puts a node at a path. Gives whether a directory had to be searched for what was below it.
fn write(tree: &mut impl EntryMap, raw: &[u8], node: Node, time: Timestamp) -> Result<bool, &'static str> {
    if let Some(entry) = tree.get_mut(raw) {
        let searched = entry.is_directory() && node != Node::Directory;
        entry.node = node;
        entry.version += 1;
        entry.updated_at = time;
        if searched {
            tree.remove_below(&EntryPath::from_bytes(raw).map_err(|_| "a path makes no sense")?);
        }
        return Ok(searched);
    }
    let path = EntryPath::from_bytes(raw).map_err(|_| "a path makes no sense")?;
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

/// Makes every ancestor a directory; one that was a file is a directory from now on.
fn add_parents(tree: &mut impl EntryMap, path: &EntryPath, time: Timestamp) {
    let mut bytes = path.as_bytes();
    while let Some(parent) = parent_bytes(bytes).filter(|parent| !parent.is_empty()) {
        if tree.is_directory(parent) == Some(true) {
            return;
        }
        if let Some(entry) = tree.get_mut(parent) {
            entry.node = Node::Directory;
            entry.version += 1;
            entry.updated_at = time;
            return;
        }
        if let Ok(parent) = EntryPath::from_bytes(parent) {
            tree.add(parent, Entry { node: Node::Directory, version: 1, created_at: time, updated_at: time });
        }
        bytes = parent;
    }
}

fn delete(tree: &mut impl EntryMap, raw: &[u8]) -> Result<bool, &'static str> {
    let removed = match tree.remove(raw) {
        Some(removed) => removed,
        None => {
            let path = EntryPath::from_bytes(raw).map_err(|_| "a path makes no sense")?;
            match tree.remove(path.as_bytes()) {
                Some(removed) => removed,
                None => return Ok(false),
            }
        }
    };
    if removed.is_directory() {
        tree.remove_below(&EntryPath::from_bytes(raw).map_err(|_| "a path makes no sense")?);
    }
    Ok(removed.is_directory())
}

/// Applies an event to a tree; gives whether a whole tree had to be searched.
fn apply(tree: &mut impl EntryMap, event: &EventRef<'_>) -> Result<bool, CodecError> {
    let outcome = if event.common == Common::WriteFile {
        let view = event.written()?;
        let node = match view.code() {
            // The common case, without going through the codec's own match.
            node_code::FILE | node_code::EXECUTABLE => view.node().unwrap_or(Node::Directory),
            _ => view.node().ok_or_else(|| CodecError::new(event.kind, event.version, "unknown kind of entry"))?,
        };
        write(tree, view.path(), node, event.time)
    } else if event.common == Common::DeleteEntry {
        delete(tree, delete_path(event.version, event.payload)?)
    } else {
        Ok(false)
    };
    outcome.map_err(|what| CodecError::new(event.kind, event.version, what))
}

/// The same for an event that is a value; its path is normal, so nothing can be wrong with it.
pub(super) fn write_event(tree: &mut Leaves, event: &WriteFile, time: Timestamp) {
    let written = write(tree, event.path.as_bytes(), event.node.clone(), time);
    debug_assert!(written.is_ok() || event.path.is_root(), "a normal path can be written");
}

pub(super) fn delete_event(tree: &mut Leaves, event: &DeleteEntry) {
    let deleted = delete(tree, event.path.as_bytes());
    debug_assert!(deleted.is_ok(), "a normal path can be removed");
}

pub(super) fn open(slice: VirtualFileSystem, expected: usize) -> Box<dyn Folding<VirtualFileSystem>> {
    if expected < MANY || expected < slice.len() * 3 / 2 {
        return Box::new(TreeFold { tree: Shape::Ordered(slice.entries), searches: 0 });
    }
    let mut table = EntryTable::with_capacity(slice.len());
    let all_fit = slice.iter().all(|(path, entry)| {
        table.insert(path.clone(), entry.clone());
        table.has_room()
    });
    if !all_fit {
        return Box::new(TreeFold { tree: Shape::Ordered(slice.entries), searches: 0 });
    }
    Box::new(TreeFold { tree: Shape::Hashed(table), searches: 0 })
}

struct TreeFold {
    tree: Shape,
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
                apply(tree, event)?;
            }
            Shape::Hashed(tree) => {
                self.searches += usize::from(apply(tree, event)?);
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
        VirtualFileSystem { entries }
    }
}
