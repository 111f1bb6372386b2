//! Packed segments with frames grouped by session, so that one session of many is read in long runs.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use bytes::Bytes;
use quick_cache::sync::Cache;

use super::disk::{DiskFile, read_exactly};
use super::frame::{self, FrameKind, Header};
use super::trailer::{BLOCK_ENTRY, HEADER, PART_ENTRY, Trailer};
use crate::engine::SessionId;
use crate::engine::lock::lock;
use crate::engine::store::decompress::decompressed;
use crate::engine::store::weight::ByBytes;
use crate::engine::store::{Result, StoreError};

/// Maximum raw bytes of a block, unless a single frame is larger.
pub(super) const BLOCK: usize = 32 << 10;
const BLOCK_MAX: usize = BLOCK + frame::HEADER + frame::MAX_PAYLOAD;
/// Raw bytes of a part, which a reader in raw order holds in memory.
pub(super) const PART: u64 = 16 << 20;
/// Upper bound of raw offsets: a segment has 1 GiB at most, plus one oversized frame.
pub(super) const RAW_MAX: usize = (1 << 30) + BLOCK_MAX;
/// Range of the header's checksum, which a block replaces by the frame's raw offset.
const TAG: Range<usize> = 20..24;

/// Group and raw offset of a frame.
pub(super) type FrameKey = (u32, u32);

/// A packed segment, open for reading.
///
/// It consists of parts, which are consecutive in the raw segment. The blocks of a part contain its frames in key
/// order. Each block is a zstd frame with a checksum and contains only complete frames.
pub(crate) struct Grouped {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    raw_len: u64,
    head: [u8; HEADER as usize],
    parts: Vec<Part>,
    blocks: Vec<GroupedBlock>,
    /// Cache key of its blocks; a file that replaces this one gets a new key.
    id: u64,
}

struct Part {
    /// Raw offset of its first frame.
    offset: u32,
    blocks: Range<usize>,
}

struct GroupedBlock {
    start: u64,
    packed: u32,
    raw: u32,
    first: FrameKey,
}

/// Cached blocks of all packed segments.
static KEPT: LazyLock<Cache<(u64, usize), Bytes, ByBytes>> =
    LazyLock::new(|| Cache::with_weighter(KEPT_BYTES as usize / BLOCK, KEPT_BYTES, ByBytes));
const KEPT_BYTES: u64 = 32 << 20;

fn fresh_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The parts most recently read in raw order, by segment and number.
static PARTS: Mutex<Vec<(u64, usize, Bytes)>> = Mutex::new(Vec::new());
const PARTS_KEPT: usize = 2;

/// Returns the group of a session's commits. Sessions may share one.
pub(crate) fn session_group(session: SessionId) -> u32 {
    crc32c::crc32c(session.as_bytes()).max(1)
}

/// The group of contents, removals and marks.
pub(crate) const NO_SESSION: u32 = 0;

pub(super) fn group_of(kind: FrameKind, payload: &[u8]) -> u32 {
    let session = kind.commit_in(payload).and_then(<[u8]>::first_chunk);
    session.map_or(NO_SESSION, |session| session_group(SessionId::from_bytes(*session)))
}

/// Adds a frame to a block.
pub(super) fn put(block: &mut Vec<u8>, frame: &[u8], offset: u32) {
    let at = block.len();
    block.extend_from_slice(frame);
    block[at + TAG.start..at + TAG.end].copy_from_slice(&offset.to_le_bytes());
}

/// Iterates over the frames of a block, from a place in it on: each frame's range, header and raw offset.
fn frames_in(block: &[u8], mut at: usize) -> impl Iterator<Item = (Range<usize>, Header, u32)> {
    std::iter::from_fn(move || {
        let head: &[u8; frame::HEADER] = block.get(at..)?.first_chunk()?;
        let header = Header::parse_known(head)?;
        let range = at..at + header.frame_len();
        at = range.end;
        (range.end <= block.len())
            .then(|| (range, header, u32::from_le_bytes([head[20], head[21], head[22], head[23]])))
    })
}

fn find(block: &[u8], from: usize, offset: u32) -> Option<Range<usize>> {
    frames_in(block, from).find(|(.., found)| *found == offset).map(|(range, ..)| range)
}

impl Grouped {
    pub(super) fn open(path: &Path, file: Box<dyn DiskFile>, trailer: &Trailer) -> Result<Self> {
        let wrong = |what: &str| StoreError::Format { path: path.to_owned(), what: what.to_owned() };
        let senseless = || wrong("the packed segment's table is invalid");
        let (head, rest) = trailer.table.split_first_chunk().ok_or_else(senseless)?;
        let (entries, part_entries) =
            rest.split_at_checked(trailer.blocks as usize * BLOCK_ENTRY).ok_or_else(senseless)?;
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let (mut start, mut raw_end) = (0, HEADER);
        let mut blocks = Vec::with_capacity(trailer.blocks as usize);
        let mut ends = vec![HEADER];
        for entry in entries.as_chunks::<BLOCK_ENTRY>().0 {
            let [packed, raw, group, offset] = [0, 4, 8, 12].map(|at| entry[at..].first_chunk().map_or(0, word));
            if raw as usize > BLOCK_MAX {
                return Err(senseless());
            }
            blocks.push(GroupedBlock { start, packed, raw, first: (group, offset) });
            (start, raw_end) = (start + u64::from(packed), raw_end + u64::from(raw));
            ends.push(raw_end);
        }
        let (mut parts, mut next) = (Vec::new(), 0);
        for entry in part_entries.as_chunks::<PART_ENTRY>().0 {
            let [offset, count] = [0, 4].map(|at| entry[at..].first_chunk().map_or(0, word));
            // Parts follow each other without gaps.
            if ends.get(next) != Some(&u64::from(offset)) {
                return Err(senseless());
            }
            let end = next.saturating_add(count as usize);
            parts.push(Part { offset, blocks: next..end });
            next = end;
        }
        if next != blocks.len() || raw_end != trailer.raw_len || raw_end > RAW_MAX as u64 {
            return Err(senseless());
        }
        if start != trailer.table_at {
            return Err(wrong("the packed segment's blocks don't fill it"));
        }
        let raw_len = trailer.raw_len;
        Ok(Self { path: path.to_owned(), file, raw_len, head: *head, parts, blocks, id: fresh_id() })
    }

    /// Opens a segment with a damaged trailer or table by scanning its bytes: each block describes its frames.
    pub(super) fn salvage(path: &Path, file: Box<dyn DiskFile>, bytes: &[u8]) -> Self {
        let (mut blocks, mut end) = (Vec::new(), HEADER as usize);
        for range in zstd_frames(bytes) {
            let packed = &bytes[range.clone()];
            let raw = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
            let raw = raw.and_then(|raw| usize::try_from(raw).ok()).filter(|raw| *raw <= BLOCK_MAX);
            let Some(block) = raw.and_then(|raw| decompressed(packed, raw)) else { continue };
            let mut first = None;
            for (place, header, offset) in frames_in(&block, 0) {
                let payload = &block[place.start + frame::HEADER..][..header.length];
                first.get_or_insert((group_of(header.kind, payload), offset));
                end = end.max((offset as usize + place.len()).min(RAW_MAX));
            }
            let (Some(first), Ok(packed), Ok(raw)) = (first, packed.len().try_into(), block.len().try_into()) else {
                continue;
            };
            blocks.push(GroupedBlock { start: range.start as u64, packed, raw, first });
        }
        // The boundaries of the parts are unknown: treat the segment as one part.
        let parts = vec![Part { offset: HEADER as u32, blocks: 0..blocks.len() }];
        let head = [0; HEADER as usize];
        Self { path: path.to_owned(), file, raw_len: end as u64, head, parts, blocks, id: fresh_id() }
    }

    pub(super) fn raw_len(&self) -> u64 {
        self.raw_len
    }

    /// Reads bytes of the raw segment.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && offset + (filled as u64) < self.raw_len {
            let (at, rest) = (offset + filled as u64, &mut buffer[filled..]);
            let count = match self.part_of(at) {
                None => copy(&self.head, at, rest),
                Some(number) => copy(&self.part(number)?, at - u64::from(self.parts[number].offset), rest),
            };
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    }

    /// Returns the frame of a group at a raw offset; the offset replaces its header's checksum. `None` if the frame is
    /// missing or its block is damaged.
    pub(crate) fn frame(&self, group: u32, offset: u32) -> Result<Option<Bytes>> {
        let Some(number) = self.holder((group, offset)) else { return Ok(None) };
        let block = self.block(number)?;
        Ok(block.and_then(|block| find(&block, 0, offset).map(|range| block.slice(range))))
    }

    /// Appends a group's frames at ascending offsets, in the form of [`frame`](Self::frame), to `out` until it has
    /// grown by `limit` bytes; returns the start of each. Stops at the first missing frame.
    pub(crate) fn frames(
        &self,
        group: u32,
        offsets: impl Iterator<Item = u32>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<Vec<usize>> {
        let until = out.len().saturating_add(limit);
        let (mut block, mut number, mut at) = (Bytes::new(), None, 0);
        let mut starts = Vec::new();
        for offset in offsets {
            if !starts.is_empty() && out.len() >= until {
                break;
            }
            let mut found = find(&block, at, offset);
            if found.is_none() {
                let next = self.holder((group, offset));
                if next == number {
                    break;
                }
                block = next.map_or(Ok(None), |next| self.block(next))?.unwrap_or_default();
                number = next;
                found = find(&block, 0, offset);
            }
            let Some(found) = found else { break };
            at = found.end;
            starts.push(out.len());
            out.extend_from_slice(&block[found]);
        }
        Ok(starts)
    }

    /// Returns the only block that can contain a frame.
    fn holder(&self, key: FrameKey) -> Option<usize> {
        let Range { start, end } = self.parts[self.part_of(u64::from(key.1))?].blocks;
        let after = start + self.blocks.get(start..end)?.partition_point(|block| block.first <= key);
        (after > start).then(|| after - 1)
    }

    fn part_of(&self, offset: u64) -> Option<usize> {
        self.parts.partition_point(|part| u64::from(part.offset) <= offset).checked_sub(1)
    }

    /// Returns a block. `None` if it is damaged.
    fn block(&self, number: usize) -> Result<Option<Bytes>> {
        if let Some(block) = KEPT.get(&(self.id, number)) {
            return Ok(Some(block));
        }
        let block = self.unpack(number)?.map(Bytes::from);
        if let Some(block) = &block {
            KEPT.insert((self.id, number), block.clone());
        }
        Ok(block)
    }

    fn unpack(&self, number: usize) -> Result<Option<Vec<u8>>> {
        let Some(block) = self.blocks.get(number) else { return Ok(None) };
        let mut packed = vec![0; block.packed as usize];
        read_exactly(&*self.file, block.start, &mut packed).map_err(StoreError::io("read", &self.path))?;
        Ok(decompressed(&packed, block.raw as usize).filter(|raw| raw.len() == block.raw as usize))
    }

    /// Returns the raw bytes of a part. A damaged block reads as bytes that are not frames, so it is found and repaired
    /// like any other damage.
    fn part(&self, number: usize) -> Result<Bytes> {
        let is_it = |kept: &&(u64, usize, Bytes)| (kept.0, kept.1) == (self.id, number);
        if let Some((.., bytes)) = lock(&PARTS).iter().find(is_it) {
            return Ok(bytes.clone());
        }
        let start = u64::from(self.parts[number].offset);
        let end = self.parts.get(number + 1).map_or(self.raw_len, |next| u64::from(next.offset));
        let mut raw = vec![0xff; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
        for block in self.parts[number].blocks.clone() {
            let Some(block) = self.unpack(block)? else { continue };
            for (range, _, offset) in frames_in(&block, 0) {
                let at = usize::try_from(u64::from(offset).saturating_sub(start)).unwrap_or(usize::MAX);
                if let Some(place) = raw.get_mut(at..at.saturating_add(range.len())) {
                    place.copy_from_slice(&block[range]);
                    let crc = crc32c::crc32c(&place[..TAG.start]);
                    place[TAG].copy_from_slice(&crc.to_le_bytes());
                }
            }
        }
        let bytes = Bytes::from(raw);
        let mut kept = lock(&PARTS);
        kept.truncate(PARTS_KEPT - 1);
        kept.insert(0, (self.id, number, bytes.clone()));
        Ok(bytes)
    }
}

fn copy(from: &[u8], at: u64, to: &mut [u8]) -> usize {
    let from = usize::try_from(at).ok().and_then(|at| from.get(at..)).unwrap_or_default();
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}

impl Drop for Grouped {
    fn drop(&mut self) {
        lock(&PARTS).retain(|(id, ..)| *id != self.id);
    }
}

/// Finds the zstd frames in bytes, skipping garbage.
fn zstd_frames(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..)?;
            match zstd::zstd_safe::find_frame_compressed_size(rest) {
                Ok(length) if length > 0 => {
                    let range = at..at + length;
                    at = range.end;
                    return Some(range);
                }
                _ => at += 1 + rest.get(1..)?.windows(4).position(|four| four == [0x28, 0xb5, 0x2f, 0xfd])?,
            }
        }
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests read files directly")]
mod tests;
