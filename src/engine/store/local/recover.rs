//! Recovery: reads the journal behind the index, and repairs its end after a crash.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::session_heads::Slots;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::store::content::Contents;
use crate::engine::store::index::IndexedUpTo;
use crate::engine::store::journal::frame::{FrameBody, FrameKind};
use crate::engine::store::journal::scan::{self, Frame, ScanEnd};
use crate::engine::store::journal::segment::{self, FIRST, Segment};
use crate::engine::store::journal::{self, FramePosition, Last, Segments};
use crate::engine::store::{Result, StoreError};

pub(super) struct RecoveryScan<'a> {
    pub(super) segments: &'a Segments,
    pub(super) contents: &'a Contents,
    pub(super) slots: &'a Slots,
    /// Damage that a read-only store skipped. It may have contained commits of any session.
    pub(super) hole: Cell<Option<FramePosition>>,
}

/// The findings of a scan; [`mend`](Recovered::mend) applies the repairs.
pub(super) struct Recovered {
    pub(super) journal: [u8; 16],
    pub(super) end: FramePosition,
    /// Position of the next frame: the end, unless the last segment is packed.
    pub(super) next: FramePosition,
    pub(super) group: u64,
    pub(super) is_followed: bool,
    /// The last segment, if nothing was ever recorded in it.
    unused: Option<u32>,
    /// The last segment, if unacknowledged bytes follow the end.
    torn: Option<Arc<Segment>>,
    /// Segments with frames that may never have been synced, and their byte ranges.
    unsynced: Vec<(Arc<Segment>, u64, u64)>,
    /// Damage confined to one known commit or content, one line each.
    damaged: Vec<String>,
}

impl RecoveryScan<'_> {
    pub(super) fn look(&self, stamp: Option<IndexedUpTo>) -> Result<Recovered> {
        let mut numbers = self.segments.numbers()?;
        let unused = match journal::last(self.segments, &numbers)? {
            Last::Used => None,
            Last::Unused => numbers.pop(),
            Last::Lost => numbers.pop().and(None),
        };
        let start = stamp.map_or(FramePosition::first_in(FIRST), |stamp| stamp.end);
        let mut recovered = Recovered {
            journal: SystemClock::default().fresh_id(),
            end: start,
            next: start,
            group: stamp.map_or(0, |stamp| stamp.group),
            is_followed: false,
            unused,
            torn: None,
            unsynced: Vec::new(),
            damaged: Vec::new(),
        };
        let Some(last) = numbers.last().copied() else { return Ok(recovered) };
        check_numbers(&numbers, self.segments)?;
        if start.segment > last {
            return Err(StoreError::Index("it is ahead of the journal".to_owned()));
        }
        recovered.journal = self.segments.get(last)?.head.journal;
        for number in numbers.into_iter().filter(|number| *number >= start.segment) {
            let from = if number == start.segment { start } else { FramePosition::first_in(number) };
            self.segment(from, number == last, &mut recovered)?;
        }
        let segment = self.segments.get(last)?;
        recovered.is_followed = scan::is_sealed(&segment, u64::from(recovered.end.offset))?;
        Ok(recovered)
    }

    fn segment(&self, from: FramePosition, is_last: bool, recovered: &mut Recovered) -> Result<()> {
        let number = from.segment;
        let segment = self.segments.get(number)?;
        if segment.head.journal != recovered.journal {
            let what = "belongs to another journal than the other segments".to_owned();
            return Err(StoreError::Format { path: segment.path.clone(), what });
        }
        // Start of the possibly unsynced frames. Everything that the index knows was synced, including the head.
        let is_known = from == recovered.end && recovered.group > 0;
        let mut unsynced = (!is_known).then_some(u64::from(from.offset));
        let before = recovered.group;
        let damaged = |offset, what: &str| StoreError::Damaged { segment: number, offset, what: what.to_owned() };
        let mut next = u64::from(from.offset);
        let end = loop {
            let end = scan::frames(&segment, next, &mut |frame| {
                // It proves that everything before it was synced, but not that it was synced itself.
                let is_close = frame.header.kind == FrameKind::Close;
                unsynced = unsynced.filter(|_| !is_close).or(Some(frame.offset));
                self.take(&segment, &frame, &mut recovered.group)
            })?;
            match end {
                ScanEnd::Clean(end) if !is_last && !scan::is_sealed(&segment, end)? => {
                    return Err(damaged(end, "the rest of the segment is missing"));
                }
                ScanEnd::Clean(end) => break end,
                // A torn end was never acknowledged; everything else is damage.
                ScanEnd::Bad(at, what) => {
                    let growing = is_last && !segment.is_packed();
                    if growing && scan::durable_after(&segment, at, recovered.group)?.is_none() {
                        recovered.torn = Some(Arc::clone(&segment));
                        break at;
                    }
                    next = self.pass(&segment, at, &mut recovered.group)?.ok_or_else(|| damaged(at, what))?;
                    let what = "one bit is flipped; a repair of the store corrects it";
                    recovered.damaged.push(format!("segment {number} is damaged at byte {at}: {what}"));
                }
            }
        };
        recovered.end = FramePosition::new(number, end);
        let is_packed = segment.is_packed();
        recovered.next = if is_packed { FramePosition::first_in(number + 1) } else { recovered.end };
        if recovered.group > before {
            // A segment is written only after everything in the previous segment is durable.
            recovered.unsynced.clear();
        }
        if let Some(from) = unsynced.filter(|_| !is_packed) {
            recovered.unsynced.push((segment, from, end));
        }
        Ok(())
    }

    /// Indexes a frame with one flipped bit as the original frame, so that only reading it fails. Returns its end.
    /// `None` for other damage, which may have contained commits of any session.
    pub(super) fn pass(&self, segment: &Segment, at: u64, group: &mut u64) -> Result<Option<u64>> {
        let until = scan::resume_after(segment, at)?.map_or_else(|| segment.len(), Ok)?;
        let bytes = segment.read_up_to(at, usize::try_from(until - at).unwrap_or(0))?;
        let Some((header, payload)) = journal::mended(&bytes) else { return Ok(None) };
        self.take(segment, &Frame { offset: at, header, payload: &payload }, group)?;
        Ok(Some(at + header.frame_len() as u64))
    }

    pub(super) fn take(&self, segment: &Segment, frame: &Frame<'_>, group: &mut u64) -> Result<()> {
        *group = frame.header.group;
        let number = segment.head.number;
        let (place, offset) = (frame.position(number), frame.offset);
        let damaged = |what: &str| StoreError::Damaged { segment: number, offset, what: what.to_owned() };
        let body = frame.body().map_err(damaged)?;
        if let (Some(hole), FrameBody::Commit(fork, commit)) = (self.hole.get(), &body) {
            let (session, last) = fork.map_or((commit.session, commit.first - 1), |point| (point.session, point.seq));
            self.slots.scanned(&self.slots.get_or_add(session), |slot| slot.lose(last, hole));
        }
        match body {
            FrameBody::Commit(None, commit) if !self.slots.found(&commit, place) => {
                Err(damaged("the commit does not follow its session's last commit"))
            }
            FrameBody::Commit(Some(point), commit) if !self.slots.found_fork(point, &commit, place) => {
                Err(damaged("the fork does not follow its parent's history"))
            }
            FrameBody::Content(digest, _) => {
                self.contents.found(digest, place);
                Ok(())
            }
            FrameBody::Removal(session) => {
                self.slots.found_removal(session, place);
                Ok(())
            }
            FrameBody::LateStart(..) if !self.slots.found_late(frame.payload, place) => {
                Err(damaged("the late start is invalid, or its session exists already"))
            }
            FrameBody::Commit(..) | FrameBody::LateStart(..) | FrameBody::Mark => Ok(()),
        }
    }
}

impl Recovered {
    /// Cleans up the journal's end after a crash; moves a torn end into `directory`.
    pub(super) fn mend(&self, segments: &Segments, directory: &Path, notes: &mut Vec<String>) -> Result<()> {
        notes.extend_from_slice(&self.damaged);
        if let Some(number) = self.unused {
            let path = segment::raw_path(segments.directory(), number);
            segments.disk().remove(&path).map_err(StoreError::io("remove", &path))?;
            segments.forget(number);
            notes.push(format!("removed segment {number}, which was created and never written"));
        }
        if let Some(segment) = &self.torn {
            let at = u64::from(self.end.offset);
            let (count, path) = scan::save_tail(segments.disk(), segment, at, directory)?;
            segment.truncate(at, 0)?;
            let (number, path) = (segment.head.number, path.display());
            let what = format!("{count} bytes from byte {at} on, never acknowledged");
            notes.push(format!("moved the torn end of segment {number} to {path}: {what}"));
        }
        // The frames found may never have been synced; from now on they count as recorded.
        self.unsynced.iter().try_for_each(|(segment, from, end)| segment.make_durable(*from, *end))
    }
}

fn check_numbers(numbers: &[u32], segments: &Segments) -> Result<()> {
    let missing = numbers.iter().zip(FIRST..).find(|(number, expected)| *number != expected);
    match missing {
        None => Ok(()),
        Some((_, expected)) => {
            let path = segment::raw_path(segments.directory(), expected);
            Err(StoreError::Format { path, what: "the journal segment is missing".to_owned() })
        }
    }
}
