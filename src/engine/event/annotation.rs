//! Annotations of a session by people and programs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Seq;

/// Event of a score, a note or a value for a position of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Annotated {
    /// Subject, such as `reward` or `review`.
    pub name: String,
    /// Annotated position.
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

/// Event of a tag that is set on a position, or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionTagged {
    /// Tag, unique in the session: a later event replaces an earlier one.
    pub name: String,
    /// Position; `None` removes the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Seq>,
}
