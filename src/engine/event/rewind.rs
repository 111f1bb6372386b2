//! A session went back to an earlier position.

use bytes::Bytes;
use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};

use super::codec::{archive, validated};
use super::{CodecError, Event};
use crate::engine::id::Seq;

/// The session went back: its files, and every slice that a rewind puts back, are again what they were after
/// [`to`](SessionRewound::to). What that took stands beside it, in the same commit; nothing of the history is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRewound {
    /// The position whose state is back.
    pub to: Seq,
    /// The last position before it went back; to rewind to that undoes this.
    pub from: Seq,
    /// How many entries of the workspace differed.
    pub entries: u64,
    /// How many entries could not be put back and were left as they were, because somebody insisted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Event for SessionRewound {
    const KIND: &'static str = "SessionRewound";
}

/// A slice is again what it was at an earlier position. Any slice that a rewind puts back is folded so, whatever
/// else its reducers take; a program that does not know the slice passes over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRestored {
    /// Its [`NAME`](crate::Slice::NAME).
    pub slice: String,
    /// The [`VERSION`](crate::Slice::VERSION) of its encoding.
    pub version: u32,
    /// Its encoding. In JSON each block is a text, in the notation of a path.
    #[serde(with = "texts")]
    pub blocks: Vec<Bytes>,
}

/// `SliceRestored`, version 1, as it lies in a journal. Frozen.
#[derive(Archive, Archivable)]
struct SliceRestoredV1 {
    slice: String,
    version: u32,
    blocks: Vec<Vec<u8>>,
}

impl Event for SliceRestored {
    const KIND: &'static str = "SliceRestored";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let blocks = self.blocks.iter().map(|block| block.to_vec()).collect();
        let frozen = SliceRestoredV1 { slice: self.slice.clone(), version: self.version, blocks };
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        if version != 1 {
            return Err(CodecError::newer(Self::KIND, version));
        }
        let frozen = validated::<SliceRestoredV1>(Self::KIND, version, bytes)?;
        Ok(Self {
            slice: frozen.slice.as_str().to_owned(),
            version: frozen.version.to_native(),
            blocks: frozen.blocks.iter().map(|block| Bytes::copy_from_slice(block)).collect(),
        })
    }
}

/// Blocks in JSON: as texts, so that a person can read those that are.
mod texts {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::engine::event::file::target_text::escaped;

    pub(super) fn serialize<S: Serializer>(blocks: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(blocks.iter().map(|block| escaped(block)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(deserializer)?;
        Ok(texts.iter().map(|text| Bytes::from(crate::engine::path::unescape(text))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> SliceRestored {
        let blocks = vec![Bytes::from_static(b"[\"a\\b\"]"), Bytes::from_static(&[0xff, 0, b'\\', 7]), Bytes::new()];
        SliceRestored { slice: "Notes".to_owned(), version: 3, blocks }
    }

    #[test]
    fn slice_restored_round_trips() {
        let mut bytes = Vec::new();
        event().encode(&mut bytes).unwrap();
        assert_eq!(SliceRestored::decode(1, &bytes).unwrap(), event());
        let json = serde_json::to_string(&event()).unwrap();
        assert_eq!(serde_json::from_str::<SliceRestored>(&json).unwrap(), event());
    }

    #[test]
    fn slice_restored_malformed_is_an_error() {
        let mut bytes = Vec::new();
        event().encode(&mut bytes).unwrap();
        for end in 0..bytes.len() {
            // Some beginnings make sense by chance; none may panic.
            drop(SliceRestored::decode(1, &bytes[..end]));
        }
        assert!(SliceRestored::decode(1, b"").is_err());
        assert!(SliceRestored::decode(1, &[0xff; 64]).is_err());
        assert!(SliceRestored::decode(2, &bytes).is_err());
    }
}
