//! Effects of a session outside of its workspace.

use serde::{Deserialize, Serialize};

use crate::engine::clock::Timestamp;
use crate::engine::event::{EffectOutcome, EffectSource, ExternalEffect};
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, ValueError};

/// The effects of a session's calls outside of its workspace. A rewind keeps them, since it can't take them back. A fork
/// inherits the effects before its fork point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// The last 1,000, oldest first.
    pub entries: Vec<EffectEntry>,
    /// The number of earlier ones.
    #[serde(default)]
    pub earlier: u64,
}

/// An effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
pub struct EffectEntry {
    /// The position of its first event.
    pub seq: Seq,
    /// The call that made it, or null.
    pub call: Option<Seq>,
    /// Its time, in UTC.
    #[cfg_attr(feature = "tools", schemars(with = "String"))]
    pub time: Timestamp,
    /// The agent that made it; empty if unnamed.
    pub agent: String,
    /// The action, such as `git push`.
    pub what: String,
    /// The place, such as a remote or a URL.
    pub target: String,
    /// `done`, `failed`, or `unknown` if it may have taken place.
    #[cfg_attr(feature = "tools", schemars(with = "String"))]
    pub outcome: EffectOutcome,
    /// Advice about undoing it; empty if there is none.
    pub undo: String,
    /// `command`, if a rule found it, `network`, if it is a recorded request, or `report`.
    #[cfg_attr(feature = "tools", schemars(with = "String"))]
    pub by: EffectSource,
}

/// The most entries.
const ENTRIES_MAX: usize = 1000;

impl Slice for Effects {
    const NAME: &'static str = "Effects";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

impl Effects {
    /// Adds an event with its position, time, call and agent, or sets the outcome of an entry.
    #[doc(hidden)]
    pub fn add(&mut self, effect: &ExternalEffect, (seq, time, call, agent): (Seq, Timestamp, Option<Seq>, &str)) {
        let ExternalEffect { what, target, outcome, undo, by, of } = effect.clone();
        let call = of.or(call);
        let is_same = |known: &&mut EffectEntry| {
            known.call.is_some()
                && known.call == call
                && known.outcome == EffectOutcome::Unknown
                // The rule that announced a request may have named it otherwise.
                && (known.what == what || by == EffectSource::Network)
                && known.target == target
        };
        if let Some(known) = self.entries.iter_mut().rev().find(is_same) {
            known.outcome = outcome;
        } else if by != EffectSource::Command || outcome == EffectOutcome::Unknown {
            let agent = agent.to_owned();
            self.entries.push(EffectEntry { seq, call, time, agent, what, target, outcome, undo, by });
        }
        // Otherwise the first event of the effect is no longer among the entries.
    }

    /// Returns the effects after a position that took place, or may have.
    pub fn after(&self, seq: Seq) -> impl Iterator<Item = &EffectEntry> {
        self.entries.iter().filter(move |effect| effect.seq > seq && effect.outcome != EffectOutcome::Failed)
    }
}

impl EffectEntry {
    /// Returns it in words: `git push origin main`.
    pub fn words(&self) -> String {
        if self.target.is_empty() { self.what.clone() } else { format!("{} {}", self.what, self.target) }
    }
}

fn recorded(mut effects: Effects, recorded: &Recorded<ExternalEffect>) -> Effects {
    let Recorded { seq, time, call, agent, event, .. } = recorded;
    effects.add(event, (*seq, *time, *call, agent));
    while effects.entries.len() > ENTRIES_MAX {
        effects.entries.remove(0);
        effects.earlier += 1;
    }
    effects
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry.event::<ExternalEffect>()?.slice::<Effects>()?.reducer(recorded)
}
