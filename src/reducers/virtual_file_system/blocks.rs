//! The slice in a snapshot: records in path order, in blocks that small changes leave as they were.

use bytes::Bytes;

use super::Entry;
use crate::engine::clock::Timestamp;
use crate::engine::collections::OrdMap;
use crate::engine::event::{Node, node_code};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// A block ends after a path whose hash is a multiple of this, so that its end moves with nothing else.
const CUT_EVERY: u32 = 64;
/// A block ends at this many bytes at the latest.
const BLOCK_MAX: usize = 11 << 10;
/// Marks text in a record's code.
const TEXT: u8 = 0x80;

pub(super) fn encode<'a>(entries: impl Iterator<Item = (&'a EntryPath, &'a Entry)>) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut block = Vec::with_capacity(BLOCK_MAX);
    for (path, entry) in entries {
        put(&mut block, path, entry);
        if crc32c::crc32c(path.as_bytes()).is_multiple_of(CUT_EVERY) || block.len() >= BLOCK_MAX {
            let next = Vec::with_capacity(BLOCK_MAX);
            blocks.push(std::mem::replace(&mut block, next));
        }
    }
    if !block.is_empty() {
        blocks.push(block);
    }
    blocks
}

fn put(block: &mut Vec<u8>, path: &EntryPath, entry: &Entry) {
    put_bytes(block, path.as_bytes());
    block.extend_from_slice(&entry.version.to_le_bytes());
    block.extend_from_slice(&entry.created_at.0.to_le_bytes());
    block.extend_from_slice(&entry.updated_at.0.to_le_bytes());
    match &entry.node {
        Node::File { content, size, executable, text } => {
            let code = if *executable { node_code::EXECUTABLE } else { node_code::FILE };
            block.push(code | if *text { TEXT } else { 0 });
            block.extend_from_slice(content.as_bytes());
            block.extend_from_slice(&size.to_le_bytes());
        }
        Node::Symlink { target } => {
            block.push(node_code::SYMLINK);
            put_bytes(block, target);
        }
        Node::Directory => block.push(node_code::DIRECTORY),
    }
}

fn put_bytes(block: &mut Vec<u8>, bytes: &[u8]) {
    block.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    block.extend_from_slice(bytes);
}

pub(super) fn decode(blocks: &[Bytes]) -> Result<OrdMap<EntryPath, Entry>, &'static str> {
    let mut entries = OrdMap::new();
    for block in blocks {
        let mut rest = &block[..];
        while !rest.is_empty() {
            let (path, entry) = take(&mut rest).ok_or("a record makes no sense")?;
            entries.insert(path, entry);
        }
    }
    Ok(entries)
}

fn take(rest: &mut &[u8]) -> Option<(EntryPath, Entry)> {
    let path = EntryPath::from_bytes(take_bytes(rest)?).ok()?;
    let version = u64::from_le_bytes(take_array(rest)?);
    let created_at = Timestamp(i64::from_le_bytes(take_array(rest)?));
    let updated_at = Timestamp(i64::from_le_bytes(take_array(rest)?));
    let [code] = take_array(rest)?;
    let node = match code & !TEXT {
        kind @ (node_code::FILE | node_code::EXECUTABLE) => Node::File {
            content: Digest::from_bytes(take_array(rest)?),
            size: u64::from_le_bytes(take_array(rest)?),
            executable: kind == node_code::EXECUTABLE,
            text: code & TEXT != 0,
        },
        node_code::SYMLINK => Node::Symlink { target: take_bytes(rest)?.to_vec() },
        node_code::DIRECTORY => Node::Directory,
        _ => return None,
    };
    Some((path, Entry { node, version, created_at, updated_at }))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(take_array(rest)?)).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*array)
}
