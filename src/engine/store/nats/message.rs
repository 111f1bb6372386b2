//! Messages of a session's subject: a commit, or the removal of the session.

use bytes::Bytes;

use crate::engine::commit::CallLink;
use crate::engine::{Commit, CommitView, Digest, Expected, ForkPoint, Seq, SessionId, Timestamp};

/// First bytes of a payload.
const COMMIT: u8 = 1;
const FORK: u8 = 2;
const REMOVAL: u8 = 3;
/// Flag of a commit that is kept as a content, because it is longer than a message may be.
const APART: u8 = 16;

/// A message, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionMessage {
    /// An encoded commit, and the point at which the session was forked with it.
    Commit { fork: Option<ForkPoint>, encoded: Bytes },
    /// The same, of which the content with that digest is the encoded commit.
    Apart { fork: Option<ForkPoint>, digest: Digest },
    /// The end of the session.
    Removal,
}

impl SessionMessage {
    pub(super) fn of(commit: &Commit, first: Seq, time: Timestamp) -> Self {
        let fork = match commit.expected {
            Expected::ForkOf(point) => Some(point),
            _ => None,
        };
        let mut encoded = Vec::with_capacity(commit.encoded_len());
        commit.encode(first, time, &mut encoded);
        Self::Commit { fork, encoded: encoded.into() }
    }

    pub(super) fn encode(&self) -> Bytes {
        let (kind, fork, rest): (u8, Option<&ForkPoint>, &[u8]) = match self {
            Self::Commit { fork, encoded } => (0, fork.as_ref(), encoded),
            Self::Apart { fork, digest } => (APART, fork.as_ref(), digest.as_bytes()),
            Self::Removal => return Bytes::from_static(&[REMOVAL]),
        };
        let mut payload = Vec::with_capacity(rest.len() + 25);
        match fork {
            None => payload.push(kind | COMMIT),
            Some(point) => {
                payload.push(kind | FORK);
                payload.extend_from_slice(point.session.as_bytes());
                payload.extend_from_slice(&point.seq.to_le_bytes());
            }
        }
        payload.extend_from_slice(rest);
        payload.into()
    }

    /// Reads a payload; none if it makes no sense.
    pub(super) fn decode(mut payload: Bytes) -> Option<Self> {
        let kind = *payload.split_to_checked(1)?.first()?;
        let fork = match kind & !APART {
            COMMIT => None,
            FORK => {
                let session = SessionId::from_bytes(payload.split_to_checked(16)?[..].try_into().ok()?);
                let seq = Seq::from_le_bytes(payload.split_to_checked(8)?[..].try_into().ok()?);
                Some(ForkPoint { session, seq })
            }
            REMOVAL if payload.is_empty() => return Some(Self::Removal),
            _ => return None,
        };
        Some(match kind & APART {
            0 => Self::Commit { fork, encoded: payload },
            _ => Self::Apart { fork, digest: Digest::from_bytes(payload[..].try_into().ok()?) },
        })
    }
}

trait SplitChecked: Sized {
    fn split_to_checked(&mut self, count: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, count: usize) -> Option<Self> {
        (count <= self.len()).then(|| self.split_to(count))
    }
}

/// Makes the commit of an encoded one, to be recorded at the same position and time; none if it makes no sense.
pub(super) fn commit_of(session: SessionId, fork: Option<ForkPoint>, encoded: &[u8]) -> Option<Commit> {
    let view = CommitView::parse(encoded).ok().filter(|view| view.session == session)?;
    let commit = Commit::of_view(&view, 0).ok().filter(|commit| commit.len() == view.count)?;
    let call = match view.call {
        Some(call) if call == view.first => CallLink::Opens,
        Some(call) => CallLink::Of(call),
        None => CallLink::None,
    };
    let expected = match (fork, view.first) {
        (Some(point), first) if first == point.seq + 1 => Expected::ForkOf(point),
        (Some(_), _) => return None,
        (None, 1) => Expected::NoSession,
        (None, first) => Expected::Exactly(first - 1),
    };
    let commit = commit.of_call(call).expecting(expected);
    Some(match view.id {
        Some(id) => commit.with_id(id),
        None => commit,
    })
}
