//! The inodes that the kernel holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::moments::Moments;
use super::tree_view::TreeView;
use crate::engine::path::EntryPath;
use crate::reducers::Entry;

pub(super) const ROOT: u64 = 1;

/// The entry or directory behind an inode.
#[derive(Clone)]
pub(super) enum MountNode {
    /// An entry of a view.
    Entry(Arc<TreeView>, EntryPath),
    /// A hidden directory with other moments.
    Moments(Moments),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NodeKey {
    Entry(u64, EntryPath),
    Moments(Moments),
}

impl MountNode {
    fn key(&self) -> NodeKey {
        match self {
            Self::Entry(view, path) => NodeKey::Entry(view.id, path.clone()),
            Self::Moments(moments) => NodeKey::Moments(moments.clone()),
        }
    }
}

#[derive(Default)]
pub(super) struct Inodes {
    last: u64,
    by_number: BTreeMap<u64, Inode>,
    by_key: BTreeMap<NodeKey, u64>,
}

struct Inode {
    node: MountNode,
    /// The entry at the first lookup, unless it is a directory. It never changes: a changed entry gets another inode, as
    /// a file that is replaced by a rename does.
    fixed: Option<Entry>,
    /// The number of lookups that the kernel has not forgotten.
    lookups: u64,
}

impl Inodes {
    /// Counts a lookup of a node, and returns its inode number. `entry` is the present one; `None` for a directory.
    pub(super) fn look_up(&mut self, node: MountNode, entry: Option<&Entry>) -> u64 {
        let key = node.key();
        let known = self.by_key.get(&key).copied();
        let inode = known.and_then(|number| Some((number, self.by_number.get_mut(&number)?)));
        if let Some((number, inode)) = inode.filter(|(_, inode)| inode.fixed.as_ref() == entry) {
            inode.lookups += 1;
            return number;
        }
        self.last += 1;
        self.by_key.insert(key, self.last);
        self.by_number.insert(self.last, Inode { node, fixed: entry.cloned(), lookups: 1 });
        self.last
    }

    /// Returns the node of an inode, and its entry unless it is a directory.
    pub(super) fn get(&self, number: u64) -> Option<(MountNode, Option<Entry>)> {
        self.by_number.get(&number).map(|inode| (inode.node.clone(), inode.fixed.clone()))
    }

    pub(super) fn number(&self, node: &MountNode) -> Option<u64> {
        self.by_key.get(&node.key()).copied()
    }

    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(inode) = self.by_number.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups > 0 || number == ROOT {
            return;
        }
        let key = inode.node.key();
        self.by_number.remove(&number);
        // A changed entry has another inode by now.
        if self.by_key.get(&key) == Some(&number) {
            self.by_key.remove(&key);
        }
    }
}
