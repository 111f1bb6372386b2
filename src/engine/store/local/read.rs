//! Reading events: recent ones from memory, older ones from the journal.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::LocalInner;
use super::named::REMEMBERED;
use super::session_head::{SessionHead, SlotInner};
use crate::engine::backward::backward_spans;
use crate::engine::store::journal::frame::{self, Header};
use crate::engine::store::journal::segment::Segment;
use crate::engine::store::journal::{FramePosition, session_group};
use crate::engine::store::{EventBatch, READ_MAX, Result, StoreError};
use crate::engine::{CommitId, CommitView, Seq, SessionId};

const LOOKED_UP: usize = 8192;
/// Maximum distance of commits that are read together.
const NEAR: u32 = 32 << 10;
/// Bounds of the bytes read for the last commit of a run, which are estimated by the longest commit so far.
const BEHIND_MIN: usize = 512;
const BEHIND_MAX: usize = 4 << 10;
const BATCH_MAX: usize = 256 << 20;
/// Size of a small commit in the journal, to estimate the number of positions.
const SMALL: usize = 96;

impl LocalInner {
    pub(super) fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        let slot = self.slot(session)?;
        let until = until.min(slot.visible());
        if from > until {
            return Ok(EventBatch::default());
        }
        let (owner, theirs) = self.slots.owner(&slot, from)?;
        let mut batch = self.read_own(&owner, from, until.min(theirs), bytes)?;
        if owner.id != session {
            batch.pass_for(session, theirs);
        }
        Ok(batch)
    }

    fn read_own(&self, slot: &Arc<SessionHead>, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        // Loaded before the tail: commits leave the tail only after they are written.
        let written = slot.written().min(until);
        let Some(tail) = slot.lock().tail_from(from) else {
            let events = usize::try_from(until - from).unwrap_or(LOOKED_UP) + 1;
            let wanted = (bytes / SMALL).clamp(1, LOOKED_UP).min(events);
            let positions = self.positions(slot, &slot.lock(), from, until, wanted)?;
            return self.read_stored(slot.id, &positions, from, written, bytes);
        };
        let mut batch = EventBatch::default();
        for commit in tail.iter().take_while(|commit| commit.first <= until) {
            if !batch.is_empty() && batch.len() + commit.bytes.len() > bytes {
                break;
            }
            batch.add(&commit.bytes).ok_or_else(|| StoreError::Index("a recent commit is invalid".to_owned()))?;
        }
        Ok(batch)
    }

    fn read_stored(
        &self,
        session: SessionId,
        positions: &[(Seq, FramePosition)],
        from: Seq,
        written: Seq,
        bytes: usize,
    ) -> Result<EventBatch> {
        if positions.first().is_none_or(|(first, _)| *first > from) {
            return Err(StoreError::Index(format!("session {session} has no position for event {from}")));
        }
        // The requested commit may have been written since.
        let written = written.max(from);
        let (mut batch, mut rest, mut left) = (EventBatch::default(), positions, bytes.min(BATCH_MAX));
        let (mut here, mut longest) = (0, BEHIND_MAX);
        while batch.is_empty() || left > 0 {
            let before = batch.len();
            here = if here == 0 { in_segment(rest, written) } else { here };
            match self.read_near(session, &rest[..here], left, &mut longest, &mut batch) {
                Ok(Some(taken)) => (rest, here) = (&rest[taken..], here - taken),
                // The next read reports the error.
                Err(_) if before > 0 => break,
                ended => return ended.map(|_| batch),
            }
            // A small read does not wait for distant commits.
            left = left.saturating_sub((batch.len() - before).max(BEHIND_MIN));
        }
        Ok(batch)
    }

    /// Adds the first of these commits, which are in one segment, to a batch. Returns their number; `None` without
    /// commits or if the next commit is too long. The first commit of a batch is never too long.
    fn read_near(
        &self,
        session: SessionId,
        positions: &[(Seq, FramePosition)],
        left: usize,
        longest: &mut usize,
        batch: &mut EventBatch,
    ) -> Result<Option<usize>> {
        let Some((_, start)) = positions.first() else { return Ok(None) };
        let segment = self.segments.get(start.segment)?;
        let base = batch.len();
        let starts = load(&segment, session, positions, left, *longest, batch.buffer())?;
        let near = &positions[..starts.len()];
        batch.reserve(near.len());
        // Check all before parsing any, so that the processor computes several checksums in parallel.
        let mut commits: Vec<Range<usize>> = Vec::with_capacity(near.len());
        if base == 0 {
            *longest = 0;
        }
        let mut wrong = None;
        for ((_, place), at) in near.iter().zip(starts) {
            let buffer = batch.buffer();
            let Some((header, commit_at)) = known_commit(buffer, at) else {
                wrong = Some("no commit begins there");
                break;
            };
            let range = at + frame::HEADER..at + frame::HEADER + header.length;
            let there = buffer.len();
            if range.end > there {
                if header.length > left && (base > 0 || !commits.is_empty()) {
                    break;
                }
                buffer.resize(range.end, 0);
                segment.read_at(u64::from(place.offset) + (there - at) as u64, &mut buffer[there..])?;
            }
            if !buffer.get(range.clone()).is_some_and(|payload| header.fits(payload)) {
                wrong = Some("it does not match its checksum");
                break;
            }
            *longest = header.frame_len().max(*longest);
            commits.push(range.start + commit_at..range.end);
        }
        // Commits before the damage are returned; the next read fails.
        if let (Some(what), [], [first, ..]) = (wrong, &commits[..], near) {
            return Err(damage(&segment, session, *first, what));
        }
        let end = commits.last().map_or(base, |commit| commit.end);
        let taken = (commits.len() == near.len()).then_some(near.len());
        take_commits(&segment, session, near, commits, batch)?;
        batch.buffer().truncate(end);
        Ok(taken)
    }

    fn positions(
        &self,
        slot: &SessionHead,
        inner: &SlotInner,
        seq: Seq,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, FramePosition)>> {
        let fresh = &inner.positions;
        if fresh.front().is_some_and(|(first, _)| *first <= seq) {
            let skip = fresh.partition_point(|(first, _)| *first <= seq) - 1;
            return Ok(fresh.range(skip..).take(limit).copied().collect());
        }
        match self.index() {
            Some(index) => index.positions(slot.id, seq, until, limit),
            None => self.scan_positions(slot, &inner.starts, seq, limit),
        }
    }

    /// Returns the last commits with ids: [`REMEMBERED`] or more, or all.
    pub(super) fn named_commits(
        &self,
        slot: &Arc<SessionHead>,
        inner: &SlotInner,
    ) -> Result<VecDeque<(CommitId, Seq, Seq)>> {
        let (first, mut named) = (slot.own_from(), VecDeque::new());
        for (from, _) in backward_spans((first, inner.head), 4 * REMEMBERED as u64, 8) {
            named = self.named_since(slot, inner, from)?;
            if named.len() >= REMEMBERED {
                return Ok(named);
            }
        }
        let before = self.named_before(slot, inner.begun)?;
        before.into_iter().rev().for_each(|commit| named.push_front(commit));
        Ok(named)
    }

    fn named_since(
        &self,
        slot: &Arc<SessionHead>,
        inner: &SlotInner,
        from: Seq,
    ) -> Result<VecDeque<(CommitId, Seq, Seq)>> {
        let mut named = VecDeque::new();
        let mut next = from;
        while next <= inner.head {
            if let Some(tail) = inner.tail_from(next) {
                named.extend(tail.iter().filter_map(|commit| CommitView::parse(&commit.bytes).ok()).filter_map(name));
                break;
            }
            let positions = self.positions(slot, inner, next, inner.head, LOOKED_UP)?;
            let batch = self.read_stored(slot.id, &positions, next, slot.written(), READ_MAX)?;
            named.extend(batch.named().iter().copied());
            next = batch.last() + 1;
        }
        Ok(named)
    }
}

fn name(commit: CommitView<'_>) -> Option<(CommitId, Seq, Seq)> {
    Some((commit.id?, commit.first, commit.last()))
}

/// Counts the leading positions of written commits in one segment, at ascending offsets.
fn in_segment(positions: &[(Seq, FramePosition)], written: Seq) -> usize {
    let Some((_, mut before)) = positions.first().copied() else { return 0 };
    let here = positions.iter().take_while(|(first, place)| {
        let follows = place.segment == before.segment && place.offset >= before.offset;
        before = *place;
        follows && *first <= written
    });
    here.count()
}

/// Reads the first of these commits, as far as they lie near each other; returns the start of each in `buffer`.
fn load(
    segment: &Segment,
    session: SessionId,
    positions: &[(Seq, FramePosition)],
    left: usize,
    longest: usize,
    buffer: &mut Vec<u8>,
) -> Result<Vec<usize>> {
    let Some((first, start)) = positions.first() else { return Ok(Vec::new()) };
    let base = buffer.len();
    let room = left.min(positions.len() * BEHIND_MIN);
    if let Some(grouped) = segment.grouped() {
        buffer.reserve(room);
        let offsets = positions.iter().map(|(_, place)| place.offset);
        let starts = grouped.frames(session_group(session), offsets, left, buffer)?;
        return if starts.is_empty() {
            Err(damage(segment, session, (*first, *start), "no commit begins there"))
        } else {
            Ok(starts)
        };
    }
    let near = together(positions, left);
    let reach = near.last().map_or(0, |(_, last)| (last.offset - start.offset) as usize);
    let count = reach + longest.clamp(BEHIND_MIN, BEHIND_MAX);
    if base == 0 && near.len() == positions.len() {
        *buffer = segment.read_up_to(u64::from(start.offset), count)?;
    } else {
        buffer.reserve(room.max(count));
        buffer.resize(base + count, 0);
        let filled = segment.read_at(u64::from(start.offset), &mut buffer[base..])?;
        buffer.truncate(base + filled);
    }
    Ok(near.iter().map(|(_, place)| base + (place.offset - start.offset) as usize).collect())
}

/// Returns the leading positions that lie near each other.
fn together(positions: &[(Seq, FramePosition)], bytes: usize) -> &[(Seq, FramePosition)] {
    let Some((_, start)) = positions.first() else { return positions };
    let reach = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut before = start.offset;
    let near = positions.iter().take_while(|(_, place)| {
        let is_near = place.offset - before <= NEAR && place.offset - start.offset <= reach;
        before = place.offset;
        is_near
    });
    &positions[..near.count()]
}

/// Adds commits to the batch, and checks that each is the commit that the index states.
fn take_commits(
    segment: &Segment,
    session: SessionId,
    near: &[(Seq, FramePosition)],
    commits: Vec<Range<usize>>,
    batch: &mut EventBatch,
) -> Result<()> {
    for ((first, place), commit) in near.iter().zip(commits) {
        let mut is_other = false;
        let expected = |commit: &CommitView<'_>| {
            is_other = commit.session != session || commit.first != *first;
            !is_other
        };
        if batch.add_range(commit, expected).is_none() {
            return Err(match is_other {
                true => StoreError::Index("a position leads to another commit".to_owned()),
                false => damage(segment, session, (*first, *place), "it is not a commit"),
            });
        }
    }
    Ok(())
}

/// Returns the header of a frame with a commit, and the offset of the commit in its payload.
fn known_commit(buffer: &[u8], at: usize) -> Option<(Header, usize)> {
    let header = buffer.get(at..)?.first_chunk().and_then(Header::parse_known)?;
    Some((header, header.kind.commit_at()?))
}

fn damage(segment: &Segment, session: SessionId, (first, place): (Seq, FramePosition), what: &str) -> StoreError {
    let what = format!("event {first} of session {session} can't be read: {what}");
    StoreError::Damaged { segment: segment.head.number, offset: u64::from(place.offset), what }
}
