//! Events of rewinds.

use bytes::Bytes;
use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};

use super::codec::{archive, validated};
use super::{CodecError, Event};
use crate::engine::id::Seq;

/// Event of a rewind: files, and every slice that a rewind restores, return to their state at
/// [`to`](SessionRewound::to). The events that restored them are in the same commit; the history keeps everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRewound {
    /// Position of the restored state.
    pub to: Seq,
    /// Last position before the rewind; a rewind to it undoes this one.
    pub from: Seq,
    /// Number of workspace entries that differed.
    pub entries: u64,
    /// Number of entries that could not be restored and were left as they were, with the caller's consent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Event of a slice that is restored to an earlier position. The fold applies it whatever events the slice's reducers
/// take. A program that does not know the slice ignores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRestored {
    /// [`NAME`](crate::Slice::NAME) of the slice.
    pub slice: String,
    /// [`VERSION`](crate::Slice::VERSION) of its encoding.
    pub version: u32,
    /// Encoding of the slice. In JSON each block is a string in path notation.
    #[serde(with = "texts")]
    pub blocks: Vec<Bytes>,
}

/// Frozen: stored in journals.
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
        let frozen = validated::<SliceRestoredV1>(Self::KIND, version, bytes)?;
        Ok(Self {
            slice: frozen.slice.as_str().to_owned(),
            version: frozen.version.to_native(),
            blocks: frozen.blocks.iter().map(|block| Bytes::copy_from_slice(block)).collect(),
        })
    }
}

/// Text form of blocks in JSON, readable where the block is text.
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
            // Some prefixes decode by chance; none may panic.
            drop(SliceRestored::decode(1, &bytes[..end]));
        }
        assert!(SliceRestored::decode(1, b"").is_err());
        assert!(SliceRestored::decode(1, &[0xff; 64]).is_err());
        assert!(SliceRestored::decode(2, &bytes).is_err());
    }
}
