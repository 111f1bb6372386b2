//! The files of a workspace as a slice.

mod blocks;
mod folding;
mod leaf;
mod leaves;
mod links;
mod table;

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use leaves::Leaves;
use links::HardLinks;

use crate::engine::event::{DeleteEntry, Event, LinkFile, Node, WriteFile};
use crate::engine::{EntryPath, Registry, Slice, SliceError, State, Timestamp, ValueError};

/// Map of entries by path, as far as the fold needs it. Its order of iteration has no effect.
trait EntryMap {
    /// Returns true for a directory, false for another entry, `None` without an entry.
    fn is_directory(&self, path: &[u8]) -> Option<bool>;
    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry>;
    /// Adds an entry at a path without one.
    fn add(&mut self, path: EntryPath, entry: Entry);
    fn remove(&mut self, path: &[u8]) -> Option<Entry>;
    fn remove_below(&mut self, path: &EntryPath);
}

/// Every entry of the workspace, by path in lexicographic (byte) order.
///
/// Invariant: the directory of every entry is an entry, a directory itself. The root is not an entry.
/// Clones share their structure: one costs nanoseconds, and a change copies a few nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtualFileSystem {
    entries: Leaves,
    #[serde(skip)]
    links: HardLinks,
}

/// One entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Kind of the entry, with its contents.
    #[serde(flatten)]
    pub node: Node,
    /// 1 at first, incremented by each write.
    pub version: u64,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last write.
    pub updated_at: Timestamp,
}

impl Entry {
    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        self.node.is_directory()
    }

    /// Returns the bytes of a file's contents; 0 for any other entry.
    pub fn size(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            Node::Symlink { .. } | Node::Directory { .. } | Node::Special { .. } => 0,
        }
    }
}

/// A difference between two states of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// Entry of the later state only.
    Added {
        /// Path of the entry.
        path: EntryPath,
        /// New entry.
        after: Entry,
    },
    /// Entry of the earlier state only.
    Removed {
        /// Path of the entry.
        path: EntryPath,
        /// Old entry.
        before: Entry,
    },
    /// Entry that differs between the states.
    Changed {
        /// Path of the entry.
        path: EntryPath,
        /// Old entry.
        before: Entry,
        /// New entry.
        after: Entry,
    },
}

impl Change {
    /// Returns the path of the entry.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Added { path, .. } | Self::Removed { path, .. } | Self::Changed { path, .. } => path,
        }
    }

    /// Returns the entries before and after.
    pub fn sides(&self) -> (Option<&Entry>, Option<&Entry>) {
        match self {
            Self::Added { after, .. } => (None, Some(after)),
            Self::Removed { before, .. } => (Some(before), None),
            Self::Changed { before, after, .. } => (Some(before), Some(after)),
        }
    }
}

impl VirtualFileSystem {
    /// Returns the files of a state; empty if the state lacks this slice. The copy shares their structure.
    pub fn of(state: &State) -> Self {
        state.slice::<Self>().cloned().unwrap_or_default()
    }

    /// Applies a write, as the reducer would at that time.
    pub fn write(&mut self, event: &WriteFile, time: Timestamp) {
        self.links.written(event.path.as_bytes(), event.node.is_directory());
        let written = folding::write(&mut self.entries, event.path.as_bytes(), event.node.clone(), time);
        debug_assert!(written.is_ok() || event.path.is_root(), "a normal path can be written");
    }

    /// Applies a removal, as the reducer would.
    pub fn delete(&mut self, event: &DeleteEntry) {
        self.links.removed(event.path.as_bytes());
        let deleted = folding::delete(&mut self.entries, event.path.as_bytes());
        debug_assert!(deleted.is_ok(), "a normal path can be removed");
    }

    /// Applies a hard link, as the reducer would.
    pub fn link(&mut self, event: &LinkFile) {
        folding::link(&self.entries, &mut self.links, event);
    }

    /// Returns the names of the file at `path`, in order. Empty for a file with one name in the workspace.
    pub fn names(&self, path: &EntryPath) -> Vec<EntryPath> {
        self.links.names(path)
    }

    /// Returns the first name of the file at `path`, if it has several.
    #[doc(hidden)]
    pub fn first_name(&self, path: &EntryPath) -> Option<&EntryPath> {
        self.links.first(path)
    }

    /// Returns true if a file has several names.
    #[doc(hidden)]
    pub fn has_hard_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Returns the names of each file that has several.
    pub fn hard_links(&self) -> Vec<Vec<EntryPath>> {
        self.links.all()
    }

    /// Returns the entry at `path`; `None` for the root, and without an entry.
    pub fn get(&self, path: &EntryPath) -> Option<&Entry> {
        self.entries.get(path.as_bytes())
    }

    #[doc(hidden)]
    pub fn node(&self, path: &EntryPath) -> Option<&Node> {
        self.get(path).map(|entry| &entry.node)
    }

    /// Returns true if `path` is a directory; the root is one.
    pub fn is_directory(&self, path: &EntryPath) -> bool {
        path.is_root() || self.get(path).is_some_and(Entry::is_directory)
    }

    /// Returns the number of entries, including directories.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryPath, &Entry)> {
        self.entries.iter()
    }

    /// Iterates over the entries below a directory, at any depth, in order.
    pub fn below<'a>(&'a self, directory: &EntryPath) -> impl Iterator<Item = (&'a EntryPath, &'a Entry)> + use<'a> {
        let (from, until) = range_below(directory.as_bytes());
        self.entries.range(from, until)
    }

    /// Iterates over the entries from a path on, in order; the path may be a prefix.
    #[doc(hidden)]
    pub fn starting_at(&self, from: Bound<Vec<u8>>) -> impl Iterator<Item = (&EntryPath, &Entry)> + use<'_> {
        self.entries.range(from, Bound::Unbounded)
    }

    /// Iterates over the entries directly in a directory, in order. Each step costs one search, whatever is deeper.
    pub fn children<'a>(&'a self, directory: &EntryPath) -> impl Iterator<Item = (&'a EntryPath, &'a Entry)> + use<'a> {
        let (mut from, until) = range_below(directory.as_bytes());
        let directory = directory.clone();
        std::iter::from_fn(move || {
            loop {
                let (path, entry) = self.entries.range(from.clone(), until.clone()).next()?;
                let relative = path.relative_to(&directory)?;
                match relative.iter().position(|byte| *byte == b'/') {
                    None => {
                        from = Bound::Excluded(path.as_bytes().to_vec());
                        return Some((path, entry));
                    }
                    Some(cut) => {
                        // Skips everything below that directory.
                        let end = path.as_bytes().len() - relative.len() + cut;
                        from = Bound::Included([&path.as_bytes()[..end], &[b'/' + 1]].concat());
                    }
                }
            }
        })
    }

    /// Returns the differences to `later`, in order. The cost depends on the difference, not on the whole.
    pub fn diff(&self, later: &Self) -> Vec<Change> {
        let (before, after) = self.entries.differing(&later.entries);
        let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
        let mut changes = Vec::new();
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = before.next_if(|_| order.is_le()).cloned();
            let new = after.next_if(|_| order.is_ge()).cloned();
            match (old, new) {
                (Some((path, before)), Some((_, after))) if before.node != after.node => {
                    changes.push(Change::Changed { path, before, after });
                }
                (Some((path, before)), None) => changes.push(Change::Removed { path, before }),
                (None, Some((path, after))) => changes.push(Change::Added { path, after }),
                _ => {}
            }
        }
    }
}

/// Returns the range of the paths below a directory.
pub(super) fn range_below(directory: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    if directory.is_empty() {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    (Bound::Excluded([directory, b"/"].concat()), Bound::Excluded([directory, &[b'/' + 1]].concat()))
}

impl Slice for VirtualFileSystem {
    const NAME: &'static str = "VirtualFileSystem";

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        let mut blocks = self.entries.to_blocks();
        blocks.extend(self.links.to_blocks());
        Ok(blocks)
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let failed = |what| SliceError::new(Self::NAME, what);
        let (entries, links) = blocks.split_at(blocks.partition_point(|block| !HardLinks::is_block(block)));
        let (entries, links) = (Leaves::from_blocks(entries), HardLinks::from_blocks(links));
        Ok(Self { entries: entries.map_err(failed)?, links: links.map_err(failed)? })
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .folded_slice::<VirtualFileSystem>(Some(&[WriteFile::KIND, DeleteEntry::KIND, LinkFile::KIND]), folding::open)
}
