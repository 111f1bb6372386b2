use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use super::IntegrityError;
use super::leaf_log::SealedSession;
use crate::engine::chain::chain_at;
use crate::engine::event::EventsLost;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::store::EventStore;

/// Difference of a session from what was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SealProblem {
    /// Session.
    pub session: SessionId,
    /// First event that may differ.
    pub from: Seq,
    /// Last event that may differ.
    pub until: Seq,
    /// Problem.
    pub what: String,
}

impl fmt::Display for SealProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, from, until, what } = self;
        write!(f, "session {}, events {from} to {until}: {what}", session.short())
    }
}

/// Compares the history of a session up to `head` with its seals. Returns the chain at the head, and the first difference.
pub(super) fn compare(
    store: &dyn EventStore,
    session: SessionId,
    head: Seq,
    sealed: &SealedSession,
) -> Result<(Option<Digest>, Option<SealProblem>), IntegrityError> {
    let mut positions: Vec<Seq> = sealed.seals.iter().map(|(seq, ..)| *seq).filter(|seq| *seq <= head).collect();
    positions.push(head);
    let chains = chain_at(store, session, &positions)?;
    let is_other = |(at, (_, chain, _)): &(usize, &(Seq, Digest, usize))| {
        *at + 1 == positions.len() || chains[*at] != Some(*chain)
    };
    let first = sealed.seals.iter().enumerate().find(is_other);
    let problem = first.map(|(at, (until, ..))| {
        let intact = at.checked_sub(1).map_or(0, |before| sealed.seals[before].0);
        let (from, what) = match *until > head {
            true => (head + 1, "they are missing"),
            false => (intact + 1, "they are not as they were sealed"),
        };
        let lost = match lost(store, session)? {
            0 => String::new(),
            lost => format!(", and the session records {lost} lost events"),
        };
        Ok::<_, IntegrityError>(SealProblem { session, from, until: *until, what: format!("{what}{lost}") })
    });
    Ok((chains.last().copied().flatten(), problem.transpose()?))
}

/// Counts the events that a session records as lost.
fn lost(store: &dyn EventStore, session: SessionId) -> Result<u64, IntegrityError> {
    let mut lost = 0;
    store.visit(session, 1, &mut |event| {
        if EventsLost::is_gap(event) {
            lost += 1;
        } else if let Some(end) = event.decoded::<EventsLost>() {
            lost += end.last.saturating_sub(end.first) + 1;
        }
        ControlFlow::Continue(())
    })?;
    Ok(lost)
}
