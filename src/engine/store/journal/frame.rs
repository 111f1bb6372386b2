//! The frame: what a journal is made of. Pure; docs/FORMAT.md is its description.

use crate::engine::commit::ForkPoint;
use crate::engine::id::SessionId;

/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 24;
/// Frames begin at multiples of this.
pub(crate) const ALIGN: usize = 8;
/// Bytes that a frame's payload may have; a longer one is damage.
pub(crate) const MAX_PAYLOAD: usize = 48 << 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Events of one session.
    Commit,
    /// A content, or a chunk of one.
    Content,
    /// The list of a large content's chunks.
    Manifest,
    /// The removal of a session.
    Removal,
    /// The end of a clean run: everything before it was durable when it was written.
    Close,
    /// The end of a segment that another one follows.
    Seal,
    /// The first events of a child: where it was forked, and then a commit.
    Fork,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Content => 2,
            Self::Manifest => 3,
            Self::Removal => 4,
            Self::Close => 5,
            Self::Seal => 6,
            Self::Fork => 7,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Commit,
            2 => Self::Content,
            3 => Self::Manifest,
            4 => Self::Removal,
            5 => Self::Close,
            6 => Self::Seal,
            7 => Self::Fork,
            _ => return None,
        })
    }
}

/// Bytes before the commit in the payload of a [`FrameKind::Fork`]: the parent's id, and the position.
const FORK_HEAD: usize = 24;

/// The payload of a [`FrameKind::Fork`] up to its commit.
pub(crate) fn fork_head(point: ForkPoint) -> Vec<u8> {
    [&point.session.as_bytes()[..], &point.seq.to_le_bytes()].concat()
}

/// Where a session was forked; none when the bytes are no payload of a [`FrameKind::Fork`].
pub(crate) fn fork_point(payload: &[u8]) -> Option<ForkPoint> {
    let (session, rest) = payload.split_first_chunk::<16>()?;
    let seq = u64::from_le_bytes(*rest.first_chunk()?);
    (seq > 0).then(|| ForkPoint { session: SessionId::from_bytes(*session), seq })
}

impl FrameKind {
    /// Where in its payload a commit begins; none when it holds none.
    pub(crate) fn commit_at(self) -> Option<usize> {
        match self {
            Self::Commit => Some(0),
            Self::Fork => Some(FORK_HEAD),
            _ => None,
        }
    }

    /// The commit in a payload of this kind; empty when that is too short, none when it has no commit.
    pub(crate) fn commit_in(self, payload: &[u8]) -> Option<&[u8]> {
        Some(payload.get(self.commit_at()?..).unwrap_or_default())
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    /// Whether it is the first of its group: frames that became durable by one sync.
    pub(crate) first: bool,
    /// The group's number. A group is written only when the one before it is durable.
    pub(crate) group: u64,
    pub(crate) length: usize,
    payload_crc: u32,
}

impl Header {
    /// Reads a header; none when the bytes are not one.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = usize::try_from(word(0)).ok().filter(|length| *length <= MAX_PAYLOAD)?;
        if word(20) != crc32c::crc32c(&bytes[..20]) {
            return None;
        }
        Some(Self {
            kind: FrameKind::of(bytes[4])?,
            first: bytes[5] & 1 == 1,
            group: u64::from(word(8)) | u64::from(word(12)) << 32,
            length,
            payload_crc: word(16),
        })
    }

    /// Reads the header of a frame that is known to begin here: its payload's checksum is check enough.
    pub(crate) fn parse_known(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = usize::try_from(word(0)).ok().filter(|length| *length <= MAX_PAYLOAD)?;
        let kind = FrameKind::of(bytes[4])?;
        Some(Self { kind, first: false, group: 0, length, payload_crc: word(16) })
    }

    /// Whether `payload` is what was written.
    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && crc32c::crc32c(payload) == self.payload_crc
    }

    /// Bytes of the whole frame, padding included.
    pub(crate) fn frame_len(&self) -> usize {
        frame_len(self.length)
    }
}

/// Bytes of a frame with a payload of `length`, padding included.
pub(crate) fn frame_len(length: usize) -> usize {
    (HEADER + length).next_multiple_of(ALIGN)
}

/// Appends a frame to `out`. `crc` is the payload's CRC-32C: computed by the caller, so that it can
/// be done outside of locks.
pub(crate) fn put(out: &mut Vec<u8>, kind: FrameKind, first: bool, group: u64, payload: &[u8], crc: u32) {
    let start = out.len();
    out.reserve(frame_len(payload.len()));
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind.code(), u8::from(first), 0, 0]);
    out.extend_from_slice(&group.to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    let header_crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(start + frame_len(payload.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_round_trips_and_flipped_bit_fails() {
        let mut bytes = Vec::new();
        put(&mut bytes, FrameKind::Content, true, 77, b"payload", crc32c::crc32c(b"payload"));
        assert_eq!(bytes.len(), 32);
        let read = |bytes: &[u8]| {
            let header = Header::parse(bytes[..HEADER].try_into().unwrap())?;
            header.fits(bytes.get(HEADER..HEADER + header.length)?).then_some(header)
        };
        let header = read(&bytes).unwrap();
        assert_eq!((header.kind, header.first, header.group, header.length), (FrameKind::Content, true, 77, 7));
        for bit in 0..(HEADER + 7) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn frame_of_zeros_is_none() {
        assert_eq!(Header::parse(&[0; HEADER]), None);
    }
}
