//! Messages of a session's subject: a commit, or the removal of the session.

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
    /// The session has its events.
    Known(String),
    /// It can be no commit of the session.
    Senseless(String),
    /// Acknowledged events are lost.
    Lost(String),
    Failed(StoreError),
}

/// A commit that a message has.
pub(super) struct ReadCommit {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) fork: Option<ForkPoint>,
    pub(super) encoded: Bytes,
    pub(super) commit: Commit,
}

impl ReadCommit {
    /// Reads an encoded commit of a session, to be recorded at the same position and time.
    fn of(session: SessionId, fork: Option<ForkPoint>, encoded: Bytes) -> Result<Self, Misfit> {
        let cut = || Misfit::Senseless("it is no whole commit".to_owned());
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
            (Some(_), first) => return Err(Misfit::Senseless(format!("it forks no session before event {first}"))),
            (None, 1) => Expected::NoSession,
            (None, first) => Expected::Exactly(first - 1),
        };
        let mut commit = commit.of_call(call).expecting(expected);
        commit.id = view.id;
        let (first, last) = (view.first, view.last());
        Ok(Self { first, last, fork, encoded, commit })
    }

    /// Checks that it is the next commit of a session that ends at `head`, of which all messages up to `at` are read.
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
            return Err(Misfit::Known(format!("it has events {first} to {last}, which are there already")));
        }
        let lost = match (head + 1, first - 1) {
            (one, last) if one == last => format!("event {one} is lost"),
            (from, until) => format!("events {from} to {until} are lost"),
        };
        // The cluster took it behind that message only, of which its writer knew.
        match behind(message) {
            Some(behind) if behind > at => return Err(Misfit::Lost(format!("{lost}: message {behind} is not there"))),
            Some(behind) if behind > 0 => {
                let before = cluster.stream.get_raw_message(behind).await;
                let before =
                    before.map_err(|error| cluster.failed(format!("did not give message {behind}: {error}")))?;
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
        Err(Misfit::Senseless(format!("it begins with event {first}, and the session goes on with {}", head + 1)))
    }
}

impl From<StoreError> for Misfit {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the position of the message that the writer of this one had read last. A message that no writer sent has none.
pub(super) fn behind(message: &Message) -> Option<u64> {
    message.headers.as_ref()?.get(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE)?.as_str().parse().ok()
}

/// A message that makes sense.
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
        let (fork, encoded) = match read.ok_or_else(|| Misfit::Senseless("it is no message of a session".to_owned()))? {
            SessionMessage::Commit { fork, encoded } => (fork, encoded),
            SessionMessage::Apart { fork, digest } => match contents::get(cluster, &digest, waiting).await {
                Err(StoreError::NoContent(_)) if behind(message).is_none() => {
                    return Err(Misfit::Senseless("its content is not there".to_owned()));
                }
                read => (fork, read?),
            },
            SessionMessage::Removal => return Ok(Self::Removal),
            SessionMessage::CutOff(at) => return Ok(Self::CutOff(at)),
        };
        Ok(Self::Commit(Box::new(ReadCommit::of(session, fork, encoded)?)))
    }
}
