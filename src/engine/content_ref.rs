//! Marks in recorded values: what stands where a long text was taken out.

use serde_json::{Map, Value};

use super::id::Digest;

/// The field of a mark that names the content.
pub(crate) const CONTENT: &str = "$content";
/// The only field of an object around another one that looks like a mark and is none.
pub(crate) const LITERAL: &str = "$literal";

/// The content that an object stands for; none when it is no mark.
pub(crate) fn mark_of(fields: &Map<String, Value>) -> Option<Digest> {
    fields.get(CONTENT)?.as_str()?.parse().ok()
}
