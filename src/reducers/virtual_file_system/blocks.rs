//! The slice in a snapshot: records in path order, in blocks that small changes leave unchanged.

use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::Entry;
use crate::engine::event::{Node, node_code};
use crate::engine::{Digest, EntryPath, Timestamp};

/// An entry with its path.
pub(super) type LeafRow = (EntryPath, Entry);

/// A block ends after a path with a hash that is a multiple of this, so that changes elsewhere don't move its end.
const CUT_EVERY: u32 = 64;
pub(super) const WRONG: &str = "a record is malformed";
/// Bytes of a typical record, to estimate their number.
const RECORD: usize = 96;
const TEXT: u8 = 0x80;

pub(super) fn is_cut(path: &[u8]) -> bool {
    crc32c::crc32c(path).is_multiple_of(CUT_EVERY)
}

pub(super) fn encode(rows: &[LeafRow]) -> Vec<u8> {
    let mut block = Vec::with_capacity(rows.len() * RECORD);
    rows.iter().for_each(|(path, entry)| put(&mut block, path, entry));
    block
}

fn put(block: &mut Vec<u8>, path: &EntryPath, entry: &Entry) {
    put_bytes(block, path.as_bytes());
    block.extend_from_slice(&entry.version.to_le_bytes());
    block.extend_from_slice(&entry.created_at.0.to_le_bytes());
    block.extend_from_slice(&entry.updated_at.0.to_le_bytes());
    let code = entry.node.code();
    match &entry.node {
        Node::File { content, size, text, .. } => {
            block.push(code | if *text { TEXT } else { 0 });
            block.extend_from_slice(content.as_bytes());
            block.extend_from_slice(&size.to_le_bytes());
        }
        Node::Symlink { target } => {
            block.push(code);
            put_bytes(block, target);
        }
        Node::Directory { .. } | Node::Special { .. } => block.push(code),
    }
    if let Some(mode) = entry.node.mode().filter(|_| node_code::has_bits(code)) {
        block.extend_from_slice(&mode.to_le_bytes());
    }
}

fn put_bytes(block: &mut Vec<u8>, bytes: &[u8]) {
    block.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    block.extend_from_slice(bytes);
}

/// The validated records of a block; each is decoded on demand.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    bytes: Bytes,
    /// Offsets of the records; their paths ascend.
    starts: Arc<[u32]>,
}

impl Block {
    /// Validates a block of paths after `before`; `None` if it is empty, or has another end or order.
    pub(super) fn new(bytes: &Bytes, before: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut starts = Vec::with_capacity(bytes.len() / RECORD + 1);
        let (mut last, mut cut) = (before, false);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let start = u32::try_from(bytes.len() - rest.len()).map_err(|_| WRONG)?;
            let path = skip(&mut rest).ok_or(WRONG)?;
            if !EntryPath::is_normal(path) || path.is_empty() {
                return Err(WRONG);
            }
            if cut || path <= last {
                return Ok(None);
            }
            starts.push(start);
            last = path;
            cut = is_cut(path);
        }
        Ok((!starts.is_empty()).then(|| Self { bytes: bytes.clone(), starts: starts.into() }))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(super) fn last_path(&self) -> &[u8] {
        self.starts.last().map_or(&[], |start| self.path(*start))
    }

    pub(super) fn find(&self, path: &[u8]) -> Option<Entry> {
        let at = self.starts.binary_search_by(|start| self.path(*start).cmp(path)).ok()?;
        let mut rest = self.at(*self.starts.get(at)?);
        record(&mut rest).map(|(_, entry)| entry)
    }

    pub(super) fn rows(&self) -> Vec<LeafRow> {
        decode(&self.bytes).unwrap_or_default()
    }

    fn at(&self, start: u32) -> &[u8] {
        usize::try_from(start).ok().and_then(|start| self.bytes.get(start..)).unwrap_or_default()
    }

    fn path(&self, start: u32) -> &[u8] {
        take_bytes(&mut self.at(start)).unwrap_or_default()
    }
}

pub(super) fn decode(block: &[u8]) -> Result<Vec<LeafRow>, &'static str> {
    let mut rows = Vec::with_capacity(block.len() / RECORD + 1);
    let mut rest = block;
    while !rest.is_empty() {
        let (path, entry) = record(&mut rest).ok_or(WRONG)?;
        rows.push((EntryPath::from_bytes(path).map_err(|_| WRONG)?, entry));
    }
    Ok(rows)
}

/// Bytes between a record's path and its node: version, two times, code.
const FIXED: usize = 3 * size_of::<u64>() + 1;
const FILE: usize = size_of::<Digest>() + size_of::<u64>();

/// Reads only the path of a [`record`].
fn skip<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let path = take_bytes(rest)?;
    let [.., code] = rest.split_off(..FIXED)? else { return None };
    match code & !TEXT {
        code if node_code::is_file(code) => drop(rest.split_off(..FILE)?),
        node_code::SYMLINK => drop(take_bytes(rest)?),
        code => drop(Node::bare_of_code(code, 0)?),
    }
    bits(*code, rest)?;
    Some(path)
}

fn record<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Entry)> {
    let path = take_bytes(rest)?;
    let version = rest.try_get_u64_le().ok()?;
    let created_at = Timestamp(rest.try_get_i64_le().ok()?);
    let updated_at = Timestamp(rest.try_get_i64_le().ok()?);
    let code = rest.try_get_u8().ok()?;
    let node = match code & !TEXT {
        kind if node_code::is_file(kind) => {
            let content = Digest::from_bytes(*rest.split_off(..size_of::<Digest>())?.first_chunk()?);
            let size = rest.try_get_u64_le().ok()?;
            Node::file_of_code(kind, content, size, code & TEXT != 0, bits(code, rest)?)
        }
        node_code::SYMLINK => Node::Symlink { target: take_bytes(rest)?.to_vec() },
        kind => Node::bare_of_code(kind, bits(code, rest)?)?,
    };
    Some((path, Entry { node, version, created_at, updated_at }))
}

/// Reads the mode's bits at the end of a record, if its code has them.
fn bits(code: u8, rest: &mut &[u8]) -> Option<u16> {
    if node_code::has_bits(code) { rest.try_get_u16_le().ok() } else { Some(0) }
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
    rest.split_off(..length)
}
