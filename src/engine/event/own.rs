//! Events of a user's own kinds, with JSON as their data.

use serde_json::Value;

use super::CodecError;
use crate::engine::commit::{Commit, CommitError, MAX_KIND_BYTES};
use crate::engine::error::ValueError;
use crate::engine::id::Digest;

/// Maximum bytes of an own event's data as JSON, without the texts that are stored as contents.
pub const MAX_OWN_BYTES: usize = 1 << 20;

/// Checks the kind of an own event: 1 to 100 ASCII letters, digits, `.`, `_`, `-` or `/`, of which the first is a
/// lower-case letter. Built-in kinds begin with an upper-case letter, so the two never meet. Fails with [`ValueError`].
pub fn check_own_kind(kind: &str) -> Result<(), ValueError> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if kind.starts_with(|c: char| c.is_ascii_lowercase()) && kind.chars().all(is_fit) && kind.len() <= MAX_KIND_BYTES {
        return Ok(());
    }
    let shown: String = kind.chars().take(MAX_KIND_BYTES).collect();
    Err(ValueError::new(format!(
        "invalid kind {shown:?}; use 1 to {MAX_KIND_BYTES} letters, digits, `.`, `_`, `-` or `/`, and begin with a \
         lower-case letter: built-in kinds begin with an upper-case one"
    )))
}

impl Commit {
    /// Adds an event of an own kind. The contents that its data refers to are declared. Fails with
    /// [`CommitError`] for an invalid kind and for data over [`MAX_OWN_BYTES`]; the commit is then unchanged.
    pub fn push_own(&mut self, kind: &str, data: &Value) -> Result<(), CommitError> {
        check_own_kind(kind).map_err(|error| CodecError::new("event", 1, error))?;
        let payload = serde_json::to_vec(data).map_err(|error| CodecError::new(kind, 1, error))?;
        let mut references = Vec::new();
        super::references::marks_in(data, &mut references);
        let references: Vec<[u8; 32]> = references.iter().map(|digest: &Digest| *digest.as_bytes()).collect();
        self.push_payload(kind, &payload, &references, MAX_OWN_BYTES)
    }
}

/// Returns the data of an event of a kind that the program does not know; `None` if its payload is not JSON.
pub(crate) fn unknown_data(payload: &[u8]) -> Option<Value> {
    serde_json::from_slice(payload).ok()
}
