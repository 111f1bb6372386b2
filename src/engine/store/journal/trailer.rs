//! The end of a packed segment: its block table and trailer.

use std::path::Path;

use super::disk::{DiskFile, read_exactly};
use crate::engine::store::{Result, StoreError};

/// Bytes of a segment before its first frame.
pub(crate) const HEADER: u64 = 64;
const LENGTH: usize = 32;
const MAGIC: &[u8; 8] = b"FOLDPAK\n";
/// Table bytes per block and per part.
pub(super) const BLOCK_ENTRY: usize = 16;
pub(super) const PART_ENTRY: usize = 8;

/// Layout: the table, raw length (u64), number of blocks (u32), CRC-32C of the table (u32), number of parts (u32),
/// CRC-32C of the trailer so far (u32) and the magic bytes.
pub(super) struct Trailer {
    pub(super) raw_len: u64,
    pub(super) blocks: u32,
    pub(super) parts: u32,
    pub(super) table: Vec<u8>,
    /// End of the blocks and beginning of the table; 0 until it is known.
    pub(super) table_at: u64,
}

impl Trailer {
    pub(super) fn read(file: &dyn DiskFile, path: &Path) -> Result<Self> {
        let wrong = |what: &str| StoreError::Format { path: path.to_owned(), what: what.to_owned() };
        let length = file.len().map_err(StoreError::io("inspect", path))?;
        let at = length.checked_sub(LENGTH as u64).ok_or_else(|| wrong("too short for a packed segment"))?;
        let mut bytes = [0; LENGTH];
        read_exactly(file, at, &mut bytes).map_err(StoreError::io("read", path))?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if !bytes.ends_with(MAGIC) || word(20) != crc32c::crc32c(&bytes[..20]) {
            return Err(wrong("the packed segment's trailer is damaged"));
        }
        let (raw_len, blocks, parts) = (u64::from(word(0)) | u64::from(word(4)) << 32, word(8), word(16));
        let table_len = HEADER + u64::from(blocks) * BLOCK_ENTRY as u64 + u64::from(parts) * PART_ENTRY as u64;
        let table_at = at.checked_sub(table_len).ok_or_else(|| wrong("the packed segment's trailer is invalid"))?;
        let mut table = vec![0; usize::try_from(table_len).map_err(|_| wrong("too large"))?];
        read_exactly(file, table_at, &mut table).map_err(StoreError::io("read", path))?;
        if word(12) != crc32c::crc32c(&table) {
            return Err(wrong("the packed segment's table is damaged"));
        }
        Ok(Self { raw_len, blocks, parts, table, table_at })
    }

    /// Encodes the table and the trailer.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut trailer = self.raw_len.to_le_bytes().to_vec();
        trailer.extend_from_slice(&self.blocks.to_le_bytes());
        trailer.extend_from_slice(&crc32c::crc32c(&self.table).to_le_bytes());
        trailer.extend_from_slice(&self.parts.to_le_bytes());
        let crc = crc32c::crc32c(&trailer).to_le_bytes();
        [&self.table[..], &trailer, &crc, MAGIC].concat()
    }
}
