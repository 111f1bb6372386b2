//! Packed segments in raw order: compressed in blocks, for random access.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::sync::Cache;

use super::disk::{DiskFile, read_exactly};
use super::trailer::Trailer;
use crate::engine::store::decompress::decompressed;
use crate::engine::store::weight::ByBytes;
use crate::engine::store::{Result, StoreError};

/// Raw bytes of a block; the last may be shorter.
pub(super) const BLOCK: usize = 16 << 10;
/// Raw bytes of a block if the trailer states none, and the maximum.
const FIRST_BLOCK: usize = 256 << 10;
const LEAST_BLOCK: usize = 4 << 10;
const KEPT_BYTES: u64 = 32 << 20;

/// A packed segment, open for reading.
///
/// Layout: the blocks, a table with one `u32` of compressed length per block, and the trailer.
pub(super) struct Packed {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    raw_len: u64,
    block: usize,
    /// Offset of each block, and the end of the last block.
    starts: Vec<u64>,
    /// Cache key of its blocks; a file that replaces this one gets a new key.
    id: u64,
}

/// Cached blocks of all packed segments, in both layouts.
pub(super) static KEPT: LazyLock<Cache<(u64, usize), Bytes, ByBytes>> =
    LazyLock::new(|| Cache::with_weighter(KEPT_BYTES as usize / BLOCK, KEPT_BYTES, ByBytes));

pub(super) fn fresh_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Packed {
    pub(super) fn open(path: &Path, file: Box<dyn DiskFile>, trailer: &Trailer, block: u32) -> Result<Self> {
        let wrong = |what: &str| StoreError::Format { path: path.to_owned(), what: what.to_owned() };
        let raw_len = trailer.raw_len;
        let block = match block {
            0 => FIRST_BLOCK,
            bytes => usize::try_from(bytes).map_err(|_| wrong("too large"))?,
        };
        let is_odd = !(LEAST_BLOCK..=FIRST_BLOCK).contains(&block)
            || raw_len.div_ceil(block as u64) != u64::from(trailer.blocks);
        if is_odd {
            return Err(wrong("the packed segment's trailer is invalid"));
        }
        let mut starts = vec![0];
        let mut end = 0;
        for entry in trailer.table.as_chunks::<4>().0 {
            end += u64::from(u32::from_le_bytes(*entry));
            starts.push(end);
        }
        if end != trailer.table_at {
            return Err(wrong("the packed segment's blocks don't fill it"));
        }
        Ok(Self { path: path.to_owned(), file, raw_len, block, starts, id: fresh_id() })
    }

    /// Opens a segment with a damaged trailer or table by scanning its bytes: zstd frames contain their length.
    pub(super) fn salvage(path: &Path, file: Box<dyn DiskFile>, bytes: &[u8]) -> Self {
        let (mut starts, mut end, mut lengths) = (vec![0], 0, Vec::new());
        while let Ok(length) = zstd::zstd_safe::find_frame_compressed_size(&bytes[end..]) {
            lengths.push(decompressed(&bytes[end..end + length], FIRST_BLOCK).map(|block| block.len()));
            end += length;
            starts.push(end as u64);
        }
        // All blocks but the last have the same length.
        let block = lengths.iter().flatten().max().map_or(BLOCK, |length| *length);
        let raw_len = lengths.iter().map(|length| length.unwrap_or(block) as u64).sum();
        Self { path: path.to_owned(), file, raw_len, block, starts, id: fresh_id() }
    }

    pub(super) fn raw_len(&self) -> u64 {
        self.raw_len
    }

    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        read_pieces(self.raw_len, offset, buffer, |at, rest| {
            let number = usize::try_from(at / self.block as u64).unwrap_or(usize::MAX);
            Ok(copy(&self.block(number)?, at % self.block as u64, rest))
        })
    }

    fn block(&self, number: usize) -> Result<Bytes> {
        if let Some(block) = KEPT.get(&(self.id, number)) {
            return Ok(block);
        }
        let wrong = || StoreError::Format { path: self.path.clone(), what: format!("block {number} is damaged") };
        let (start, end) = match self.starts.get(number..number + 2) {
            Some([start, end]) => (*start, *end),
            _ => return Err(wrong()),
        };
        let mut packed = vec![0; usize::try_from(end - start).map_err(|_| wrong())?];
        read_exactly(&*self.file, start, &mut packed).map_err(StoreError::io("read", &self.path))?;
        let length = self.raw_len.saturating_sub((number * self.block) as u64).min(self.block as u64);
        let length = usize::try_from(length).map_err(|_| wrong())?;
        let block = decompressed(&packed, length).filter(|block| block.len() == length);
        // A damaged block reads as bytes that are not frames, so it is found and repaired like any other damage.
        let block = Bytes::from(block.unwrap_or_else(|| vec![0xff; length]));
        KEPT.insert((self.id, number), block.clone());
        Ok(block)
    }
}

/// Reads raw bytes piece by piece: `copy` copies the bytes from an offset on into the rest of the buffer.
pub(super) fn read_pieces(
    raw_len: u64,
    offset: u64,
    buffer: &mut [u8],
    copy: impl Fn(u64, &mut [u8]) -> Result<usize>,
) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() && offset + (filled as u64) < raw_len {
        let count = copy(offset + filled as u64, &mut buffer[filled..])?;
        if count == 0 {
            break;
        }
        filled += count;
    }
    Ok(filled)
}

pub(super) fn copy(from: &[u8], at: u64, to: &mut [u8]) -> usize {
    let from = usize::try_from(at).ok().and_then(|at| from.get(at..)).unwrap_or_default();
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}

#[expect(clippy::disallowed_methods, reason = "the test reads files directly")]
#[cfg(test)]
mod tests {
    use super::super::disk::{JournalDisk, OsDisk};
    use super::super::pack::pack_in;
    use super::super::segment::{Segment, SegmentHead};
    use super::super::trailer::Layout;
    use super::*;

    const TRAILER: usize = 32;

    /// Includes blocks of the first size with a trailer that does not state it.
    #[test]
    fn packed_segment_of_any_block_size_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let head = SegmentHead { number: 1, journal: [7; 16] };
        let raw: Vec<u8> = (0..600_000_u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        let segment = Segment::create(&OsDisk, directory.path(), head, raw.len() as u64 + 100).unwrap();
        segment.write(100, &raw).unwrap();
        let end = raw.len() as u64 + 100;
        for (block, is_told) in [(BLOCK, true), (LEAST_BLOCK, true), (FIRST_BLOCK, true), (FIRST_BLOCK, false)] {
            let target = directory.path().join("packed");
            pack_in(block, &OsDisk, &segment, end, &target).unwrap();
            if !is_told {
                let mut bytes = std::fs::read(&target).unwrap();
                let trailer = bytes.len() - TRAILER;
                bytes[trailer + 16..trailer + 20].fill(0);
                let crc = crc32c::crc32c(&bytes[trailer..trailer + 20]);
                bytes[trailer + 20..trailer + 24].copy_from_slice(&crc.to_le_bytes());
                std::fs::write(&target, bytes).unwrap();
            }
            let open = || OsDisk.open(&target).unwrap();
            let trailer = Trailer::read(&*open(), &target).unwrap();
            let Layout::InOrder { block: told } = trailer.layout else { panic!("wrong layout") };
            assert_eq!(told, if is_told { block as u32 } else { 0 });
            let opened = Packed::open(&target, open(), &trailer, told).unwrap();
            let salvaged = Packed::salvage(&target, open(), &std::fs::read(&target).unwrap());
            for packed in [opened, salvaged] {
                assert_eq!(packed.raw_len(), end);
                for (at, count) in [(0, 1), (0, raw.len()), (300_000, 70_000), (raw.len() - 3, 3)] {
                    let mut read = vec![0; count];
                    assert_eq!(packed.read_at(at as u64 + 100, &mut read).unwrap(), count);
                    assert!(read == raw[at..at + count], "{count} bytes at {at} in blocks of {block}");
                }
                assert_eq!(packed.read_at(end, &mut [0; 9]).unwrap(), 0);
            }
        }
    }
}
