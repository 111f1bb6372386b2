//! The prospective place of a commit.

use std::sync::Arc;

use super::lineage::{self, CommitBase};
use super::session_head::SessionHead;
use super::session_heads::Slots;
use super::{LocalInner, LocalStore};
use crate::engine::store::{Committed, Result, StoreError, check_expected};
use crate::engine::{Commit, Expected, Seq, Timestamp};

/// The place of a commit in its session.
pub(in crate::engine::store) enum CommitPlace {
    /// The commit was recorded before.
    Taken(Committed),
    /// The commit would start at this position, with this time.
    Free { first: Seq, time: Timestamp },
}

impl LocalStore {
    /// Finds the place that a commit would get now. Fails like its submission.
    pub(in crate::engine::store) fn place(&self, commit: &Commit) -> Result<CommitPlace> {
        self.shared.healing(|| self.shared.place(commit))
    }
}

impl LocalInner {
    fn place(&self, commit: &Commit) -> Result<CommitPlace> {
        let slot = match (self.slots.get(commit.session), commit.expected) {
            (Some(slot), _) => slot,
            (None, Expected::Exactly(_)) => return Err(StoreError::NoSession(commit.session)),
            (None, _) => Arc::new(SessionHead::new(commit.session)),
        };
        let point = match commit.expected {
            Expected::ForkOf(point) => Some(point),
            _ => None,
        };
        let parent = point.and_then(|point| self.slots.get(point.session));
        let forked_at = point.and_then(|point| self.time_at(point));
        let (mut inner, parent) = Slots::lock(&slot, parent.as_ref());
        lineage::check_present(commit, &inner)?;
        if let Some(id) = commit.id
            && let Some(repeated) = self.repeated(&slot, &mut inner, id)?
        {
            return Ok(CommitPlace::Taken(repeated));
        }
        check_expected(commit, inner.head)?;
        let begun = CommitBase::of(&inner, point, parent, forked_at)?;
        let time = begun.time.map_or(commit.time, |time| commit.time.max(time));
        Ok(CommitPlace::Free { first: begun.head + 1, time })
    }
}
