//! The files of the copied journal: read while their owner writes, packs and rewrites them.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::{CopyResult, ReplicationError};
use super::manifest::{CopiedPiece, FileStamp};
use crate::engine::Digest;
use crate::engine::store::StoreError;
use crate::engine::store::journal::disk::OsDisk;
use crate::engine::store::journal::frame::{FrameKind, HEADER as FRAME_HEADER, Header};
use crate::engine::store::journal::scan;
use crate::engine::store::journal::segment::{self, HEADER, Segment};

/// The file of a segment.
pub(super) struct JournalFile {
    pub(super) number: u32,
    pub(super) packed: bool,
    pub(super) stamp: FileStamp,
    path: PathBuf,
}

/// The end of the intact frames in a growing segment, where the next scan continues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    pub(super) number: u32,
    inode: u64,
    pub(super) end: u64,
    pub(super) sealed: bool,
    /// Checksum of the bytes before the end.
    checksum: u32,
    group: u64,
    /// True if the bytes after the end are known not to be damage.
    judged: bool,
}

impl Tail {
    fn pass(&mut self, frame: &Header) {
        self.end += frame.frame_len() as u64;
        (self.group, self.judged) = (frame.group, false);
        self.sealed = frame.kind == FrameKind::Seal;
    }

    /// Reads new intact frames and returns their bytes. `None` if they are too many.
    fn read_on(&mut self, segment: &Segment) -> CopyResult<Option<Vec<u8>>> {
        let (from, mut bytes, mut whole) = (self.end, Vec::with_capacity(FEW), 0);
        loop {
            let filled = bytes.len();
            bytes.resize(filled + STEP, 0);
            let read = segment.read_at(from + filled as u64, &mut bytes[filled..])?;
            bytes.truncate(filled + read);
            let is_cut = loop {
                let Some(head) = bytes[whole..].first_chunk() else { break true };
                let Some(header) = Header::parse(head) else { break false };
                let Some(frame) = bytes.get(whole..whole + header.frame_len()) else { break true };
                if !header.fits(&frame[FRAME_HEADER..FRAME_HEADER + header.length]) {
                    break false;
                }
                self.pass(&header);
                whole += header.frame_len();
            };
            if !is_cut || read < STEP {
                bytes.truncate(whole);
                return Ok(Some(bytes));
            }
            if bytes.len() + STEP > FEW {
                return Ok(None);
            }
        }
    }
}

/// Bytes per read of new frames, and the maximum held in memory until they are copied.
const STEP: usize = 256 << 10;
const FEW: usize = 2 << 20;
/// Bytes before the end with a checksum that detects a rewritten file.
const CHECKED: u64 = 512;

impl JournalFile {
    /// Finds the file of a segment. `None` if it does not exist.
    pub(super) fn find(journal: &Path, number: u32) -> CopyResult<Option<Self>> {
        let (packed, raw) = (segment::packed_path(journal, number), segment::raw_path(journal, number));
        // It may be packed between the two checks.
        for (path, packed) in [(&packed, true), (&raw, false), (&packed, true)] {
            match std::fs::metadata(path) {
                Ok(found) => {
                    let modified = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
                    let stamp = FileStamp { inode: found.ino(), bytes: found.len(), modified };
                    return Ok(Some(Self { number, packed, stamp, path: path.clone() }));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("inspect", path)(error).into()),
            }
        }
        Ok(None)
    }

    /// Returns the identity of the journal in a directory.
    pub(super) fn identity(journal: &Path) -> CopyResult<String> {
        let first = open_segment(journal, segment::FIRST)?;
        Ok(first.head.journal.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads existing bytes. Fails if the file was replaced by a shorter one.
    #[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
    pub(super) fn read(&self, at: u64, count: u64) -> CopyResult<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map(|()| bytes).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::UnexpectedEof => ReplicationError::Rewritten,
            _ => StoreError::io("read", &self.path)(error).into(),
        })
    }

    /// Returns the leading pieces of a copy that match this file.
    pub(super) fn matching(&self, pieces: &[CopiedPiece]) -> CopyResult<Vec<CopiedPiece>> {
        let mut at = 0;
        let mut matching = Vec::new();
        for piece in pieces {
            if at + piece.bytes > self.stamp.bytes || !piece.digest.is_of(&self.read(at, piece.bytes)?) {
                break;
            }
            at += piece.bytes;
            matching.push(piece.clone());
        }
        Ok(matching)
    }

    /// Returns true if the file still contains the tail.
    pub(super) fn has(&self, tail: &Tail) -> CopyResult<bool> {
        let is_file = !self.packed && tail.number == self.number && tail.inode == self.stamp.inode;
        Ok(is_file && tail.end <= self.stamp.bytes && self.checksum(tail.end)? == tail.checksum)
    }

    fn checksum(&self, end: u64) -> CopyResult<u32> {
        let from = end.saturating_sub(CHECKED);
        Ok(crc32c::crc32c(&self.read(from, end - from)?))
    }

    /// Reads the frames after the tail, or all frames. Fails if a frame is damaged, or if the segment `is_followed` but
    /// not sealed. Also returns the bytes after the tail, if they are few.
    pub(super) fn scan(
        &self,
        journal: &Path,
        before: Option<Tail>,
        is_followed: bool,
    ) -> CopyResult<(Tail, Option<Vec<u8>>)> {
        let segment = open_segment(journal, self.number)?;
        if segment.is_packed() != self.packed {
            return Err(ReplicationError::Rewritten);
        }
        let (number, inode) = (self.number, self.stamp.inode);
        let fresh = Tail { number, inode, end: HEADER, sealed: false, checksum: 0, group: 0, judged: false };
        let mut tail = before.unwrap_or(fresh);
        let from = tail.end;
        let fresh = if before.is_some() { tail.read_on(&segment)? } else { None };
        if fresh.is_none() {
            tail.end = from;
            scan::frames_so_far(&segment, from, &mut |frame| {
                tail.pass(&frame.header);
                Ok(())
            })?;
        }
        if is_followed && !tail.sealed {
            return Err(self.damaged(tail.end, "the rest of the segment is missing"));
        }
        if !self.packed {
            let last = fresh.as_ref().and_then(|fresh| fresh.last_chunk::<{ CHECKED as usize }>());
            tail.checksum = last.map_or_else(|| self.checksum(tail.end), |last| Ok(crc32c::crc32c(last)))?;
        }
        // A frame may be half written at this moment: judge the rest only once nothing new follows.
        if tail.end == from && !tail.judged && !tail.sealed {
            if has_bytes_at(&segment, tail.end)? && scan::durable_after(&segment, tail.end, tail.group)?.is_some() {
                return Err(self.damaged(tail.end, "valid frames follow garbage"));
            }
            tail.judged = true;
        }
        Ok((tail, fresh))
    }

    fn damaged(&self, offset: u64, what: &str) -> ReplicationError {
        StoreError::Damaged { segment: self.number, offset, what: what.to_owned() }.into()
    }
}

fn has_bytes_at(segment: &Segment, at: u64) -> CopyResult<bool> {
    let mut bytes = [0; FRAME_HEADER];
    let filled = segment.read_at(at, &mut bytes)?;
    Ok(bytes[..filled].iter().any(|byte| *byte != 0))
}

fn open_segment(journal: &Path, number: u32) -> CopyResult<Segment> {
    Segment::open(&OsDisk, journal, number, false).map_err(|error| match error {
        StoreError::Io { source, .. } if source.kind() == ErrorKind::NotFound => ReplicationError::Rewritten,
        other => other.into(),
    })
}

/// Returns true if a segment has a frame, so that the segment before it is sealed.
pub(super) fn is_begun(journal: &Path, number: u32) -> bool {
    let mut bytes = [0; FRAME_HEADER];
    let segment = Segment::open(&OsDisk, journal, number, false);
    segment.is_ok_and(|segment| segment.read_at(HEADER, &mut bytes).is_ok() && Header::parse(&bytes).is_some())
}

/// Returns the digest of a secret and a file's inode, which differs for a copy of the file.
pub(super) fn identity_of(secret: &[u8], inode: u64) -> String {
    let digest = Digest::of(&[secret, &inode.to_le_bytes()].concat()).to_string();
    digest[..32].to_owned()
}
