//! Packed segments: a sealed segment, compressed in blocks so that any position can be read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::segment::{Segment, sync_directory};
use crate::engine::store::StoreError;

const MAGIC: &[u8; 8] = b"FOLDPAK\n";
/// Raw bytes of a block; the last may be shorter.
const BLOCK: usize = 256 << 10;
const TRAILER: usize = 32;
/// Blocks kept unpacked per segment.
const KEPT: usize = 4;
const LEVEL: i32 = 3;

/// A packed segment, open for reading.
///
/// Layout: the blocks, a table with one `u32` of compressed length per block, and a trailer of
/// raw length (u64), number of blocks (u32), CRC-32C of the table (u32), four zero bytes, CRC-32C
/// of the trailer so far (u32) and the magic bytes.
pub(super) struct Packed {
    path: PathBuf,
    file: File,
    raw_len: u64,
    /// Where each block begins, and where the last one ends.
    starts: Vec<u64>,
    kept: Mutex<Vec<(usize, Arc<Vec<u8>>)>>,
}

impl Packed {
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let wrong = |what: &str| StoreError::Format { path: path.to_owned(), what: what.to_owned() };
        let file = File::open(path).map_err(StoreError::io("open", path))?;
        let length = file.metadata().map_err(StoreError::io("inspect", path))?.len();
        let at = length.checked_sub(TRAILER as u64).ok_or_else(|| wrong("too short for a packed segment"))?;
        let mut trailer = [0; TRAILER];
        file.read_exact_at(&mut trailer, at).map_err(StoreError::io("read", path))?;
        let word = |at: usize| u32::from_le_bytes([trailer[at], trailer[at + 1], trailer[at + 2], trailer[at + 3]]);
        if &trailer[24..] != MAGIC || word(20) != crc32c::crc32c(&trailer[..20]) {
            return Err(wrong("the packed segment's trailer is damaged"));
        }
        let raw_len = u64::from(word(0)) | u64::from(word(4)) << 32;
        let table_len = u64::from(word(8)) * 4;
        if raw_len.div_ceil(BLOCK as u64) != u64::from(word(8)) || table_len > at {
            return Err(wrong("the packed segment's trailer makes no sense"));
        }
        let mut table = vec![0; usize::try_from(table_len).map_err(|_| wrong("too large"))?];
        file.read_exact_at(&mut table, at - table_len).map_err(StoreError::io("read", path))?;
        if word(12) != crc32c::crc32c(&table) {
            return Err(wrong("the packed segment's table is damaged"));
        }
        let mut starts = vec![0];
        let mut end = 0;
        for entry in table.as_chunks::<4>().0 {
            end += u64::from(u32::from_le_bytes(*entry));
            starts.push(end);
        }
        if end != at - table_len {
            return Err(wrong("the packed segment's blocks don't fill it"));
        }
        Ok(Self { path: path.to_owned(), file, raw_len, starts, kept: Mutex::new(Vec::new()) })
    }

    /// Opens a segment whose trailer or table is damaged: its blocks tell themselves how long they are.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn salvage(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::io("open", path))?;
        let bytes = std::fs::read(path).map_err(StoreError::io("read", path))?;
        let (mut starts, mut end, mut raw_len) = (vec![0], 0, 0);
        while let Ok(length) = zstd::zstd_safe::find_frame_compressed_size(&bytes[end..]) {
            let block = zstd::bulk::decompress(&bytes[end..end + length], BLOCK);
            raw_len += block.map_or(BLOCK, |block| block.len()) as u64;
            end += length;
            starts.push(end as u64);
        }
        Ok(Self { path: path.to_owned(), file, raw_len, starts, kept: Mutex::new(Vec::new()) })
    }

    pub(super) fn raw_len(&self) -> u64 {
        self.raw_len
    }

    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < buffer.len() && offset + (filled as u64) < self.raw_len {
            let at = offset + filled as u64;
            let number = usize::try_from(at / BLOCK as u64).unwrap_or(usize::MAX);
            let within = usize::try_from(at % BLOCK as u64).unwrap_or(0);
            let block = self.block(number)?;
            let part = block.get(within..).unwrap_or_default();
            let count = part.len().min(buffer.len() - filled);
            if count == 0 {
                break;
            }
            buffer[filled..filled + count].copy_from_slice(&part[..count]);
            filled += count;
        }
        Ok(filled)
    }

    fn block(&self, number: usize) -> Result<Arc<Vec<u8>>, StoreError> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, block)) = kept().iter().find(|(kept, _)| *kept == number) {
            return Ok(Arc::clone(block));
        }
        let wrong = || StoreError::Format { path: self.path.clone(), what: format!("block {number} is damaged") };
        let (start, end) = match self.starts.get(number..number + 2) {
            Some([start, end]) => (*start, *end),
            _ => return Err(wrong()),
        };
        let mut packed = vec![0; usize::try_from(end - start).map_err(|_| wrong())?];
        self.file.read_exact_at(&mut packed, start).map_err(StoreError::io("read", &self.path))?;
        let length = (self.raw_len - (number * BLOCK) as u64).min(BLOCK as u64);
        let length = usize::try_from(length).map_err(|_| wrong())?;
        let block = zstd::bulk::decompress(&packed, BLOCK).ok().filter(|block| block.len() == length);
        // A damaged block reads as bytes that are no frames: it is found, named and repaired like any damage.
        let block = Arc::new(block.unwrap_or_else(|| vec![0xff; length]));
        let mut kept = kept();
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((number, Arc::clone(&block)));
        Ok(block)
    }
}

/// Packs the first `end` bytes of a sealed segment into `target`, durable before it has its name.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(crate) fn pack(segment: &Segment, end: u64, target: &Path) -> Result<(), StoreError> {
    let unfinished = target.with_extension("tmp");
    let file = File::create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
    let mut written = 0;
    let mut table = Vec::new();
    let mut raw = vec![0; BLOCK];
    let mut offset = 0;
    while offset < end {
        let want = usize::try_from((end - offset).min(BLOCK as u64)).unwrap_or(BLOCK);
        if segment.read_at(offset, &mut raw[..want])? < want {
            let what = format!("ends before byte {end}");
            return Err(StoreError::Format { path: segment.path.clone(), what });
        }
        let packed = zstd::bulk::compress(&raw[..want], LEVEL).map_err(StoreError::io("compress", &unfinished))?;
        file.write_all_at(&packed, written).map_err(StoreError::io("write", &unfinished))?;
        written += packed.len() as u64;
        table.extend_from_slice(&u32::try_from(packed.len()).unwrap_or(u32::MAX).to_le_bytes());
        offset += want as u64;
    }
    let blocks = u32::try_from(table.len() / 4).unwrap_or(u32::MAX);
    let mut tail = table.clone();
    let trailer_at = tail.len();
    tail.extend_from_slice(&end.to_le_bytes());
    tail.extend_from_slice(&blocks.to_le_bytes());
    tail.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
    tail.extend_from_slice(&[0; 4]);
    let crc = crc32c::crc32c(&tail[trailer_at..]);
    tail.extend_from_slice(&crc.to_le_bytes());
    tail.extend_from_slice(MAGIC);
    file.write_all_at(&tail, written).map_err(StoreError::io("write", &unfinished))?;
    file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
    std::fs::rename(&unfinished, target).map_err(StoreError::io("rename", &unfinished))?;
    target.parent().map_or(Ok(()), sync_directory)
}
