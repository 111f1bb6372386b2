//! Snapshots: when they are taken and how they become states again.

use std::sync::Arc;

use crate::engine::id::{Seq, SessionId};
use crate::engine::registry::Registry;
use crate::engine::state::State;
use crate::engine::store::Snapshot;

/// Bytes per event that snapshots may add to a session: with this the whole grows linearly.
const BYTES_PER_EVENT: u64 = 768;

/// When snapshots are taken, and which are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Events between two snapshots, at least; 0 takes none. Large states are taken more rarely.
    pub every: u64,
    /// Which are kept.
    pub keep: Keep,
}

/// Which snapshots are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All: the state at any position is near.
    All,
    /// The last so many: the present is near, the past is folded from the beginning.
    Last(usize),
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self { every: 1536, keep: Keep::All }
    }
}

impl SnapshotPolicy {
    /// How far after a snapshot that took `added` bytes the next one comes.
    pub(crate) fn next_after(&self, added: u64) -> u64 {
        self.every.max(added / BYTES_PER_EVENT)
    }
}

/// The snapshot of a state; none when a slice has no encoding.
pub(crate) fn snapshot_of(state: &State) -> Option<Snapshot> {
    let slices = state.encode().inspect_err(|error| tracing::warn!(%error, "no snapshot was taken")).ok()?;
    let (session, seq) = (state.session(), state.seq());
    Some(Snapshot { session, seq, time: state.time(), unreadable: state.unreadable(), slices })
}

/// The state of a snapshot; none when the registry has a slice that is not in it, of another
/// version, or not readable. Then the events have to tell.
pub(crate) fn state_of(snapshot: &Snapshot, registry: &Arc<Registry>, session: SessionId) -> Option<State> {
    let mut slices = Vec::new();
    for known in registry.slice_types() {
        let stored = snapshot.slices.iter().find(|slice| *slice.name == *known.name())?;
        if stored.version != known.version() {
            return None;
        }
        slices.push(known.decode(&stored.blocks).inspect_err(|error| tracing::warn!(%error, "not used")).ok()?);
    }
    let mut state = State::new(Arc::clone(registry), session, slices);
    state.seq = snapshot.seq;
    state.time = snapshot.time;
    state.unreadable = snapshot.unreadable;
    Some(state)
}

/// A few states of one session at positions that were asked for, the latest asked last.
#[derive(Default)]
pub(crate) struct RecentStates(Vec<State>);

const RECENT: usize = 8;

impl RecentStates {
    /// The latest state at or before `seq`.
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

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
