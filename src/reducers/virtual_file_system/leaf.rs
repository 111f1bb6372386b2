//! Some entries that follow each other: rows, or a snapshot's block and what has changed since.

use std::sync::OnceLock;

use super::Entry;
use super::blocks::{self, Block, LeafRow};
use crate::engine::path::EntryPath;

/// Changes that lie beside a block before the two become rows.
const CHANGES_MAX: usize = 64;

/// Entries in path order. A change to an unread leaf costs one search of its block.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    /// All rows; with a block, those that are not as the block has them.
    rows: Vec<LeafRow>,
    /// A snapshot's block, or nothing.
    block: Block,
    /// The block with the rows in it, once it was read; empty where there is no block.
    read: OnceLock<Vec<LeafRow>>,
}

pub(super) enum LeafSlot {
    /// Among all rows.
    All(usize),
    /// Among those that lie beside the block.
    Beside(usize),
    /// In the block only.
    Block(Entry),
}

impl Leaf {
    pub(super) fn from_rows(rows: Vec<LeafRow>) -> Self {
        Self { rows, ..Self::default() }
    }

    pub(super) fn from_block(block: Block) -> Self {
        Self { block, ..Self::default() }
    }

    pub(super) fn to_block(&self) -> Vec<u8> {
        match self.rows.is_empty() {
            true => self.block.bytes().to_vec(),
            false => blocks::encode(self.rows()),
        }
    }

    pub(super) fn rows(&self) -> &[LeafRow] {
        match self.block.is_empty() {
            true => &self.rows,
            false => self.read.get_or_init(|| self.merged()),
        }
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

    pub(super) fn place(&self, path: &[u8]) -> Option<LeafSlot> {
        if self.is_open() {
            let beside = position(&self.rows, path).ok().map(LeafSlot::Beside);
            return beside.or_else(|| self.block.find(path).map(LeafSlot::Block));
        }
        position(self.rows(), path).ok().map(LeafSlot::All)
    }

    pub(super) fn at<'a>(&'a self, place: &'a LeafSlot) -> &'a Entry {
        match place {
            LeafSlot::All(at) => &self.rows()[*at].1,
            LeafSlot::Beside(at) => &self.rows[*at].1,
            LeafSlot::Block(entry) => entry,
        }
    }

    /// The same to be changed; `place` is that of `path`.
    pub(super) fn at_mut(&mut self, path: &[u8], place: LeafSlot) -> Option<&mut Entry> {
        let (rows, at) = match place {
            LeafSlot::All(at) => (self.all(), at),
            LeafSlot::Beside(at) => {
                // A clone may have been read since the place was found.
                self.read.take();
                (&mut self.rows, at)
            }
            LeafSlot::Block(entry) => {
                let rows = self.some();
                let at = put(rows, EntryPath::from_bytes(path).ok()?, entry);
                (rows, at)
            }
        };
        rows.get_mut(at).map(|(_, entry)| entry)
    }

    pub(super) fn add(&mut self, path: EntryPath, entry: Entry) {
        put(self.some(), path, entry);
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        let rows = self.all();
        position(rows, path).ok().map(|at| rows.remove(at).1)
    }

    /// Takes off what comes before `path`, with that and its entry at the end.
    pub(super) fn split_off_front(&mut self, path: EntryPath, entry: Entry) -> Self {
        let rows = self.all();
        let at = position(rows, path.as_bytes()).unwrap_or_else(|at| at);
        let after = rows.split_off(at);
        let mut front = std::mem::replace(rows, after);
        front.push((path, entry));
        Self::from_rows(front)
    }

    /// Puts all rows of the leaf before this to the front.
    pub(super) fn join_front(&mut self, mut front: Self) {
        self.all().splice(0..0, std::mem::take(front.all()));
    }

    /// Tells if a change may go beside the block.
    fn is_open(&self) -> bool {
        !self.block.is_empty() && self.read.get().is_none() && self.rows.len() < CHANGES_MAX
    }

    /// The rows into which a changed one can be put.
    fn some(&mut self) -> &mut Vec<LeafRow> {
        match self.is_open() {
            true => &mut self.rows,
            false => self.all(),
        }
    }

    /// All rows, to be changed; the block is given up.
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

/// Puts a row where it belongs, in the place of one with its path; gives where.
fn put(rows: &mut Vec<LeafRow>, path: EntryPath, entry: Entry) -> usize {
    let place = position(rows, path.as_bytes());
    match place {
        Ok(at) => rows[at].1 = entry,
        Err(at) => rows.insert(at, (path, entry)),
    }
    place.unwrap_or_else(|at| at)
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
            Entry { node: Node::Directory, version, created_at: time, updated_at: time }
        };
        let bytes = Bytes::from(blocks::encode(&[(EntryPath::lookup("a").unwrap(), entry(1))]));
        let mut leaf = Leaf::from_block(Block::new(&bytes, b"").unwrap().unwrap());
        for version in 2..4 {
            let place = leaf.place(b"a").unwrap();
            assert_eq!(leaf.rows().len(), 1);
            *leaf.at_mut(b"a", place).unwrap() = entry(version);
            assert_eq!(leaf.get(b"a"), Some(&entry(version)));
        }
        let mut leaf = Leaf::from_block(Block::new(&bytes, b"").unwrap().unwrap());
        let place = leaf.place(b"a").unwrap();
        *leaf.at_mut(b"a", place).unwrap() = entry(2);
        let beside = leaf.place(b"a").unwrap();
        assert_eq!(leaf.rows()[0].1, entry(2));
        *leaf.at_mut(b"a", beside).unwrap() = entry(3);
        assert_eq!(leaf.rows()[0].1, entry(3));
    }
}
