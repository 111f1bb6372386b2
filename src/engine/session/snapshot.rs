use std::sync::Arc;

use crate::engine::slice::SliceSummary;
use crate::engine::store::Snapshot;
use crate::engine::{Registry, Seq, SessionId, State};

/// Policy for taking and keeping snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Minimum events between two snapshots; 0 takes none. Large states are taken less often.
    pub every: u64,
    /// Snapshots to keep.
    pub keep: Keep,
}

/// Choice of snapshots to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All: the state at any position is near.
    All,
    /// The last ones, by number: only the current state is near; others are folded from the beginning.
    Last(usize),
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self { every: 1024, keep: Keep::All }
    }
}

/// Bytes per event that snapshots may add to a session: less than a third of the event bytes of small calls.
const BYTES_PER_EVENT: u64 = 88;
/// Snapshots that share the cost of one: about as many as share a base, so that the distances stay even.
const PAID_OVER: u64 = 8;

/// Pace of a session's snapshots, within their share of the store.
#[derive(Debug, Default)]
pub(super) struct SnapshotPace {
    /// Bytes of snapshots that too few events have paid for yet.
    owed: u64,
}

impl SnapshotPace {
    /// Returns the events until the next snapshot, after a snapshot of `added` bytes.
    pub(super) fn pause(&mut self, every: u64, added: u64) -> u64 {
        self.owed = self.owed.saturating_add(added);
        let pause = every.max(self.owed / (PAID_OVER * BYTES_PER_EVENT));
        self.owed = self.owed.saturating_sub(pause.saturating_mul(BYTES_PER_EVENT));
        pause
    }
}

pub(crate) fn snapshot_of(state: &State) -> Option<Snapshot> {
    let slices = state.encode().inspect_err(|error| tracing::warn!(%error, "failed to encode a snapshot")).ok()?;
    let (session, seq) = (state.session(), state.seq());
    Some(Snapshot { session, seq, time: state.time(), unreadable: state.unreadable(), slices })
}

/// Decodes the state of a snapshot; `None` if a registered slice is missing, unreadable or of another version. The
/// events are then folded.
pub(crate) fn state_of(snapshot: &Snapshot, registry: &Arc<Registry>, session: SessionId) -> Option<State> {
    let mut slices = Vec::new();
    for known in &registry.slices {
        let SliceSummary { name, version, .. } = known.summary();
        let stored = snapshot.slice(name, version)?;
        slices.push(known.decode(&stored.blocks).inspect_err(|error| tracing::warn!(%error, "snapshot ignored")).ok()?);
    }
    let Snapshot { seq, time, unreadable, .. } = *snapshot;
    Some(State { seq, time, unreadable, ..State::new(Arc::clone(registry), session, slices) })
}

#[derive(Default)]
pub(crate) struct RecentStates(Vec<State>);

const RECENT: usize = 8;

impl RecentStates {
    pub(crate) fn nearest(&self, seq: Seq) -> Option<State> {
        self.0.iter().filter(|state| state.seq() <= seq).max_by_key(|state| state.seq()).cloned()
    }

    pub(crate) fn add(&mut self, state: State) {
        self.0.retain(|known| known.seq() != state.seq());
        if self.0.len() >= RECENT {
            self.0.remove(0);
        }
        self.0.push(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn snapshots_take_their_share_and_no_more(costs in prop::collection::vec(0_u64..1_000_000, 1..200)) {
            let (mut pace, every) = (SnapshotPace::default(), 100);
            let (mut events, mut bytes) = (0, 0);
            for cost in &costs {
                let pause = pace.pause(every, *cost);
                prop_assert!(pause >= every);
                events += pause;
                bytes += cost;
            }
            let owed = PAID_OVER * costs.iter().max().unwrap();
            prop_assert!(bytes <= events * BYTES_PER_EVENT + owed, "{bytes} in {events}");
        }

        #[test]
        fn distances_stay_even_when_every_eighth_snapshot_is_whole(whole in 100_000_u64..1_000_000) {
            let mut pace = SnapshotPace::default();
            let costs = (0..160).map(|number| if number % 8 == 0 { whole } else { whole / 6 });
            let pauses: Vec<u64> = costs.map(|cost| pace.pause(100, cost)).skip(80).collect();
            let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            prop_assert!(most * 2 <= least * 3, "{least} to {most}");
        }
    }
}
