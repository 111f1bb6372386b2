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
        Self { every: 1536, keep: Keep::All }
    }
}

pub(crate) fn snapshot_of(state: &State) -> Option<Snapshot> {
    let slices = state.encode().inspect_err(|error| tracing::warn!(%error, "no snapshot was taken")).ok()?;
    let (session, seq) = (state.session(), state.seq());
    Some(Snapshot { session, seq, time: state.time(), unreadable: state.unreadable(), slices })
}

/// Decodes the state of a snapshot; none if a registered slice is missing, unreadable or of another version. The events
/// are then folded.
pub(crate) fn state_of(snapshot: &Snapshot, registry: &Arc<Registry>, session: SessionId) -> Option<State> {
    let mut slices = Vec::new();
    for known in &registry.slices {
        let SliceSummary { name, version, .. } = known.summary();
        let stored = snapshot.slice(name, version)?;
        slices.push(known.decode(&stored.blocks).inspect_err(|error| tracing::warn!(%error, "not used")).ok()?);
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
