//! Consecutive entries: rows, or a snapshot's block and its later changes.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::Entry;
use super::blocks::{self, Block, LeafRow};
use crate::engine::path::EntryPath;

/// Maximum changes of a block before both are merged into rows.
const CHANGES_MAX: usize = 64;

/// Entries in path order. A change to an unread leaf costs one search of its block.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    /// All rows; with a block, the rows that differ from it.
    rows: Vec<LeafRow>,
    /// A snapshot's block; empty for none.
    block: Block,
    /// The block merged with the rows, once decoded; empty without a block.
    read: OnceLock<Vec<LeafRow>>,
}

impl Leaf {
    pub(super) fn from_rows(rows: Vec<LeafRow>) -> Self {
        Self { rows, ..Self::default() }
    }

    pub(super) fn from_block(block: Block) -> Self {
        Self { block, ..Self::default() }
    }

    pub(super) fn to_block(&self) -> Vec<u8> {
        if self.rows.is_empty() { self.block.bytes().to_vec() } else { blocks::encode(self.rows()) }
    }

    pub(super) fn rows(&self) -> &[LeafRow] {
        if self.block.is_empty() { &self.rows } else { self.read.get_or_init(|| self.merged()) }
    }

    fn merged(&self) -> Vec<LeafRow> {
        let mut rows = self.block.rows();
        for (path, entry) in &self.rows {
            put(&mut rows, path.clone(), entry.clone());
        }
        rows
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&Entry> {
        let rows = self.rows();
        position(rows, path).ok().map(|at| &rows[at].1)
    }

    /// Returns an entry without reading an unread block.
    pub(super) fn find(&self, path: &[u8]) -> Option<Cow<'_, Entry>> {
        if !self.is_open() {
            return self.get(path).map(Cow::Borrowed);
        }
        match position(&self.rows, path) {
            Ok(at) => Some(Cow::Borrowed(&self.rows[at].1)),
            Err(_) => self.block.find(path).map(Cow::Owned),
        }
    }

    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        if self.is_open() && position(&self.rows, path).is_err() {
            let entry = self.block.find(path)?;
            put(&mut self.rows, EntryPath::from_bytes(path).ok()?, entry);
        }
        let rows = self.some();
        position(rows, path).ok().map(|at| &mut rows[at].1)
    }

    pub(super) fn add(&mut self, path: EntryPath, entry: Entry) {
        put(self.some(), path, entry);
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        let rows = self.all();
        position(rows, path).ok().map(|at| rows.remove(at).1)
    }

    /// Splits off the rows before `path`, and appends `path` and its entry to them.
    pub(super) fn split_off_front(&mut self, path: EntryPath, entry: Entry) -> Self {
        let rows = self.all();
        let at = position(rows, path.as_bytes()).unwrap_or_else(|at| at);
        let after = rows.split_off(at);
        let mut front = std::mem::replace(rows, after);
        front.push((path, entry));
        Self::from_rows(front)
    }

    /// Prepends all rows of the preceding leaf.
    pub(super) fn join_front(&mut self, mut front: Self) {
        self.all().splice(0..0, std::mem::take(front.all()));
    }

    /// Returns true if a change may be stored next to the block.
    fn is_open(&self) -> bool {
        !self.block.is_empty() && self.read.get().is_none() && self.rows.len() < CHANGES_MAX
    }

    /// Returns the rows that accept a changed row.
    fn some(&mut self) -> &mut Vec<LeafRow> {
        if self.is_open() { &mut self.rows } else { self.all() }
    }

    /// Returns all rows for changes, and drops the block.
    fn all(&mut self) -> &mut Vec<LeafRow> {
        if !self.block.is_empty() {
            self.rows = self.read.take().unwrap_or_else(|| self.merged());
            self.block = Block::default();
        }
        &mut self.rows
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.rows() == other.rows()
    }
}

impl Eq for Leaf {}

fn position(rows: &[LeafRow], path: &[u8]) -> Result<usize, usize> {
    rows.binary_search_by(|(known, _)| known.as_bytes().cmp(path))
}

/// Inserts a row in order, or replaces the row with its path.
fn put(rows: &mut Vec<LeafRow>, path: EntryPath, entry: Entry) {
    match position(rows, path.as_bytes()) {
        Ok(at) => rows[at].1 = entry,
        Err(at) => rows.insert(at, (path, entry)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::engine::clock::Timestamp;
    use crate::engine::event::Node;

    #[test]
    fn leaf_change_is_visible_despite_read_clone() {
        let entry = |version| {
            let time = Timestamp(0);
            Entry { node: Node::DIRECTORY, version, created_at: time, updated_at: time }
        };
        let bytes = Bytes::from(blocks::encode(&[(EntryPath::lookup("a").unwrap(), entry(1))]));
        let mut leaf = Leaf::from_block(Block::new(&bytes, b"").unwrap().unwrap());
        for version in 2..4 {
            assert_eq!(leaf.rows().len(), 1);
            *leaf.get_mut(b"a").unwrap() = entry(version);
            assert_eq!(leaf.get(b"a"), Some(&entry(version)));
        }
        let mut leaf = Leaf::from_block(Block::new(&bytes, b"").unwrap().unwrap());
        for version in 2..4 {
            *leaf.get_mut(b"a").unwrap() = entry(version);
            assert_eq!(leaf.find(b"a").as_deref(), Some(&entry(version)));
            assert_eq!(leaf.rows()[0].1, entry(version));
        }
    }
}
