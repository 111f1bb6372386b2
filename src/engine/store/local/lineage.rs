//! Children and parents: a child's past is read from its parents' histories.
//!
//! Each session counts the children with their [base](SessionHead::base) in it, under its lock. A removed session with
//! children is buried: it can't be opened, and its events stay until the last child is removed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::LocalInner;
use super::session_head::{SessionHead, SlotInner};
use super::session_heads::Slots;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::journal::FramePosition;
use crate::engine::store::{READ_MAX, Result, SessionEntry, StoreError};
use crate::engine::{Commit, CommitView, Expected, ForkPoint, Seq, SessionId, Timestamp};

/// A locked parent, so that it is not removed before its child is staged.
pub(super) struct LockedParent<'a> {
    slot: &'a SessionHead,
    pub(super) inner: MutexGuard<'a, SlotInner>,
}

/// The end of the history that a commit extends.
pub(super) struct CommitBase<'a> {
    pub(super) head: Seq,
    pub(super) time: Option<Timestamp>,
    pub(super) fork: Option<(ForkPoint, LockedParent<'a>)>,
}

impl<'a> CommitBase<'a> {
    /// Finds the base of a commit. `time` is the time of a fork's position, if it could be read.
    pub(super) fn of(
        inner: &SlotInner,
        point: Option<ForkPoint>,
        parent: Option<LockedParent<'a>>,
        time: Option<Timestamp>,
    ) -> Result<Self> {
        let Some(point) = point else {
            return Ok(Self { head: inner.head, time: (inner.head > 0).then_some(inner.time), fork: None });
        };
        let parent = parent.ok_or(StoreError::NoSession(point.session))?;
        let actual = parent.slot.visible();
        if parent.inner.removed.is_some() || actual == 0 {
            return Err(StoreError::NoSession(point.session));
        }
        if point.seq == 0 || point.seq > actual {
            return Err(StoreError::Conflict { session: point.session, expected: point.seq, actual });
        }
        // The parent's last time is a safe substitute: times never decrease.
        let time = time.unwrap_or(parent.inner.time);
        Ok(Self { head: point.seq, time: Some(time), fork: Some((point, parent)) })
    }
}

impl Slots {
    /// Returns the session that owns the event at `seq`, and the last position that it shares with `slot`. Fails with
    /// [`StoreError::NotHere`] if the owner started late and its past is not filled.
    pub(super) fn owner(&self, slot: &Arc<SessionHead>, seq: Seq) -> Result<(Arc<SessionHead>, Seq)> {
        let (mut owner, mut until) = (Arc::clone(slot), Seq::MAX);
        while let Some(base) = owner.base().filter(|base| seq <= base.seq) {
            until = until.min(base.seq);
            let parent = self.get(base.session);
            let parent = parent.ok_or_else(|| StoreError::Index(format!("session {} has lost its past", slot.id)))?;
            if owner.is_late() && parent.visible() < seq {
                return Err(StoreError::NotHere { session: owner.id, until: base.seq });
            }
            owner = parent;
        }
        Ok((owner, until))
    }

    /// Adds a commit found in the journal. Returns false if it does not follow its session's head.
    pub(super) fn found(&self, commit: &CommitView<'_>, place: FramePosition) -> bool {
        self.scanned(&self.get_or_add(commit.session), |slot| slot.found(commit, place))
    }

    /// Adds a fork found in the journal. Returns false if its past is missing.
    pub(super) fn found_fork(&self, base: ForkPoint, commit: &CommitView<'_>, place: FramePosition) -> bool {
        let Some(parent) = self.get(base.session).filter(|parent| parent.id != commit.session) else { return false };
        if parent.lock().head < base.seq {
            return false;
        }
        let slot = self.get_or_add(commit.session);
        if slot.lock().head > 0 {
            return false;
        }
        slot.fork_at(base);
        let calls = parent.lock().calls_at(base.seq);
        slot.lock().inherit(calls);
        let follows = self.scanned(&slot, |slot| slot.found(commit, place));
        parent.lock().children += usize::from(follows);
        follows
    }

    pub(super) fn found_removal(&self, session: SessionId, place: FramePosition) {
        let Some(slot) = self.get(session) else {
            self.dirty().removed.push((session, place));
            return;
        };
        let mut inner = slot.lock();
        let is_first = inner.removed.replace(place).is_none();
        let has_children = inner.children > 0;
        drop(inner);
        if is_first {
            self.unlist(session);
            self.uncount(&slot);
        }
        if has_children { self.note(&slot) } else { self.dissolve(&slot, place) }
    }

    pub(super) fn note(&self, slot: &Arc<SessionHead>) {
        let mut dirty = self.dirty();
        if !slot.dirty.swap(true, Ordering::AcqRel) {
            dirty.sessions.push(Arc::clone(slot));
        }
    }

    /// Drops a removed session without children, and ancestors that were retained only for it.
    pub(super) fn dissolve(&self, slot: &Arc<SessionHead>, place: FramePosition) {
        let mut next = Some(Arc::clone(slot));
        while let Some(slot) = next {
            self.let_go(&slot);
            self.dirty().removed.push((slot.id, place));
            let parent = slot.base().and_then(|base| self.get(base.session));
            next = parent.filter(|parent| {
                let mut inner = parent.lock();
                inner.children = inner.children.saturating_sub(1);
                inner.children == 0 && (inner.removed.is_some() || slot.is_late())
            });
        }
    }

    pub(super) fn load(&self, rows: &[CatalogueRow]) -> Result<(), String> {
        let slots: Vec<_> = rows.iter().map(|row| Arc::new(SessionHead::of_row(row))).collect();
        slots.iter().for_each(|slot| self.add(Arc::clone(slot)));
        for slot in slots.iter().filter(|slot| slot.is_late()) {
            self.add_past(slot);
        }
        for base in slots.iter().filter(|slot| !slot.is_late()).filter_map(|slot| slot.base()) {
            let parent = self.get(base.session).filter(|parent| parent.visible() >= base.seq);
            parent.ok_or("it lacks a session's parent")?.lock().children += 1;
        }
        // Left by a crash after the removal of the last child.
        for slot in &slots {
            let inner = slot.lock();
            let is_removed_alone = inner.removed.is_some() && inner.children == 0;
            drop(inner);
            if is_removed_alone && self.get(slot.id).is_some() {
                self.dissolve(slot, FramePosition::default());
            }
        }
        Ok(())
    }

    /// Locks a session and its parent in an order that prevents deadlocks.
    pub(super) fn lock<'a>(
        slot: &'a SessionHead,
        parent: Option<&'a Arc<SessionHead>>,
    ) -> (MutexGuard<'a, SlotInner>, Option<LockedParent<'a>>) {
        let Some(parent) = parent.filter(|parent| parent.id != slot.id) else { return (slot.lock(), None) };
        let first = (slot.id > parent.id).then(|| parent.lock());
        let own = slot.lock();
        let inner = first.unwrap_or_else(|| parent.lock());
        (own, Some(LockedParent { slot: parent, inner }))
    }
}

impl LocalInner {
    /// Returns the entry of a session; counts its inherited calls if they are not counted yet.
    pub(super) fn entry(&self, slot: &Arc<SessionHead>) -> Option<SessionEntry> {
        let lacks_calls = slot.base().filter(|_| slot.lock().lacks_calls());
        if let Some(base) = lacks_calls
            && let Ok(calls) = self.count_calls(slot.id, 1, base.seq).inspect_err(|error| tracing::debug!(%error))
        {
            slot.lock().inherit(Some(calls));
            self.slots.note(slot);
        }
        slot.entry()
    }

    /// Counts the calls that a session's events from `from` to `until` start.
    pub(super) fn count_calls(&self, session: SessionId, from: Seq, until: Seq) -> Result<u64> {
        let (mut calls, mut next) = (0, from);
        while next <= until {
            let batch = self.read(session, next, until, READ_MAX)?;
            calls += batch
                .events()
                .filter(|event| (from..=until).contains(&event.seq) && event.call == Some(event.seq))
                .count() as u64;
            next = if batch.is_empty() { Seq::MAX } else { batch.last() + 1 };
        }
        Ok(calls)
    }
}

/// Checks that the session was not removed.
pub(super) fn check_present(commit: &Commit, inner: &SlotInner) -> Result<()> {
    let is_buried = inner.children > 0 && !matches!(commit.expected, Expected::Exactly(_));
    match inner.removed {
        None => Ok(()),
        Some(_) if is_buried => Err(StoreError::Buried(commit.session)),
        Some(_) => Err(StoreError::NoSession(commit.session)),
    }
}
