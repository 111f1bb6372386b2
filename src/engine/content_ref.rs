//! Marks in recorded values, in place of long texts.

use serde_json::{Map, Value};

use super::id::Digest;

pub(crate) const CONTENT: &str = "$content";
/// Only field of an object that wraps another one which looks like a mark and is none.
pub(crate) const LITERAL: &str = "$literal";

pub(crate) fn mark_of(fields: &Map<String, Value>) -> Option<Digest> {
    fields.get(CONTENT)?.as_str()?.parse().ok()
}
