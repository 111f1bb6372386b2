//! Scores, notes and names of positions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::event::{Annotated, PositionTagged};
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, ValueError};

/// Scores and notes of a session, and names of its positions. A rewind keeps them; a fork inherits them from its past.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Annotations {
    /// Scores and notes, oldest first.
    pub entries: Vec<Annotation>,
    /// Positions by their names.
    pub tags: BTreeMap<String, Seq>,
}

/// A score, a note or a value for a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
pub struct Annotation {
    /// The position of its event.
    pub seq: Seq,
    /// The agent or program that made it; empty for none.
    pub agent: String,
    /// The subject, such as `reward`.
    pub name: String,
    /// The annotated position.
    pub at: Seq,
    /// The score, or null.
    pub score: Option<f64>,
    /// The text, or null.
    pub note: Option<String>,
    /// The value for programs, or null.
    pub value: Value,
}

impl Slice for Annotations {
    const NAME: &'static str = "Annotations";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<Annotated>()?.event::<PositionTagged>()?.slice::<Annotations>()?;
    let registry = registry.reducer(|mut annotations: Annotations, recorded: &Recorded<Annotated>| {
        let Annotated { name, at, score, note, value } = recorded.event.clone();
        let agent = recorded.agent.to_string();
        annotations.entries.push(Annotation { seq: recorded.seq, agent, name, at, score, note, value });
        annotations
    })?;
    registry.reducer(|mut annotations: Annotations, tagged: &Recorded<PositionTagged>| {
        match tagged.event.at {
            Some(at) => annotations.tags.insert(tagged.event.name.clone(), at),
            None => annotations.tags.remove(&tagged.event.name),
        };
        annotations
    })
}
