//! Reading frames in order, and telling a torn end from damage.

use super::disk::JournalDisk;
use super::frame::{self, FrameKind, Header};
use super::segment::{self, Segment};
use crate::engine::store::StoreError;

const WINDOW: usize = 1 << 20;

/// A frame that was found whole.
pub(crate) struct Frame<'a> {
    pub(crate) offset: u64,
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
}

/// End of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScanEnd {
    /// Nothing but zeros, or nothing at all, follows.
    Clean(u64),
    /// At this offset there is no whole frame, and there are bytes.
    Bad(u64, &'static str),
}

/// Shows every frame from `from` on until one is not whole.
pub(crate) fn frames(
    segment: &Segment,
    from: u64,
    visit: &mut dyn FnMut(Frame<'_>) -> Result<(), StoreError>,
) -> Result<ScanEnd, StoreError> {
    let mut window = SegmentWindow::new(segment);
    let mut offset = from.max(segment::HEADER);
    loop {
        let head = window.bytes(offset, frame::HEADER)?;
        let Ok(head) = <&[u8; frame::HEADER]>::try_from(head) else {
            let clean = head.iter().all(|byte| *byte == 0);
            return Ok(if clean {
                ScanEnd::Clean(offset)
            } else {
                ScanEnd::Bad(offset, "it ends within a frame's head")
            });
        };
        let Some(header) = Header::parse(head) else {
            return window.end(offset);
        };
        let payload = window.bytes(offset + frame::HEADER as u64, header.length)?;
        if payload.len() < header.length {
            return Ok(ScanEnd::Bad(offset, "it ends within a frame"));
        }
        if !header.fits(payload) {
            return Ok(ScanEnd::Bad(offset, "a frame's checksum does not fit its contents"));
        }
        visit(Frame { offset, header, payload })?;
        offset += header.frame_len() as u64;
    }
}

/// Finds the first whole frame at or after `from` that begins a group later than `after`, or belongs to
/// one even later: what can't be there when the bytes at `from` were never acknowledged.
pub(crate) fn durable_after(segment: &Segment, from: u64, after: u64) -> Result<Option<u64>, StoreError> {
    let mut window = SegmentWindow::new(segment);
    let mut offset = after_frame(&mut window, from)?.unwrap_or(from.next_multiple_of(frame::ALIGN as u64));
    loop {
        let Ok(head) = <&[u8; frame::HEADER]>::try_from(window.bytes(offset, frame::HEADER)?) else {
            return Ok(None);
        };
        if let Some(header) = Header::parse(head) {
            let later = header.group > after + 1 || header.group > after && header.first && offset > from;
            if later && header.fits(window.bytes(offset + frame::HEADER as u64, header.length)?) {
                return Ok(Some(offset));
            }
        }
        offset += frame::ALIGN as u64;
    }
}

/// Finds the end of a frame whose head is whole and whose payload is not: a payload may hold the bytes of
/// another journal, and is not searched for frames.
fn after_frame(window: &mut SegmentWindow<'_>, from: u64) -> Result<Option<u64>, StoreError> {
    let header = window.bytes(from, frame::HEADER)?.first_chunk().and_then(Header::parse);
    Ok(header.map(|header| from + header.frame_len() as u64))
}

/// Finds the next offset after `from` at which a whole frame stands.
pub(crate) fn resume_after(segment: &Segment, from: u64) -> Result<Option<u64>, StoreError> {
    let mut window = SegmentWindow::new(segment);
    let mut offset = after_frame(&mut window, from)?.unwrap_or((from + 1).next_multiple_of(frame::ALIGN as u64));
    loop {
        let Ok(head) = <&[u8; frame::HEADER]>::try_from(window.bytes(offset, frame::HEADER)?) else {
            return Ok(None);
        };
        if let Some(header) = Header::parse(head)
            && header.fits(window.bytes(offset + frame::HEADER as u64, header.length)?)
        {
            return Ok(Some(offset));
        }
        offset += frame::ALIGN as u64;
    }
}

/// Tells whether the frames that end at `end` are all of a full segment: nothing of it was cut off.
pub(crate) fn is_sealed(segment: &Segment, end: u64) -> Result<bool, StoreError> {
    let mut window = SegmentWindow::new(segment);
    window.step = frame::HEADER;
    let head = window.bytes(end.saturating_sub(frame::HEADER as u64), frame::HEADER)?;
    Ok(head.first_chunk().and_then(Header::parse).is_some_and(|header| header.kind == FrameKind::Seal))
}

/// Reads one frame.
pub(crate) fn frame_at(segment: &Segment, offset: u64) -> Result<(FrameKind, Vec<u8>), StoreError> {
    let damaged = |what: &str| StoreError::Damaged { segment: segment.head.number, offset, what: what.to_owned() };
    let mut window = SegmentWindow::new(segment);
    window.step = 8 << 10;
    let head = window.bytes(offset, frame::HEADER)?;
    let head = <&[u8; frame::HEADER]>::try_from(head).map_err(|_| damaged("the segment ends before it"))?;
    let header = Header::parse(head).ok_or_else(|| damaged("no frame begins there"))?;
    let payload = window.bytes(offset + frame::HEADER as u64, header.length)?;
    if !header.fits(payload) {
        return Err(damaged("a frame's checksum does not fit its contents"));
    }
    Ok((header.kind, payload.to_vec()))
}

/// A part of a segment in memory that moves along.
pub(crate) struct SegmentWindow<'a> {
    segment: &'a Segment,
    buffer: Vec<u8>,
    start: u64,
    filled: usize,
    pub(crate) step: usize,
}

impl<'a> SegmentWindow<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Self {
        Self { segment, buffer: Vec::new(), start: 0, filled: 0, step: WINDOW }
    }

    /// Returns the bytes at `offset`: `length` of them, or fewer where the segment ends.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8], StoreError> {
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.filled as u64 {
            self.fill(offset, length)?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.filled);
        Ok(&self.buffer[from..self.filled.min(from + length)])
    }

    /// Returns the bytes of memory that it has.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    fn fill(&mut self, offset: u64, length: usize) -> Result<(), StoreError> {
        // A frame's head may say anything: memory is taken for what there is.
        let left = usize::try_from(self.segment.len()?.saturating_sub(offset)).unwrap_or(usize::MAX);
        let want = length.max(self.step).min(left);
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.filled = self.segment.read_at(offset, &mut self.buffer[..want])?;
        self.start = offset;
        Ok(())
    }

    /// Tells how a segment ends at an offset where no frame begins.
    pub(crate) fn end(&mut self, offset: u64) -> Result<ScanEnd, StoreError> {
        let mut at = offset;
        loop {
            let bytes = self.bytes(at, 64 << 10)?;
            if bytes.is_empty() {
                return Ok(ScanEnd::Clean(offset));
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(ScanEnd::Bad(offset, "the bytes there are no frame"));
            }
            at += bytes.len() as u64;
        }
    }
}

/// Shows the frames that are whole now in a segment that another process may be writing.
pub(crate) fn frames_so_far(
    segment: &Segment,
    from: u64,
    visit: &mut dyn FnMut(Frame<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut window = SegmentWindow::new(segment);
    window.step = 64 << 10;
    let mut offset = from;
    loop {
        let Some(header) = window.bytes(offset, frame::HEADER)?.first_chunk().and_then(Header::parse) else {
            return Ok(());
        };
        let payload = window.bytes(offset + frame::HEADER as u64, header.length)?;
        if !header.fits(payload) {
            return Ok(());
        }
        visit(Frame { offset, header, payload })?;
        offset += header.frame_len() as u64;
        window.step = WINDOW;
    }
}

/// Bytes cut from the end of a segment, in a file of their own.
pub(crate) struct Cut {
    pub(crate) bytes: u64,
    pub(crate) path: std::path::PathBuf,
}

/// Copies the end of a segment to a file of its own, up to its last byte that is not zero; the file is durable.
pub(crate) fn save_tail(
    disk: &dyn JournalDisk,
    segment: &Segment,
    from: u64,
    directory: &std::path::Path,
) -> Result<Cut, StoreError> {
    let torn = segment::torn_directory(disk, directory)?;
    let path = torn.join(format!("{:08}-{from}.bin", segment.head.number));
    let file = disk.create(&path).map_err(StoreError::io("create", &path))?;
    let mut window = SegmentWindow::new(segment);
    let (mut at, mut zeros, mut written) = (from, 0_u64, 0_u64);
    loop {
        let bytes = window.bytes(at, WINDOW)?;
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else {
            if bytes.is_empty() {
                break;
            }
            zeros += bytes.len() as u64;
            at += bytes.len() as u64;
            continue;
        };
        // A gap of zeros before it is written by leaving it out.
        file.write_all_at(&bytes[..=last], written + zeros).map_err(StoreError::io("write", &path))?;
        written += zeros + last as u64 + 1;
        zeros = (bytes.len() - last - 1) as u64;
        at += bytes.len() as u64;
    }
    file.sync_all().map_err(StoreError::io("sync", &path))?;
    segment::sync_directory(disk, &torn)?;
    Ok(Cut { bytes: written, path })
}
