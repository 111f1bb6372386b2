use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Diagnostic, Digest, ErrorKind};

/// Effect of a rewind on a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRewind {
    /// A state: it is restored.
    Restore,
    /// A log: it is unchanged.
    Keep,
}

/// Typed part of a session's state.
///
/// It changes only by its registered reducers. Cloning should be cheap for any size (`im` collections are): the engine
/// clones it for every read.
///
/// The encoding must be canonical: equal slices encode to equal bytes, so it must not depend on hash order.
pub trait Slice: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the slice, unique in a registry.
    const NAME: &'static str;

    /// Version of the encoding. Raise it when the encoding or a reducer changes its meaning: snapshots of other
    /// versions are ignored, and the slice is folded from the events again.
    const VERSION: u32 = 1;

    /// Effect of a rewind on it.
    const ON_REWIND: OnRewind = OnRewind::Restore;

    /// Encodes the slice as blocks, which [`decode`](Slice::decode) reads. A block equal to that of an earlier snapshot
    /// takes hardly any space. Fails with [`SliceError`].
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        Ok(vec![serde_json::to_vec(self).map_err(|e| SliceError::new(Self::NAME, e))?])
    }

    /// Decodes the output of [`encode`](Slice::encode). The bytes come from a disk: never trust them. Fails with
    /// [`SliceError`] if they are not such a slice; the engine then folds it from the events.
    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let whole = blocks.concat();
        serde_json::from_slice(&whole).map_err(|e| SliceError::new(Self::NAME, e))
    }

    /// Returns the slices that this one consists of. Each has a name like a registered slice.
    #[doc(hidden)]
    fn parts(&self) -> Vec<StateSlice> {
        Vec::new()
    }

    /// Returns one of the [`parts`](Slice::parts) as JSON.
    #[doc(hidden)]
    fn part_json(&self, _name: &str) -> Option<serde_json::Value> {
        None
    }

    /// Decodes a slice of a lower [`VERSION`](Slice::VERSION). Snapshots of other versions are ignored, but a slice
    /// that a rewind restored is in the history and must stay readable forever. Fails with [`SliceError`].
    fn decode_older(version: u32, _blocks: &[Bytes]) -> Result<Self, SliceError> {
        let what = format!("a rewind restored version {version} of it, which this program can't read");
        Err(SliceError::new(Self::NAME, what))
    }
}

/// Summary of a registered slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SliceSummary {
    /// Name of the slice.
    pub name: &'static str,
    /// Version of its encoding.
    pub version: u32,
    /// Effect of a rewind on it.
    pub on_rewind: OnRewind,
}

/// Slice of a state: a registered one, or a part of one, such as a declared slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateSlice {
    /// Name of the slice.
    pub name: String,
    /// Version of its encoding, or of its declaration.
    pub version: u32,
    /// Effect of a rewind on it.
    pub on_rewind: OnRewind,
}

/// Error of encoding or decoding a slice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("slice {slice}: {reason}")]
pub struct SliceError {
    slice: &'static str,
    reason: String,
}

impl Diagnostic for SliceError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Damaged
    }
}

impl SliceError {
    /// Creates an error of `slice` with `source` as the reason.
    pub fn new(slice: &'static str, source: impl std::fmt::Display) -> Self {
        Self { slice, reason: source.to_string() }
    }
}

pub(crate) trait ErasedSlice: Any + Send + Sync {
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError>;
    fn to_json(&self) -> Result<serde_json::Value, SliceError>;
    fn parts(&self) -> Vec<StateSlice>;
    fn part_json(&self, name: &str) -> Option<serde_json::Value>;
}

impl<S: Slice> ErasedSlice for S {
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        Slice::encode(self)
    }

    fn to_json(&self) -> Result<serde_json::Value, SliceError> {
        serde_json::to_value(self).map_err(|e| SliceError::new(S::NAME, e))
    }

    fn parts(&self) -> Vec<StateSlice> {
        Slice::parts(self)
    }

    fn part_json(&self, name: &str) -> Option<serde_json::Value> {
        Slice::part_json(self, name)
    }
}

/// Encoded slice of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSlice {
    /// [`NAME`](Slice::NAME) of the slice.
    pub name: Arc<str>,
    /// [`VERSION`](Slice::VERSION) of its encoding.
    pub version: u32,
    /// Blocks of its encoding.
    pub blocks: Vec<Bytes>,
}

impl EncodedSlice {
    /// Returns the digest over name, version and the blocks' digests.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes());
        hasher.update(&self.version.to_le_bytes());
        for block in &self.blocks {
            hasher.update(blake3::hash(block).as_bytes());
        }
        Digest::from_bytes(*hasher.finalize().as_bytes())
    }
}
