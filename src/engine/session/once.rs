//! Idempotent commits.

use std::ops::ControlFlow;

use super::Session;
use super::error::{SessionError, SessionResult};
use crate::engine::event::{Event, SessionTaken};
use crate::engine::store::{Committed, StoreError};
use crate::engine::{Commit, CommitId, Expected, Seq};

impl Session {
    /// Records a commit that has an id. If the session already has a commit with this id, returns its positions
    /// instead. Fails with [`SessionError::OtherRequest`] if that commit has other events or another agent.
    pub fn record_once(&self, commit: Commit) -> SessionResult<Committed> {
        let own = commit.duplicate();
        let committed = self.record(commit)?;
        if committed.repeated {
            self.check_same(&own, committed)?;
        }
        Ok(committed)
    }

    /// Fails with [`SessionError::OtherRequest`] if a recorded commit has other events or another agent than `commit`.
    #[doc(hidden)]
    pub fn check_same(&self, commit: &Commit, recorded: Committed) -> SessionResult<()> {
        let view = commit.view(recorded.first, commit.time);
        let mut own = view.events();
        let mut is_same = recorded.last == view.last();
        self.visit_between(recorded.first, recorded.last, &mut |event| {
            let same = own.next().and_then(Result::ok).is_some_and(|own| {
                (own.kind, own.version, own.payload, own.agent)
                    == (event.kind, event.version, event.payload, event.agent)
            });
            is_same &= same;
            if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if is_same { Ok(()) } else { Err(SessionError::OtherRequest { seq: recorded.first }) }
    }

    /// Returns the positions of the commit with the id, if it is among the session's last 1,024 commits with an id.
    #[doc(hidden)]
    pub fn commit_with_id(&self, id: CommitId) -> SessionResult<Option<Committed>> {
        // A store recognises an id before it refuses a commit, and this one is always refused.
        let mut probe = self.commit().with_id(id).expecting(Expected::Exactly(Seq::MAX));
        probe.push(&SessionTaken { host: String::new(), epoch: 0 })?;
        match self.record(probe) {
            Ok(committed) => Ok(Some(committed)),
            Err(SessionError::Store(StoreError::Conflict { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the first event of the commit with the id. Fails with [`SessionError::OtherRequest`] if that is not an
    /// `E`.
    #[doc(hidden)]
    pub fn first_with_id<E: Event>(&self, id: CommitId) -> SessionResult<Option<(Committed, E)>> {
        let Some(committed) = self.commit_with_id(id)? else { return Ok(None) };
        let other = SessionError::OtherRequest { seq: committed.first };
        let event = self.event(committed.first)?.view().decoded::<E>().ok_or(other)?;
        Ok(Some((committed, event)))
    }
}
