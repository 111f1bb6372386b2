//! The host directories that were copied into a workspace.

use serde::{Deserialize, Serialize};

use crate::engine::collections::Vector;
use crate::engine::error::ValueError;
use crate::engine::event::MountHydrated;
use crate::engine::recorded::Recorded;
use crate::engine::registry::Registry;
use crate::engine::slice::{OnRewind, Slice};

/// The mounts of a session, in the order of their hydration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mounts {
    mounts: Vector<MountHydrated>,
}

impl Mounts {
    /// Each with what was asked for and what came of it.
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
