//! Reading events: from memory where they are recent, from the journal where they are not.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};

use super::slot::{REMEMBERED, Slot, SlotInner};
use super::{Index, Shared};
use crate::engine::commit::CommitView;
use crate::engine::id::{CommitId, SessionId};
use crate::engine::recorded::Seq;
use crate::engine::store::journal::Place;
use crate::engine::store::journal::frame::{self, Header, Kind};
use crate::engine::store::journal::scan::{self, Window};
use crate::engine::store::journal::segment::Segment;
use crate::engine::store::{StoreError, Visitor};

/// Positions looked up at once.
const LOOKED_UP: usize = 8192;
/// Commits whose distance is below this are read together.
const NEAR: u64 = 32 << 10;
/// Bytes read together at most.
const TOGETHER: u64 = 1 << 20;

impl Shared {
    pub(super) fn visit(&self, session: SessionId, from: Seq, visitor: &mut Visitor<'_>) -> Result<(), StoreError> {
        let slot = self.slot(session)?;
        let until = slot.visible();
        let mut next = from.max(1);
        while next <= until {
            let tail = slot.lock().tail_from(next);
            let flow = match tail {
                Some(tail) => {
                    let mut flow = ControlFlow::Continue(());
                    for commit in tail {
                        if flow.is_break() || commit.first > until {
                            return Ok(());
                        }
                        flow = show(&commit.bytes, next, visitor).map_err(|what| StoreError::Damaged {
                            segment: 0,
                            offset: 0,
                            what: what.to_owned(),
                        })?;
                        next = commit.last + 1;
                    }
                    flow
                }
                None => self.visit_stored(&slot, &mut next, until, visitor)?,
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Shows stored commits from the one that holds `next` on, as many as were looked up at once.
    fn visit_stored(
        &self,
        slot: &Slot,
        next: &mut Seq,
        until: Seq,
        visitor: &mut Visitor<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let positions = self.positions(slot, &slot.lock(), *next, LOOKED_UP)?;
        let mut rest = &positions[..];
        if rest.first().is_none_or(|(first, _)| first > next) {
            return Err(StoreError::Index(format!("session {} has no position for event {next}", slot.id)));
        }
        while let Some((_, place)) = rest.first() {
            let segment = self.segments.get(place.segment)?;
            let mut window = Window::new(&segment);
            window.step = usize::try_from(stretch(rest)).unwrap_or(0);
            let mut shown = 0;
            for (first, place) in rest.iter().take_while(|(_, p)| p.segment == segment.head.number) {
                if *first > until {
                    return Ok(ControlFlow::Break(()));
                }
                if !window.holds(u64::from(place.offset)) {
                    window.step = usize::try_from(stretch(&rest[shown..])).unwrap_or(0);
                }
                let damaged = damage(&segment, *place);
                let payload = commit_at(&mut window, *place).map_err(|e| e.unwrap_or_else(&damaged))?;
                let commit = CommitView::parse(payload).map_err(|_| damaged("it is no commit"))?;
                if commit.session != slot.id || commit.first != *first {
                    return Err(StoreError::Index("a position leads to another commit".to_owned()));
                }
                if show(payload, *next, visitor).map_err(damaged)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                *next = commit.last() + 1;
                shown += 1;
            }
            rest = &rest[shown..];
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Positions of the session's commits from the one that holds `seq` on.
    fn positions(
        &self,
        slot: &Slot,
        inner: &SlotInner,
        seq: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Place)>, StoreError> {
        let fresh = &inner.positions;
        if fresh.front().is_some_and(|(first, _)| *first <= seq) {
            let skip = fresh.partition_point(|(first, _)| *first <= seq) - 1;
            return Ok(fresh.range(skip..).take(limit).copied().collect());
        }
        self.with_index(Vec::new(), |index: &Index| index.positions(slot.id, seq, limit))
    }

    /// Does something with the index, and without one when it fails: it is then set aside.
    pub(super) fn with_index<T>(
        &self,
        without: T,
        work: impl FnOnce(&Index) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(index) = self.index() else { return Ok(without) };
        let outcome = work(&index);
        if let Err(error) = &outcome {
            tracing::warn!(%error, "the index failed and is not used any more");
            *self.index.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        outcome
    }

    /// The last named commits of a session, oldest first.
    pub(super) fn named_commits(
        &self,
        slot: &Arc<Slot>,
        inner: &SlotInner,
    ) -> Result<VecDeque<(CommitId, Seq, Seq)>, StoreError> {
        let mut named = VecDeque::new();
        let mut next = inner.head.saturating_sub(4 * REMEMBERED as u64).max(1);
        while next <= inner.head {
            if let Some(tail) = inner.tail_from(next) {
                named.extend(tail.iter().filter_map(|commit| CommitView::parse(&commit.bytes).ok()).filter_map(name));
                break;
            }
            let positions = self.positions(slot, inner, next, LOOKED_UP)?;
            if positions.is_empty() {
                break;
            }
            for (_, place) in positions {
                let segment = self.segments.get(place.segment)?;
                let (_, payload) = scan::frame_at(&segment, u64::from(place.offset))?;
                let commit = CommitView::parse(&payload).map_err(|_| damage(&segment, place)("it is no commit"))?;
                next = commit.last() + 1;
                named.extend(name(commit));
            }
        }
        let surplus = named.len().saturating_sub(REMEMBERED);
        named.drain(..surplus);
        Ok(named)
    }
}

fn name(commit: CommitView<'_>) -> Option<(CommitId, Seq, Seq)> {
    Some((commit.id?, commit.first, commit.last()))
}

/// How many bytes are worth reading at once for the commits to come.
fn stretch(positions: &[(Seq, Place)]) -> u64 {
    let Some((_, start)) = positions.first() else { return 0 };
    let mut end = u64::from(start.offset);
    for (_, place) in positions {
        let offset = u64::from(place.offset);
        let near = place.segment == start.segment && offset.saturating_sub(end) < NEAR;
        if !near || offset - u64::from(start.offset) > TOGETHER {
            break;
        }
        end = offset;
    }
    end - u64::from(start.offset) + 4096
}

/// The payload of the commit at a place; the inner error says what is wrong with the frame.
fn commit_at<'a>(window: &'a mut Window<'_>, place: Place) -> Result<&'a [u8], Result<StoreError, &'static str>> {
    let offset = u64::from(place.offset);
    let head = window.bytes(offset, frame::HEADER).map_err(Ok)?;
    let head = head.first_chunk::<{ frame::HEADER }>().ok_or(Err("the segment ends before it"))?;
    let header = Header::parse(head).filter(|header| header.kind == Kind::Commit);
    let header = header.ok_or(Err("no commit begins there"))?;
    let payload = window.bytes(offset + frame::HEADER as u64, header.length).map_err(Ok)?;
    if header.fits(payload) { Ok(payload) } else { Err(Err("its checksum does not fit its contents")) }
}

fn damage(segment: &Segment, place: Place) -> impl Fn(&'static str) -> StoreError + use<> {
    let number = segment.head.number;
    move |what| StoreError::Damaged { segment: number, offset: u64::from(place.offset), what: what.to_owned() }
}

fn show(payload: &[u8], from: Seq, visitor: &mut Visitor<'_>) -> Result<ControlFlow<()>, &'static str> {
    let commit = CommitView::parse(payload).map_err(|_| "it is no commit")?;
    for event in commit.events() {
        let event = event.map_err(|_| "its events end early")?;
        if event.seq >= from && visitor(&event).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
