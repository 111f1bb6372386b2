//! Event of slices that users declare.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Event;

/// Event of a slice that a user declares, changes or removes, or whose value a merge sets.
///
/// It has the slice's value at its position, folded from the earlier events. A fold needs none of them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceDeclared {
    /// Name of the slice.
    pub name: String,
    /// Number of the declaration: 1 for the first of that name.
    pub version: u32,
    /// Declaration as JSON; null removes the slice.
    pub declaration: Value,
    /// Value of the slice after this event.
    pub value: Value,
}

impl Event for SliceDeclared {
    const KIND: &'static str = "SliceDeclared";
}
