//! Frames of a journal. Pure; docs/FORMAT.md describes them.

use crate::engine::{CommitView, Digest, ForkPoint, Seq, SessionId};

pub(crate) const HEADER: usize = 24;
pub(crate) const ALIGN: usize = 8;
/// Maximum bytes of a frame's payload; a longer one is damage.
pub(crate) const MAX_PAYLOAD: usize = 48 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Commit = 1,
    Content,
    Manifest,
    Removal,
    /// The end of a clean run: everything before it was durable when this was written.
    Close,
    Seal,
    /// The first events of a child: its fork point, then a commit.
    Fork,
    /// A session that starts late, its past being elsewhere: its id, a position, and its state there.
    LateStart,
}

impl FrameKind {
    fn of(code: u8) -> Option<Self> {
        use FrameKind::{Close, Commit, Content, Fork, LateStart, Manifest, Removal, Seal};
        const KINDS: [FrameKind; 8] = [Commit, Content, Manifest, Removal, Close, Seal, Fork, LateStart];
        KINDS.get(usize::from(code).wrapping_sub(1)).copied()
    }

    pub(crate) fn commit_at(self) -> Option<usize> {
        match self {
            Self::Commit => Some(0),
            Self::Fork => Some(FORK_HEAD),
            _ => None,
        }
    }

    /// Returns the commit in a payload of this kind, empty if the payload is too short. `None` for other kinds.
    pub(crate) fn commit_in(self, payload: &[u8]) -> Option<&[u8]> {
        Some(payload.get(self.commit_at()?..).unwrap_or_default())
    }
}

/// The decoded payload of a frame.
pub(crate) enum FrameBody<'a> {
    Commit(Option<ForkPoint>, CommitView<'a>),
    /// A content, a chunk or a chunk list, with the length of the content.
    Content(Digest, u64),
    Removal(SessionId),
    /// The start of a session after a position.
    LateStart(SessionId, Seq),
    Mark,
}

impl<'a> FrameBody<'a> {
    pub(crate) fn of(kind: FrameKind, payload: &'a [u8]) -> Result<Self, &'static str> {
        let commit = || CommitView::parse(kind.commit_in(payload)?).ok();
        Ok(match kind {
            FrameKind::Commit => Self::Commit(None, commit().ok_or("invalid commit")?),
            FrameKind::Fork => {
                let (point, commit) = fork_point(payload).zip(commit()).ok_or("invalid fork")?;
                Self::Commit(Some(point), commit)
            }
            FrameKind::Content | FrameKind::Manifest => {
                let (digest, length) = content_head(kind, payload).ok_or("invalid content")?;
                Self::Content(digest, length)
            }
            FrameKind::Removal => {
                let session = payload.first_chunk().ok_or("invalid removal")?;
                Self::Removal(SessionId::from_bytes(*session))
            }
            FrameKind::LateStart => {
                let ForkPoint { session, seq } = fork_point(payload).ok_or("invalid late start of a session")?;
                Self::LateStart(session, seq)
            }
            FrameKind::Close | FrameKind::Seal => Self::Mark,
        })
    }
}

fn content_head(kind: FrameKind, payload: &[u8]) -> Option<(Digest, u64)> {
    let (digest, rest) = payload.split_first_chunk::<32>()?;
    let length = match kind {
        FrameKind::Manifest => u64::from_le_bytes(*rest.first_chunk()?),
        _ => u64::from(u32::from_le_bytes(*rest.get(1..)?.first_chunk()?)),
    };
    Some((Digest::from_bytes(*digest), length))
}

/// Bytes before the commit in a [`FrameKind::Fork`]: the parent's id and the position.
const FORK_HEAD: usize = 24;

pub(crate) fn fork_head(point: ForkPoint) -> Vec<u8> {
    [&point.session.as_bytes()[..], &point.seq.to_le_bytes()].concat()
}

fn fork_point(payload: &[u8]) -> Option<ForkPoint> {
    let (session, rest) = payload.split_first_chunk::<16>()?;
    let seq = u64::from_le_bytes(*rest.first_chunk()?);
    (seq > 0).then(|| ForkPoint { session: SessionId::from_bytes(*session), seq })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    /// True for the first frame of a group, which one sync makes durable.
    pub(crate) first: bool,
    /// Group number; a group is written only after the previous one is durable.
    pub(crate) group: u64,
    pub(crate) length: usize,
    payload_crc: u32,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        Self::parse_known(bytes).filter(|_| bytes[20..] == crc32c::crc32c(&bytes[..20]).to_le_bytes())
    }

    /// Reads the header at a known frame position without its checksum: the payload's checksum is sufficient.
    pub(crate) fn parse_known(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = usize::try_from(word(0)).ok().filter(|length| *length <= MAX_PAYLOAD)?;
        let (kind, first) = (FrameKind::of(bytes[4])?, bytes[5] & 1 == 1);
        let group = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some(Self { kind, first, group, length, payload_crc: word(16) })
    }

    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && crc32c::crc32c(payload) == self.payload_crc
    }

    /// Returns the difference (XOR) between the checksum of a payload and the header's.
    pub(super) fn error_of(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c(payload) ^ self.payload_crc
    }

    pub(crate) fn frame_len(&self) -> usize {
        frame_len(self.length)
    }
}

pub(crate) fn frame_len(length: usize) -> usize {
    (HEADER + length).next_multiple_of(ALIGN)
}

/// Appends a frame to `out`. The caller computes the payload's CRC-32C outside of locks.
pub(crate) fn put(out: &mut Vec<u8>, kind: FrameKind, first: bool, group: u64, payload: &[u8], crc: u32) {
    let start = out.len();
    out.reserve(frame_len(payload.len()));
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind as u8, u8::from(first), 0, 0]);
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
