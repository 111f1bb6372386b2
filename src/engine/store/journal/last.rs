//! Classification of the last segment.

use super::disk;
use super::scan::{self, ScanEnd, SegmentWindow};
use super::segment::{self, SegmentHead};
use super::segments::Segments;
use crate::engine::store::{Result, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Used,
    /// Created, but the segment before it was not sealed: nothing was ever recorded in it.
    Unused,
    /// Its head is gone, although the seal before it proves that it had one.
    Lost,
}

/// Classifies the last segment. A new segment's head and name are durable before the previous segment is sealed.
pub(crate) fn last(segments: &Segments, numbers: &[u32]) -> Result<Last> {
    let Some(last) = numbers.last().copied() else { return Ok(Last::Used) };
    let has_head = segments.get(last).is_ok();
    if !is_blank(segments, last, has_head)? {
        return Ok(Last::Used);
    }
    let before = numbers.iter().rev().nth(1).filter(|before| **before + 1 == last);
    Ok(match (before, has_head) {
        (None, true) => Last::Used,
        (None, false) => Last::Unused,
        (Some(before), _) => match (ends_with_seal(segments, *before)?, has_head) {
            (true, true) => Last::Used,
            (true, false) => Last::Lost,
            (false, _) => Last::Unused,
        },
    })
}

fn is_blank(segments: &Segments, number: u32, has_head: bool) -> Result<bool> {
    if has_head {
        let segment = segments.get(number)?;
        let mut window = SegmentWindow::new(&segment, 64 << 10);
        return Ok(window.end(segment::HEADER)? == ScanEnd::Clean(segment::HEADER));
    }
    let path = segment::raw_path(segments.directory(), number);
    if !segments.disk().exists(&path) {
        return Ok(false);
    }
    let bytes = disk::read_whole(segments.disk(), &path).map_err(StoreError::io("read", &path))?;
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut journal = [0; 16];
    bytes.iter().skip(16).zip(&mut journal).for_each(|(byte, place)| *place = *byte);
    Ok(SegmentHead { number, journal }.encode().starts_with(&bytes[..written]))
}

fn ends_with_seal(segments: &Segments, number: u32) -> Result<bool> {
    // The reader of that segment reports the error.
    let Ok(segment) = segments.get(number) else { return Ok(true) };
    match scan::frames(&segment, segment::HEADER, &mut |_| Ok(()))? {
        ScanEnd::Clean(end) => scan::is_sealed(&segment, end),
        ScanEnd::Bad(..) => Ok(false),
    }
}
