//! Events of what people and programs say of a session.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Seq;

/// Event of a score, a note or a value for a position of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Annotated {
    /// Its subject, such as `reward` or `review`.
    pub name: String,
    /// Position that it is about.
    pub at: Seq,
    /// Number that rates the position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Value for programs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// Event of a name for a position, or of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionTagged {
    /// Name of the position, unique in the session: the last one counts.
    pub name: String,
    /// Position; none takes the name away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Seq>,
}
