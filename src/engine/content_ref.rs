//! Marks in recorded values, in place of long texts.

use serde_json::{Map, Value};

use super::id::Digest;

/// Field of a mark that names the content.
pub(crate) const CONTENT: &str = "$content";
/// Only field of an object that wraps another one which looks like a mark and is none.
pub(crate) const LITERAL: &str = "$literal";

/// Returns the content that a mark refers to; none if the object is no mark.
pub(crate) fn mark_of(fields: &Map<String, Value>) -> Option<Digest> {
    fields.get(CONTENT)?.as_str()?.parse().ok()
}
