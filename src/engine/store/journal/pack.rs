//! Packing of full segments into blocks by session.

use std::path::{Path, PathBuf};

use zstd::bulk::Compressor;

use super::disk::{DiskFile, JournalDisk};
use super::grouped::{self, BLOCK, PART, RAW_MAX, group_of};
use super::scan::{self, Frame, ScanEnd};
use super::segment::{HEADER, Segment, sync_directory};
use super::trailer::{BLOCK_ENTRY, PART_ENTRY, Trailer};
use crate::engine::store::{Result, StoreError};

const LEVEL: i32 = 3;

/// Writes a packed copy of a segment; the file and its name are durable. Returns false, and leaves no copy, if the bytes
/// up to `end` are not only intact frames.
pub(crate) fn pack(disk: &dyn JournalDisk, segment: &Segment, end: u64, target: &Path) -> Result<bool> {
    pack_in_parts(PART, disk, segment, end, target)
}

/// Packs in parts of at least `part` raw bytes.
pub(super) fn pack_in_parts(
    part: u64,
    disk: &dyn JournalDisk,
    segment: &Segment,
    end: u64,
    target: &Path,
) -> Result<bool> {
    if end > RAW_MAX as u64 {
        return Ok(false);
    }
    let mut packing = Grouping {
        segment,
        part,
        file: PackedFile::create(disk, target)?,
        frames: Vec::new(),
        block: Vec::new(),
        first: (0, 0),
        blocks: Vec::new(),
        parts: Vec::new(),
    };
    let scanned = scan::frames(segment, HEADER, &mut |frame| {
        // The padding after the last frame may be missing.
        let is_there = frame.offset + frame.header.frame_len() as u64 <= end;
        if is_there { packing.take(&frame) } else { Ok(()) }
    })?;
    packing.put_part()?;
    let ScanEnd::Clean(raw_len) = scanned else { return packing.file.discard() };
    if raw_len > end || packing.parts.is_empty() {
        return packing.file.discard();
    }
    let table = [&segment.head.encode()[..], &packing.blocks, &packing.parts].concat();
    let (blocks, parts) = (packing.blocks.len() / BLOCK_ENTRY, packing.parts.len());
    let parts = count(parts / PART_ENTRY);
    packing.file.finish(&Trailer { raw_len, blocks: count(blocks), parts, table, table_at: 0 })?;
    Ok(true)
}

struct PlacedFrame {
    group: u32,
    offset: u32,
    length: u32,
}

struct Grouping<'a> {
    segment: &'a Segment,
    /// Minimum raw bytes of a part.
    part: u64,
    file: PackedFile<'a>,
    /// Frames of the part in progress.
    frames: Vec<PlacedFrame>,
    block: Vec<u8>,
    first: grouped::FrameKey,
    blocks: Vec<u8>,
    parts: Vec<u8>,
}

impl Grouping<'_> {
    fn take(&mut self, frame: &Frame<'_>) -> Result<()> {
        let (offset, length) = (u32::try_from(frame.offset).unwrap_or(u32::MAX), count(frame.header.frame_len()));
        self.frames.push(PlacedFrame { group: group_of(frame.header.kind, frame.payload), offset, length });
        let start = self.frames.first().map_or(offset, |first| first.offset);
        if u64::from(offset - start) + u64::from(length) >= self.part { self.put_part() } else { Ok(()) }
    }

    /// Writes the collected frames as a part.
    fn put_part(&mut self) -> Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        let (Some(start), Some(last)) = (frames.first(), frames.last()) else { return Ok(()) };
        let (start, end) = (start.offset, last.offset + last.length);
        let raw = whole(self.segment, u64::from(start), (end - start) as usize)?;
        let before = self.blocks.len();
        let mut last = None;
        // The sort is stable: the frames of a group stay in order.
        frames.sort_by_key(|frame| frame.group);
        for frame in &frames {
            let bytes = &raw[(frame.offset - start) as usize..][..frame.length as usize];
            // Another session starts a new block, unless the current block is still small.
            let is_other = last.replace(frame.group) != Some(frame.group);
            if self.block.len() + bytes.len() > BLOCK || is_other && self.block.len() >= BLOCK / 4 {
                self.put_block()?;
            }
            if self.block.is_empty() {
                self.first = (frame.group, frame.offset);
            }
            grouped::put(&mut self.block, bytes, frame.offset);
        }
        self.put_block()?;
        let blocks = (self.blocks.len() - before) / BLOCK_ENTRY;
        self.parts.extend_from_slice(&start.to_le_bytes());
        self.parts.extend_from_slice(&count(blocks).to_le_bytes());
        Ok(())
    }

    fn put_block(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            let length = self.file.add(&self.block)?;
            for word in [length, count(self.block.len()), self.first.0, self.first.1] {
                self.blocks.extend_from_slice(&word.to_le_bytes());
            }
            self.block.clear();
        }
        Ok(())
    }
}

/// A packed segment under construction.
struct PackedFile<'a> {
    disk: &'a dyn JournalDisk,
    target: &'a Path,
    unfinished: PathBuf,
    file: Box<dyn DiskFile>,
    compressor: Compressor<'static>,
    written: u64,
}

impl<'a> PackedFile<'a> {
    fn create(disk: &'a dyn JournalDisk, target: &'a Path) -> Result<Self> {
        let unfinished = target.with_extension("tmp");
        let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
        let mut compressor = Compressor::new(LEVEL).map_err(StoreError::io("compress", &unfinished))?;
        compressor.include_checksum(true).map_err(StoreError::io("compress", &unfinished))?;
        Ok(Self { disk, target, unfinished, file, compressor, written: 0 })
    }

    /// Adds a block; returns its compressed length.
    fn add(&mut self, raw: &[u8]) -> Result<u32> {
        let packed = self.compressor.compress(raw).map_err(StoreError::io("compress", &self.unfinished))?;
        self.file.write_all_at(&packed, self.written).map_err(StoreError::io("write", &self.unfinished))?;
        self.written += packed.len() as u64;
        Ok(count(packed.len()))
    }

    /// Removes the unfinished file; returns false.
    fn discard(self) -> Result<bool> {
        self.disk.remove(&self.unfinished).map_err(StoreError::io("remove", &self.unfinished))?;
        Ok(false)
    }

    fn finish(self, trailer: &Trailer) -> Result<()> {
        let Self { disk, target, unfinished, file, written, .. } = self;
        file.write_all_at(&trailer.encode(), written).map_err(StoreError::io("write", &unfinished))?;
        file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
        disk.rename(&unfinished, target).map_err(StoreError::io("rename", &unfinished))?;
        target.parent().map_or(Ok(()), |directory| sync_directory(disk, directory))
    }
}

fn whole(segment: &Segment, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = segment.read_up_to(offset, length)?;
    bytes.truncate(length);
    if bytes.len() < length {
        let what = format!("ends before byte {}", offset + length as u64);
        return Err(StoreError::Format { path: segment.path.clone(), what });
    }
    Ok(bytes)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
