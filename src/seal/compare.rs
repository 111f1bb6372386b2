use std::ops::ControlFlow;

use super::leaf_log::SealedSession;
use super::{SealError, SealProblem, SealProblemKind};
use crate::engine::chain::chain_at;
use crate::engine::event::EventsLost;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::store::EventStore;

/// Result of a comparison.
pub(super) struct Compared {
    /// Chain at the head.
    pub(super) chain: Option<Digest>,
    pub(super) problem: Option<SealProblem>,
}

/// Compares the history of a session up to `head` with its seals.
pub(super) fn compare(
    store: &dyn EventStore,
    session: SessionId,
    head: Seq,
    sealed: &SealedSession,
) -> Result<Compared, SealError> {
    let until = sealed.seals.last().map_or(0, |(seq, ..)| *seq);
    let present = sealed.seals.iter().filter(|(seq, ..)| *seq <= head);
    let positions: Vec<Seq> = present.clone().map(|(seq, ..)| *seq).chain([head]).collect();
    let chains = chain_at(store, session, &positions)?;
    let mut problem = None;
    let mut intact = 0;
    for ((seq, chain, _), found) in present.zip(&chains) {
        if *found != Some(*chain) {
            problem = Some((SealProblemKind::Changed, *seq));
            break;
        }
        intact = *seq;
    }
    if problem.is_none() && until > head {
        (problem, intact) = (Some((SealProblemKind::Short, until)), head);
    }
    let problem = match problem {
        None => None,
        Some((kind, until)) => {
            let lost = lost(store, session)?;
            Some(SealProblem { session, kind, from: intact + 1, until, lost, recorded: false })
        }
    };
    Ok(Compared { chain: chains.last().copied().flatten(), problem })
}

/// Counts the events that a session records as lost.
fn lost(store: &dyn EventStore, session: SessionId) -> Result<u64, SealError> {
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
