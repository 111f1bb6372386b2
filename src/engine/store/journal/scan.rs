//! Sequential reading of frames, and the distinction between a torn end and damage.

use std::path::{Path, PathBuf};

use super::disk::JournalDisk;
use super::frame::{self, FrameBody, FrameKind, Header};
use super::segment::{self, FramePosition, Segment};
use crate::engine::store::{Result, StoreError};

const WINDOW: usize = 1 << 20;
const CHECKSUM: &str = "a frame does not match its checksum";

pub(crate) struct Frame<'a> {
    pub(crate) offset: u64,
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) fn body(&self) -> Result<FrameBody<'a>, &'static str> {
        FrameBody::of(self.header.kind, self.payload)
    }

    pub(crate) fn position(&self, segment: u32) -> FramePosition {
        FramePosition::new(segment, self.offset)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// Only zeros or nothing follow this offset.
    Clean(u64),
    /// The bytes at this offset are not an intact frame.
    Bad(u64, &'static str),
}

type FrameVisitor<'a> = dyn FnMut(Frame<'_>) -> Result<()> + 'a;

pub(crate) fn frames(segment: &Segment, from: u64, visit: &mut FrameVisitor<'_>) -> Result<ScanEnd> {
    let mut window = SegmentWindow::new(segment, WINDOW);
    match window.frames(from.max(segment::HEADER), u64::MAX, visit)? {
        (at, Some(what)) => Ok(ScanEnd::Bad(at, what)),
        (at, None) => window.end(at),
    }
}

/// Visits the intact frames of a segment that another process may be writing.
pub(crate) fn frames_so_far(segment: &Segment, from: u64, visit: &mut FrameVisitor<'_>) -> Result<()> {
    frames_until(segment, from, u64::MAX, visit).map(drop)
}

/// Visits the intact frames that begin before `until`, like [`frames_so_far`]. Returns the end of the last frame.
pub(crate) fn frames_until(segment: &Segment, from: u64, until: u64, visit: &mut FrameVisitor<'_>) -> Result<u64> {
    SegmentWindow::new(segment, 64 << 10).frames(from, until, visit).map(|(at, _)| at)
}

/// Returns the offset of the next intact frame behind damage at `at`. In a segment that may grow, the bytes may be a
/// write in flight, unless a group later than `group` follows. A long run of zeros is the end.
pub(crate) fn behind_damage(segment: &Segment, at: u64, may_grow: bool, group: u64) -> Result<Option<u64>> {
    let is_end = segment.read_up_to(at, 64 << 10)?.iter().all(|byte| *byte == 0);
    if may_grow && (is_end || group == 0 || durable_after(segment, at, group)?.is_none()) {
        return Ok(None);
    }
    resume_after(segment, at)
}

/// Finds the first intact frame at or after `from` that begins a group later than `after`, or belongs to an even later
/// group. Such a frame proves that the bytes at `from` were acknowledged.
pub(crate) fn durable_after(segment: &Segment, from: u64, after: u64) -> Result<Option<u64>> {
    find_frame(segment, from, from, |header, offset| {
        header.group > after + 1 || header.group > after && header.first && offset > from
    })
}

pub(crate) fn resume_after(segment: &Segment, from: u64) -> Result<Option<u64>> {
    find_frame(segment, from, from + 1, |_, _| true)
}

/// Finds an intact frame after the damaged one at `damaged`, or from `from` on if its header is unreadable. Payloads
/// are not searched, because they may contain another journal's bytes.
fn find_frame(
    segment: &Segment,
    damaged: u64,
    from: u64,
    is_wanted: impl Fn(&Header, u64) -> bool,
) -> Result<Option<u64>> {
    let mut window = SegmentWindow::new(segment, WINDOW);
    let mut offset = match window.header(damaged)? {
        Some(header) => damaged + header.frame_len() as u64,
        None => from.next_multiple_of(frame::ALIGN as u64),
    };
    loop {
        if window.bytes(offset, frame::HEADER)?.len() < frame::HEADER {
            return Ok(None);
        }
        if let Some(header) = window.header(offset)?.filter(|header| is_wanted(header, offset))
            && header.fits(window.payload(offset, &header)?)
        {
            return Ok(Some(offset));
        }
        offset += frame::ALIGN as u64;
    }
}

/// Returns true if the last frame before `end` is a seal, so that nothing was cut off.
pub(crate) fn is_sealed(segment: &Segment, end: u64) -> Result<bool> {
    let last = SegmentWindow::new(segment, frame::HEADER).header(end.saturating_sub(frame::HEADER as u64))?;
    Ok(last.is_some_and(|header| header.kind == FrameKind::Seal))
}

/// Reads the frame at an offset. A segment that is packed by session locates it by its group.
pub(crate) fn frame_at(segment: &Segment, group: u32, offset: u64) -> Result<(FrameKind, Vec<u8>)> {
    let damaged = |what: &str| StoreError::Damaged { segment: segment.head.number, offset, what: what.to_owned() };
    if let (Some(grouped), Ok(place)) = (segment.grouped(), u32::try_from(offset))
        && let Some(frame) = grouped.frame(group, place)?
        && let Some((head, rest)) = frame.split_first_chunk()
        && let Some(header) = Header::parse_known(head)
    {
        let payload = rest.get(..header.length).filter(|payload| header.fits(payload));
        return Ok((header.kind, payload.ok_or_else(|| damaged(CHECKSUM))?.to_vec()));
    }
    let mut window = SegmentWindow::new(segment, 8 << 10);
    let header = window.header(offset)?.ok_or_else(|| damaged("no frame begins there"))?;
    let payload = window.payload(offset, &header)?;
    if !header.fits(payload) {
        return Err(damaged(CHECKSUM));
    }
    Ok((header.kind, payload.to_vec()))
}

pub(crate) struct SegmentWindow<'a> {
    segment: &'a Segment,
    buffer: Vec<u8>,
    start: u64,
    filled: usize,
    step: usize,
}

impl<'a> SegmentWindow<'a> {
    /// Creates a window that reads at least `step` bytes at once.
    pub(crate) fn new(segment: &'a Segment, step: usize) -> Self {
        Self { segment, buffer: Vec::new(), start: 0, filled: 0, step }
    }

    /// Visits intact frames that begin before `until`. Returns the offset of the first bytes that are not one, and the
    /// problem if they have a valid header.
    fn frames(
        &mut self,
        mut offset: u64,
        until: u64,
        visit: &mut FrameVisitor<'_>,
    ) -> Result<(u64, Option<&'static str>)> {
        while offset < until
            && let Some(header) = self.header(offset)?
        {
            let payload = self.payload(offset, &header)?;
            if payload.len() < header.length {
                return Ok((offset, Some("the segment ends inside a frame")));
            }
            if !header.fits(payload) {
                return Ok((offset, Some(CHECKSUM)));
            }
            visit(Frame { offset, header, payload })?;
            offset += header.frame_len() as u64;
            self.step = WINDOW;
        }
        Ok((offset, None))
    }

    fn header(&mut self, offset: u64) -> Result<Option<Header>> {
        Ok(self.bytes(offset, frame::HEADER)?.first_chunk().and_then(Header::parse))
    }

    fn payload(&mut self, offset: u64, header: &Header) -> Result<&[u8]> {
        self.bytes(offset + frame::HEADER as u64, header.length)
    }

    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.filled as u64 {
            self.fill(offset, length)?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.filled);
        Ok(&self.buffer[from..self.filled.min(from + length)])
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    fn fill(&mut self, offset: u64, length: usize) -> Result<()> {
        // A damaged header may claim any length: allocate only for bytes that exist.
        let left = usize::try_from(self.segment.len()?.saturating_sub(offset)).unwrap_or(usize::MAX);
        let want = length.max(self.step).min(left);
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.filled = self.segment.read_at(offset, &mut self.buffer[..want])?;
        self.start = offset;
        Ok(())
    }

    pub(crate) fn end(&mut self, offset: u64) -> Result<ScanEnd> {
        let mut at = offset;
        loop {
            let bytes = self.bytes(at, 64 << 10)?;
            if bytes.is_empty() {
                return Ok(ScanEnd::Clean(offset));
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(ScanEnd::Bad(offset, "the bytes are not a frame"));
            }
            at += bytes.len() as u64;
        }
    }
}

/// Copies the end of a segment, up to its last nonzero byte, to a separate durable file. Returns the file's length and
/// path.
pub(crate) fn save_tail(
    disk: &dyn JournalDisk,
    segment: &Segment,
    from: u64,
    directory: &Path,
) -> Result<(usize, PathBuf)> {
    let path = segment::torn_directory(disk, directory)?.join(format!("{:08}-{from}.bin", segment.head.number));
    let mut bytes = segment.read_up_to(from, usize::try_from(segment.len()?.saturating_sub(from)).unwrap_or(0))?;
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    segment::put_file(disk, &path, &bytes)?;
    Ok((bytes.len(), path))
}
