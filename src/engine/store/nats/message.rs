//! Messages on a session's subject: commits, and the removal of the session.

use async_nats::Message;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use bytes::Bytes;

use super::cluster::Cluster;
use super::contents;
use super::waiting::Waiting;
use crate::engine::commit::CallLink;
use crate::engine::store::StoreError;
use crate::engine::{Commit, CommitView, Digest, Expected, ForkPoint, Seq, SessionId, Timestamp};

/// First bytes of a payload.
const COMMIT: u8 = 1;
const FORK: u8 = 2;
const REMOVAL: u8 = 3;
const CUT_OFF: u8 = 4;
/// Flag of a commit that is stored as a content, because it is too long for a message.
const APART: u8 = 16;

/// A decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionMessage {
    /// An encoded commit, and its fork point if it starts a fork.
    Commit { fork: Option<ForkPoint>, encoded: Bytes },
    /// A commit that is stored as the content with the digest.
    Apart { fork: Option<ForkPoint>, digest: Digest },
    /// The end of the session.
    Removal,
    /// The position of a message that a repair has cut off.
    CutOff(u64),
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
            Self::CutOff(at) => return [&[CUT_OFF][..], &at.to_le_bytes()].concat().into(),
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

    /// Decodes a payload. `None` if it is invalid.
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
            CUT_OFF => return Some(Self::CutOff(u64::from_le_bytes(payload[..].try_into().ok()?))),
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

/// The reason why a message adds nothing to its session.
pub(super) enum Misfit {
    /// The session already has its events.
    Known(String),
    /// It can't be a commit of the session.
    Senseless(String),
    /// Acknowledged events are lost.
    Lost(String),
    Failed(StoreError),
}

/// A commit that was read from a message.
pub(super) struct ReadCommit {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) fork: Option<ForkPoint>,
    pub(super) encoded: Bytes,
    pub(super) commit: Commit,
}

impl ReadCommit {
    /// Decodes a commit of a session, to record it at the same position and time.
    fn of(session: SessionId, fork: Option<ForkPoint>, encoded: Bytes) -> Result<Self, Misfit> {
        let cut = || Misfit::Senseless("it is not a complete commit".to_owned());
        let view = CommitView::parse(&encoded).map_err(|_| cut())?;
        let commit = Commit::of_view(&view, 0).ok().filter(|_| view.is_whole()).ok_or_else(cut)?;
        if view.session != session {
            return Err(Misfit::Senseless(format!("it is a commit of session {}", view.session)));
        }
        let call = match view.call {
            Some(call) if call == view.first => CallLink::Opens,
            Some(call) => CallLink::Of(call),
            None => CallLink::None,
        };
        let expected = match (fork, view.first) {
            (Some(point), first) if Some(first) == point.seq.checked_add(1) && point.session != session => {
                Expected::ForkOf(point)
            }
            (Some(_), first) => return Err(Misfit::Senseless(format!("it is an invalid fork before event {first}"))),
            (None, 1) => Expected::NoSession,
            (None, first) => Expected::Exactly(first - 1),
        };
        let mut commit = commit.of_call(call).expecting(expected);
        commit.id = view.id;
        let (first, last) = (view.first, view.last());
        Ok(Self { first, last, fork, encoded, commit })
    }

    /// Checks that it is the next commit of a session that ends at `head`, after reading all messages up to `at`.
    pub(super) async fn check_next(
        &self,
        cluster: &Cluster,
        (head, at): (Seq, u64),
        message: &Message,
    ) -> Result<(), Misfit> {
        let Self { first, last, fork, .. } = self;
        if *first == head + 1 || head == 0 && fork.is_some() {
            return Ok(());
        }
        if *first <= head {
            return Err(Misfit::Known(format!("its events {first} to {last} already exist")));
        }
        let lost = match (head + 1, first - 1) {
            (one, last) if one == last => format!("event {one} is lost"),
            (from, until) => format!("events {from} to {until} are lost"),
        };
        // The cluster accepted it only after that message, which its writer had read.
        match behind(message) {
            Some(behind) if behind > at => return Err(Misfit::Lost(format!("{lost}: message {behind} is missing"))),
            Some(behind) if behind > 0 => {
                let before = cluster.stream.get_raw_message(behind).await;
                let before =
                    before.map_err(|error| cluster.failed(format!("did not return message {behind}: {error}")))?;
                let is_whole = match SessionMessage::decode(before.payload) {
                    Some(SessionMessage::Commit { encoded, .. }) => {
                        CommitView::parse(&encoded).is_ok_and(|view| view.is_whole())
                    }
                    other => other.is_some(),
                };
                if !is_whole {
                    return Err(Misfit::Lost(format!("{lost}: message {behind} can't be read")));
                }
            }
            _ => {}
        }
        Err(Misfit::Senseless(format!("it begins with event {first}, expected event {}", head + 1)))
    }
}

impl From<StoreError> for Misfit {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the position of the last message that this message's writer had read. `None` if no session writer sent it.
pub(super) fn behind(message: &Message) -> Option<u64> {
    message.headers.as_ref()?.get(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE)?.as_str().parse().ok()
}

/// A valid message.
pub(super) enum ReadMessage {
    Commit(Box<ReadCommit>),
    Removal,
    CutOff(u64),
}

impl ReadMessage {
    /// Reads a message of a session.
    pub(super) async fn of(
        (cluster, waiting): (&Cluster, &Waiting),
        session: SessionId,
        message: &Message,
    ) -> Result<Self, Misfit> {
        let read = SessionMessage::decode(message.payload.clone());
        let (fork, encoded) = match read.ok_or_else(|| Misfit::Senseless("it is not a session message".to_owned()))? {
            SessionMessage::Commit { fork, encoded } => (fork, encoded),
            SessionMessage::Apart { fork, digest } => match contents::get(cluster, &digest, waiting).await {
                Err(StoreError::NoContent(_)) if behind(message).is_none() => {
                    return Err(Misfit::Senseless("its content is missing".to_owned()));
                }
                read => (fork, read?),
            },
            SessionMessage::Removal => return Ok(Self::Removal),
            SessionMessage::CutOff(at) => return Ok(Self::CutOff(at)),
        };
        Ok(Self::Commit(Box::new(ReadCommit::of(session, fork, encoded)?)))
    }
}
