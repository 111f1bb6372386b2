//! Markers that stand for long texts in recorded values.

use serde_json::{Map, Value};

use super::id::Digest;

#[doc(hidden)]
pub const CONTENT: &str = "$content";
/// The only field of an object that escapes a value which merely looks like a marker.
pub const LITERAL: &str = "$literal";

#[doc(hidden)]
pub fn mark_of(fields: &Map<String, Value>) -> Option<Digest> {
    fields.get(CONTENT)?.as_str()?.parse().ok()
}
