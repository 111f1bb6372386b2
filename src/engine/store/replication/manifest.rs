//! The manifest of a copy, and the list of sealed segments. Pure; docs/FORMAT.md describes them.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::store::journal::segment::FIRST;
use crate::engine::{Digest, Timestamp};

pub(super) const FORMAT: u32 = 1;

/// Names the objects of a copy, and its writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopyManifest {
    pub(super) format: u32,
    /// Identity of the journal, in hexadecimal.
    pub(super) journal: String,
    /// Number of claims so far, which prefixes the names of the claimant's objects.
    pub(super) epoch: u64,
    pub(super) writer: CopyWriter,
    pub(super) written: Timestamp,
    /// Object with the list of segments before the last. `None` if there is only one segment.
    pub(super) sealed: Option<CopiedPiece>,
    /// Last segment. `None` until the first pass is done.
    pub(super) last: Option<CopiedSegment>,
    /// Git directories that the store borrows contents from, which are not copied.
    pub(super) git_repositories: Vec<String>,
}

/// A process that writes a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyWriter {
    /// Identity of the data directory; a copy of the directory gets a new identity.
    pub id: String,
    /// Name of the host.
    pub host: String,
    /// Data directory.
    pub directory: String,
    /// Process id.
    pub process: u32,
}

impl std::fmt::Display for CopyWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on host {} for {}", self.process, self.host, self.directory)
    }
}

/// A segment in the copy: its pieces, in order, make up the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopiedSegment {
    pub(super) number: u32,
    pub(super) packed: bool,
    /// True if it is complete: another segment follows.
    pub(super) sealed: bool,
    pub(super) file: FileStamp,
    pub(super) pieces: Vec<CopiedPiece>,
}

impl CopiedSegment {
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Identifies the version of the writer's file that was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub(super) modified: i64,
}

/// An object: its name, length and digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopiedPiece {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) digest: Digest,
}

impl CopyManifest {
    /// Returns the names of the objects that the manifest names directly.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let last = self.last.iter().flat_map(|last| &last.pieces);
        self.sealed.iter().chain(last).map(|piece| piece.name.as_str())
    }

    /// Returns the problem of the manifest itself. `None` if it is valid.
    pub(super) fn problem(&self) -> Option<&'static str> {
        // The names of objects have 8 digits of the epoch.
        let is_epoch = (1..=u64::from(u32::MAX)).contains(&self.epoch);
        let checks = [
            (is_epoch, "its epoch is invalid"),
            (self.sealed.is_none() || self.last.is_some(), "it names a list of segments, but no last segment"),
        ];
        checks.into_iter().find_map(|(holds, problem)| (!holds).then_some(problem))
    }

    /// Returns the segments by number: the list `sealed` and the last segment. Fails with the problem if they are
    /// invalid.
    pub(super) fn segments(&self, sealed: Vec<CopiedSegment>) -> Result<BTreeMap<u32, CopiedSegment>, String> {
        let (followed, mut names) = (sealed.len(), BTreeSet::new());
        names.extend(self.sealed.iter().map(|list| list.name.clone()));
        let mut segments = BTreeMap::new();
        for (place, segment) in sealed.into_iter().chain(self.last.clone()).enumerate() {
            let number = segment.number;
            let bytes = segment.pieces.iter().try_fold(0_u64, |all, piece| all.checked_add(piece.bytes));
            let is_last = place == followed;
            let checks = [
                (FIRST as usize + place == number as usize, "is out of order"),
                (segment.sealed != is_last, "must be sealed exactly if another one follows"),
                (!(segment.packed && is_last), "is packed although it is the last one"),
                // Positions in a segment have 32 bits.
                (bytes.is_some_and(|bytes| (1..=u64::from(u32::MAX)).contains(&bytes)), "has no bytes, or too many"),
                (
                    segment.pieces.iter().all(|piece| names.insert(piece.name.clone())),
                    "has an object that is listed twice",
                ),
            ];
            if let Some((_, problem)) = checks.iter().find(|(holds, _)| !holds) {
                return Err(format!("segment {number} {problem}"));
            }
            segments.insert(number, segment);
        }
        Ok(segments)
    }
}

/// Encodes a document as a line of JSON and a line with its digest.
pub(super) fn encode<T: Serialize>(document: &T) -> Vec<u8> {
    let json = serde_json::to_vec(document).unwrap_or_default();
    let digest = Digest::of(&json).to_string();
    [&json[..], b"\n", digest.as_bytes(), b"\n"].concat()
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (json, digest) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if Digest::of(json).to_string().as_bytes() != digest {
        return Err("it does not match its digest".to_owned());
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_changed_anywhere_is_refused() {
        let piece = CopiedPiece { name: "00000001-00000001".to_owned(), bytes: 3, digest: Digest::of(b"abc") };
        let bytes = encode(&piece);
        assert_eq!(decode::<CopiedPiece>(&bytes), Ok(piece));
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode::<CopiedPiece>(&changed).is_err(), "byte {at}");
            assert!(decode::<CopiedPiece>(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
