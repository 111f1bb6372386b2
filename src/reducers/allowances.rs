//! Programs that were allowed for the rest of a session.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::engine::event::{CommandDecided, SessionAllow, SessionStarted};
use crate::engine::{Recorded, Registry, Slice, ValueError};

/// Programs that were allowed for the session, each as an entry of an allow list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedAllowances", into = "EncodedAllowances")]
pub struct Allowances {
    /// The programs.
    pub programs: BTreeSet<String>,
    /// True if every command that is not denied may run.
    pub everything: bool,
}

/// A plain list, unless everything is allowed.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum EncodedAllowances {
    Programs(BTreeSet<String>),
    Everything { programs: BTreeSet<String>, everything: bool },
}

impl From<EncodedAllowances> for Allowances {
    fn from(encoded: EncodedAllowances) -> Self {
        match encoded {
            EncodedAllowances::Programs(programs) => Self { programs, everything: false },
            EncodedAllowances::Everything { programs, everything } => Self { programs, everything },
        }
    }
}

impl From<Allowances> for EncodedAllowances {
    fn from(Allowances { programs, everything }: Allowances) -> Self {
        if everything { Self::Everything { programs, everything } } else { Self::Programs(programs) }
    }
}

impl Slice for Allowances {
    const NAME: &'static str = "Allowances";
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<CommandDecided>()?.event::<SessionAllow>()?.slice::<Allowances>()?;
    let registry = registry.reducer(|allowances: Allowances, started: &Recorded<SessionStarted>| {
        // A person's answers were meant for the parent.
        if started.event.begins_child() { Allowances::default() } else { allowances }
    })?;
    registry.reducer(|mut allowances: Allowances, allowed: &Recorded<SessionAllow>| {
        allowances.programs.extend(allowed.event.programs.iter().cloned());
        allowances.everything |= allowed.event.everything;
        allowances
    })
}
