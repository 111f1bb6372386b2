//! Checkpoints (C2SP tlog-checkpoint): the size and the root of a log's tree.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::merkle::TreeHash;
use super::note::SignedNote;
use super::{IntegrityError, NoteVerifier};

/// Tree of a log at a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) origin: String,
    pub(super) size: u64,
    pub(super) root: TreeHash,
}

impl Checkpoint {
    /// Reads a checkpoint that the key signed, of the log with the key's name.
    pub(super) fn signed_by(note: &SignedNote<'_>, key: &NoteVerifier) -> Result<Self, IntegrityError> {
        let (text, _) = note.signed_by(key)?;
        let wrong = || IntegrityError::Malformed("checkpoint: it has no origin, size and hash".to_owned());
        let mut lines = text.lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(wrong());
        };
        if lines.any(str::is_empty) {
            return Err(wrong());
        }
        if origin != key.name() {
            return Err(IntegrityError::Differs(format!(
                "the checkpoint is of {origin:.80}, the key of {}",
                key.name()
            )));
        }
        let size = decimal(size).ok_or_else(wrong)?;
        Ok(Self { origin: origin.to_owned(), size, root: tree_hash(root).ok_or_else(wrong)? })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root } = self;
        write!(f, "{origin}\n{size}\n{}\n", BASE64_STANDARD.encode(root))
    }
}

/// Reads a number without leading zeros.
pub(super) fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

pub(super) fn tree_hash(text: &str) -> Option<TreeHash> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}
