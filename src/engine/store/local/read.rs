//! Reading events: from memory where they are recent, from the journal where they are not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::LocalInner;
use super::session_head::{REMEMBERED, SessionHead, SlotInner};
use crate::engine::store::journal::FramePosition;
use crate::engine::store::journal::frame::{self, Header};
use crate::engine::store::journal::segment::Segment;
use crate::engine::store::{EventBatch, READ_MAX, Result, StoreError};
use crate::engine::{CommitId, CommitView, Seq, SessionId};

const LOOKED_UP: usize = 8192;
/// Distance below which commits are read together.
const NEAR: u32 = 32 << 10;
/// Bytes read after the beginning of the last commit, in which it likely ends.
const BEHIND: usize = 4 << 10;
const BATCH_MAX: usize = 256 << 20;
/// Bytes of a small commit in the journal, to estimate the number of positions.
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
        // Asked before the tail: what leaves the tail is written.
        let written = slot.written().min(until);
        let Some(tail) = slot.lock().tail_from(from) else {
            let events = usize::try_from(until - from).unwrap_or(LOOKED_UP) + 1;
            let wanted = (bytes / SMALL).clamp(1, LOOKED_UP).min(events);
            let positions = self.positions(slot, &slot.lock(), from, wanted)?;
            return self.read_stored(slot.id, &positions, from, written, bytes);
        };
        let mut batch = EventBatch::default();
        for commit in tail.iter().take_while(|commit| commit.first <= until) {
            if !batch.is_empty() && batch.len() + commit.bytes.len() > bytes {
                break;
            }
            batch.add(&commit.bytes).ok_or_else(|| StoreError::Index("a recent commit makes no sense".to_owned()))?;
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
        // What is wanted may have been written since.
        let written = written.max(from);
        let (mut batch, mut rest, mut left) = (EventBatch::default(), positions, bytes.min(BATCH_MAX));
        while batch.is_empty() || left > 0 {
            let (near, behind) = rest.split_at(together(rest, written, left));
            let before = batch.len();
            match self.read_near(session, near, &mut batch) {
                Ok(true) => rest = behind,
                // Told when what comes next is read.
                Err(_) if before > 0 => break,
                ended => return ended.map(|_| batch),
            }
            // A caller that wants little does not wait for distant commits.
            left = left.saturating_sub((batch.len() - before).max(BEHIND));
        }
        Ok(batch)
    }

    /// Adds commits to a batch; true if there are any and all are in it. The first one of a batch always is.
    fn read_near(&self, session: SessionId, near: &[(Seq, FramePosition)], batch: &mut EventBatch) -> Result<bool> {
        let (Some((_, start)), Some((_, last))) = (near.first(), near.last()) else { return Ok(false) };
        let segment = self.segments.get(start.segment)?;
        let reach = usize::try_from(last.offset - start.offset).unwrap_or(0);
        let base = batch.len();
        batch.reserve(near.len());
        match base {
            0 => *batch.buffer() = segment.read_up_to(u64::from(start.offset), reach + BEHIND)?,
            _ => {
                batch.buffer().resize(base + reach + BEHIND, 0);
                let filled = segment.read_at(u64::from(start.offset), &mut batch.buffer()[base..])?;
                batch.buffer().truncate(base + filled);
            }
        }
        // All are checked before any is taken apart: checksums of several are then under way in the processor at once.
        let mut commits: Vec<Range<usize>> = Vec::with_capacity(near.len());
        for (_, place) in near {
            let at = base + usize::try_from(place.offset - start.offset).unwrap_or(0);
            let damaged = damage(&segment, *place);
            let header = batch.buffer().get(at..).and_then(<[u8]>::first_chunk).and_then(Header::parse_known);
            let header = header.and_then(|header| Some((header, header.kind.commit_at()?)));
            let (header, commit_at) = header.ok_or_else(|| damaged("no commit begins there"))?;
            let range = at + frame::HEADER..at + frame::HEADER + header.length;
            if range.end > batch.buffer().len() {
                // The first one of all is wanted, however long it is.
                if base > 0 || !commits.is_empty() {
                    break;
                }
                batch.buffer().resize(range.end, 0);
                segment.read_at(u64::from(start.offset), batch.buffer())?;
            }
            if !batch.buffer().get(range.clone()).is_some_and(|payload| header.fits(payload)) {
                return Err(damaged("its checksum does not fit its contents"));
            }
            commits.push(range.start + commit_at..range.end);
        }
        let end = commits.last().map_or(base, |commit| commit.end);
        let is_whole = commits.len() == near.len();
        for ((first, place), commit) in near.iter().zip(commits) {
            let mut other = false;
            let expected = |commit: &CommitView<'_>| {
                other = commit.session != session || commit.first != *first;
                !other
            };
            if batch.add_range(commit, expected).is_none() {
                let elsewhere = || StoreError::Index("a position leads to another commit".to_owned());
                return Err(if other { elsewhere() } else { damage(&segment, *place)("it is no commit") });
            }
        }
        batch.buffer().truncate(end);
        Ok(is_whole)
    }

    fn positions(
        &self,
        slot: &SessionHead,
        inner: &SlotInner,
        seq: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, FramePosition)>> {
        let fresh = &inner.positions;
        if fresh.front().is_some_and(|(first, _)| *first <= seq) {
            let skip = fresh.partition_point(|(first, _)| *first <= seq) - 1;
            return Ok(fresh.range(skip..).take(limit).copied().collect());
        }
        match self.index() {
            Some(index) => index.positions(slot.id, seq, limit),
            None if self.writer.is_none() => self.scan_positions(slot, &inner.starts, seq, limit),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn named_commits(
        &self,
        slot: &Arc<SessionHead>,
        inner: &SlotInner,
    ) -> Result<VecDeque<(CommitId, Seq, Seq)>> {
        let mut span = 4 * REMEMBERED as u64;
        loop {
            let from = inner.head.saturating_sub(span).max(slot.own_from());
            let mut named = self.named_since(slot, inner, from)?;
            if named.len() >= REMEMBERED || from == slot.own_from() {
                named.drain(..named.len().saturating_sub(REMEMBERED));
                return Ok(named);
            }
            span *= 8;
        }
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
            let positions = self.positions(slot, inner, next, LOOKED_UP)?;
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

/// Counts the leading positions of written commits that lie near each other in one segment.
fn together(positions: &[(Seq, FramePosition)], written: Seq, bytes: usize) -> usize {
    let Some((_, start)) = positions.first() else { return 0 };
    let reach = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut before = start.offset;
    let near = positions.iter().take_while(|(first, place)| {
        let distance = place.offset.checked_sub(before);
        let near = place.segment == start.segment && distance.is_some_and(|distance| distance <= NEAR);
        before = place.offset;
        near && *first <= written && place.offset - start.offset <= reach
    });
    near.count()
}

fn damage(segment: &Segment, place: FramePosition) -> impl Fn(&'static str) -> StoreError + use<> {
    let number = segment.head.number;
    move |what| StoreError::Damaged { segment: number, offset: u64::from(place.offset), what: what.to_owned() }
}
