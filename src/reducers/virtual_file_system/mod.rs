//! The files of a workspace as a slice.

mod blocks;
mod folding;

use std::ops::Bound;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::clock::Timestamp;
use crate::engine::collections::{DiffItem, OrdMap};
use crate::engine::event::{DeleteEntry, Event, Node, WriteFile};
use crate::engine::path::EntryPath;
use crate::engine::registry::{Registry, RegistryError};
use crate::engine::slice::{Slice, SliceError};

/// Every entry of the workspace, by path in lexicographic (byte) order.
///
/// Invariant: the directory of every entry is an entry, a directory itself. The root is not an entry.
/// Clones share their structure: one costs nanoseconds, and a change copies a few nodes.
///
/// ```
/// use foldspace::VirtualFileSystem;
/// assert!(VirtualFileSystem::default().is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VirtualFileSystem {
    entries: OrdMap<EntryPath, Entry>,
}

/// One entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    #[serde(flatten)]
    pub node: Node,
    /// 1 at first, one more with every write.
    pub version: u64,
    /// When it came into being.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl Entry {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.node == Node::Directory
    }

    /// Bytes of a file's contents; 0 for anything else.
    pub fn size(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            Node::Symlink { .. } | Node::Directory => 0,
        }
    }

    /// Whether `other` stands for the same thing, whatever its version and times.
    fn same_node(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// A difference between two states of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// It is there only in the later state.
    Added {
        /// Where.
        path: EntryPath,
        /// What.
        after: Entry,
    },
    /// It is there only in the earlier state.
    Removed {
        /// Where.
        path: EntryPath,
        /// What it was.
        before: Entry,
    },
    /// It is something else, or holds something else, in the later state.
    Changed {
        /// Where.
        path: EntryPath,
        /// What it was.
        before: Entry,
        /// What it is.
        after: Entry,
    },
}

impl Change {
    /// The path that it concerns.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Added { path, .. } | Self::Removed { path, .. } | Self::Changed { path, .. } => path,
        }
    }
}

impl VirtualFileSystem {
    /// Takes a write into account, as the reducer would at that time.
    pub fn write(&mut self, event: &WriteFile, time: Timestamp) {
        folding::write_event(&mut self.entries, event, time);
    }

    /// Takes a removal into account, as the reducer would.
    pub fn delete(&mut self, event: &DeleteEntry) {
        folding::delete_event(&mut self.entries, event);
    }

    /// The entry at `path`; none for the root and where nothing is.
    pub fn get(&self, path: &EntryPath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Whether `path` is a directory; the root is one.
    pub fn is_directory(&self, path: &EntryPath) -> bool {
        path.is_root() || self.get(path).is_some_and(Entry::is_directory)
    }

    /// How many entries there are, directories included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryPath, &Entry)> {
        self.entries.iter()
    }

    /// The entries below a directory, at any depth, in order.
    pub fn below<'a>(&'a self, directory: &EntryPath) -> impl Iterator<Item = (&'a EntryPath, &'a Entry)> + use<'a> {
        let (from, until) = range_below(directory.as_bytes());
        self.entries.range::<_, [u8]>((from.as_deref_bound(), until.as_deref_bound()))
    }

    /// The entries right in a directory, in order; each step costs a search, whatever lies deeper.
    pub fn children<'a>(&'a self, directory: &EntryPath) -> impl Iterator<Item = (&'a EntryPath, &'a Entry)> + use<'a> {
        let (mut from, until) = range_below(directory.as_bytes());
        let directory = directory.clone();
        std::iter::from_fn(move || {
            loop {
                let bounds = (from.as_deref_bound(), until.as_deref_bound());
                let (path, entry) = self.entries.range::<_, [u8]>(bounds).next()?;
                let relative = path.relative_to(&directory)?;
                match relative.iter().position(|byte| *byte == b'/') {
                    None => {
                        from = Bound::Excluded(path.as_bytes().to_vec());
                        return Some((path, entry));
                    }
                    Some(cut) => {
                        // Everything below that directory is jumped over.
                        let end = path.as_bytes().len() - relative.len() + cut;
                        from = Bound::Included([&path.as_bytes()[..end], &[b'/' + 1]].concat());
                    }
                }
            }
        })
    }

    /// What differs in `later`, in order. Costs as much as the difference, not as the whole.
    pub fn diff(&self, later: &Self) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for item in self.entries.diff(&later.entries) {
            match item {
                DiffItem::Add(path, after) => changes.push(Change::Added { path: path.clone(), after: after.clone() }),
                DiffItem::Remove(path, before) => {
                    changes.push(Change::Removed { path: path.clone(), before: before.clone() });
                }
                DiffItem::Update { old: (path, before), new: (_, after) } => {
                    let (path, before, after) = (path.clone(), before.clone(), after.clone());
                    if !before.same_node(&after) {
                        changes.push(Change::Changed { path, before, after });
                    }
                }
            }
        }
        changes.sort_by(|a, b| a.path().cmp(b.path()));
        changes
    }
}

/// The keys of what lies below a directory.
fn range_below(directory: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    if directory.is_empty() {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    (Bound::Excluded([directory, b"/"].concat()), Bound::Excluded([directory, &[b'/' + 1]].concat()))
}

/// Borrows a bound's bytes.
trait AsDerefBound {
    fn as_deref_bound(&self) -> Bound<&[u8]>;
}

impl AsDerefBound for Bound<Vec<u8>> {
    fn as_deref_bound(&self) -> Bound<&[u8]> {
        self.as_ref().map(Vec::as_slice)
    }
}

impl Slice for VirtualFileSystem {
    const NAME: &'static str = "VirtualFileSystem";

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        Ok(blocks::encode(self.iter()))
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let entries = blocks::decode(blocks).map_err(|what| SliceError::new(Self::NAME, what))?;
        Ok(Self { entries })
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, RegistryError> {
    registry.folded_slice::<VirtualFileSystem>(Some(&[WriteFile::KIND, DeleteEntry::KIND]), folding::open)
}
