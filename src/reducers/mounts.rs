//! The host directories that were copied into a workspace.

use serde::{Deserialize, Serialize};

use crate::engine::collections::Vector;
use crate::engine::event::MountHydrated;
use crate::engine::{OnRewind, Recorded, Registry, Slice, ValueError};

/// The mounts of a session, in the order of their hydration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mounts {
    mounts: Vector<MountHydrated>,
}

impl Mounts {
    /// Iterates over the mounts, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &MountHydrated> {
        self.mounts.iter()
    }
}

impl Slice for Mounts {
    const NAME: &'static str = "Mounts";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry.slice::<Mounts>()?.reducer(|mut mounts: Mounts, hydrated: &Recorded<MountHydrated>| {
        mounts.mounts.push_back(hydrated.event.clone());
        mounts
    })
}
