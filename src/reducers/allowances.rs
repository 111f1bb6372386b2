//! Programs that were allowed for the rest of a session.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::engine::event::{CommandDecided, SessionAllow, SessionStarted};
use crate::engine::{Recorded, Registry, Slice, ValueError};

/// Programs that were allowed for the session, each as an entry of an allow list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Allowances {
    /// The programs.
    pub programs: BTreeSet<String>,
}

impl Slice for Allowances {
    const NAME: &'static str = "Allowances";
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<CommandDecided>()?.event::<SessionAllow>()?.slice::<Allowances>()?;
    let registry = registry.reducer(|allowances: Allowances, started: &Recorded<SessionStarted>| {
        // What a person answered was meant for the parent.
        if started.event.begins_child() { Allowances::default() } else { allowances }
    })?;
    registry.reducer(|mut allowances: Allowances, allowed: &Recorded<SessionAllow>| {
        allowances.programs.extend(allowed.event.programs.iter().cloned());
        allowances
    })
}
