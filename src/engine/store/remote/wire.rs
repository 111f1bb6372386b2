//! The protocol between the owner of a store and other processes; `docs/FORMAT.md` describes it.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use rkyv::rancor::Error;
use rkyv::{Archive, Deserialize, Serialize};

use crate::engine::clock::Timestamp;
use crate::engine::commit::{CallLink, ChunkList, Commit, CommitView, Content, Expected, ForkPoint};
use crate::engine::error::Diagnostic;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::slice::EncodedSlice;
use crate::engine::store::{SessionQuery, Snapshot, StoreError};

/// The greeting of both sides, with the protocol version.
pub(super) const HELLO: [u8; 16] = *b"foldspace store5";
const HEAD_MAX: u64 = 256 << 20;
const TAIL_MAX: u64 = 4 << 30;
/// Placeholder position of a commit without one, far beyond real positions.
const UNPLACED: Seq = 1 << 62;

#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) enum StoreRequest {
    /// Switches to a stream of commits, each answered in order once it is durable.
    Submissions,
    Submit(WireCommit),
    Sync,
    Head([u8; 16]),
    Entry([u8; 16]),
    Entries,
    Select {
        query: WireQuery,
        limit: u64,
    },
    Read {
        session: [u8; 16],
        from: u64,
        until: u64,
        bytes: u64,
    },
    Content([u8; 32]),
    HasContent([u8; 32]),
    ReadAhead(Vec<[u8; 32]>),
    Snapshot {
        session: [u8; 16],
        seq: u64,
    },
    Remove([u8; 16]),
    Usage,
    /// Switches to a stream of notifications of sessions that move.
    Watch,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) enum WireQuery {
    Named(String),
    IdPrefix(String),
    After(Option<[u8; 16]>),
    ChildrenOf([u8; 16]),
    NamedNear(String),
}

#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) enum StoreReply {
    Done,
    Committed {
        first: u64,
        last: u64,
        repeated: bool,
    },
    Number(u64),
    Flag(bool),
    /// Rows of the catalogue.
    Entries(Vec<Vec<u8>>),
    Bytes,
    Snapshot(Option<WireSnapshot>),
    Json(String),
    Moved(Vec<[u8; 16]>),
    Failed(WireError),
}

pub(super) struct Message<T> {
    pub(super) head: T,
    pub(super) tail: Bytes,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) struct WireCommit {
    session: [u8; 16],
    time: i64,
    /// 0: anywhere; 1: no session; 2: exactly at `at`; 3: a fork of `parent` at `at`.
    expected: u8,
    at: u64,
    parent: [u8; 16],
    /// Length of the encoded, [unplaced](UNPLACED) commit in the tail; the bytes of each content follow it.
    encoded: u64,
    contents: Vec<([u8; 32], u64)>,
    /// Chunk lists: digest, bytes, digests of the chunks.
    lists: Vec<([u8; 32], u64, Vec<[u8; 32]>)>,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) struct WireSnapshot {
    seq: u64,
    time: i64,
    unreadable: u64,
    /// Name, version, and the length of each block in the tail.
    slices: Vec<(String, u32, Vec<u64>)>,
}

/// An error, with its fields if another process can act on them, otherwise as text with the advice as JSON.
#[derive(Debug, Archive, Serialize, Deserialize)]
pub(super) enum WireError {
    Conflict { session: [u8; 16], expected: u64, actual: u64 },
    NoSession([u8; 16]),
    NoContent([u8; 32]),
    Poisoned(String),
    Other { message: String, advice: Option<String> },
}

pub(super) fn write<T>(to: &mut impl Write, head: &T, tail: &[&[u8]]) -> io::Result<()>
where
    T: for<'a> Serialize<
        rkyv::api::high::HighSerializer<rkyv::util::AlignedVec, rkyv::ser::allocator::ArenaHandle<'a>, Error>,
    >,
{
    let head = rkyv::to_bytes::<Error>(head).map_err(io::Error::other)?;
    let length: usize = tail.iter().map(|part| part.len()).sum();
    if head.len() as u64 > HEAD_MAX || length as u64 > TAIL_MAX {
        let what = format!("the message has {} bytes; the limit is {TAIL_MAX}", head.len() + length);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut begin = Vec::with_capacity(16 + head.len());
    begin.extend_from_slice(&(head.len() as u64).to_le_bytes());
    begin.extend_from_slice(&(length as u64).to_le_bytes());
    begin.extend_from_slice(&head);
    if length <= 64 << 10 {
        tail.iter().for_each(|part| begin.extend_from_slice(part));
        return to.write_all(&begin);
    }
    to.write_all(&begin)?;
    tail.iter().try_for_each(|part| to.write_all(part))
}

pub(super) fn read<T>(from: &mut impl Read) -> io::Result<Option<Message<T>>>
where
    T: Archive,
    T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, Error>>
        + Deserialize<T, rkyv::api::high::HighDeserializer<Error>>,
{
    let mut lengths = [0; 16];
    match from.read_exact(&mut lengths[..1]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    from.read_exact(&mut lengths[1..])?;
    let (head, tail) = lengths.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (head, tail) = (number(head), number(tail));
    if head > HEAD_MAX || tail > TAIL_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the announced message length exceeds the limit"));
    }
    let head = rkyv::from_bytes::<T, Error>(&take(from, head)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(Message { head, tail: take(from, tail)?.into() }))
}

/// Reads `length` bytes; allocates memory as they arrive, not for the announced length.
fn take(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(1 << 20)).unwrap_or(0));
    match from.take(length).read_to_end(&mut bytes)? as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl WireCommit {
    /// Splits a commit into its head and its encoded events, which precede the contents in the tail.
    pub(super) fn of(commit: &Commit) -> (Self, Vec<u8>) {
        let (expected, at, parent) = match commit.expected {
            Expected::Any => (0, 0, [0; 16]),
            Expected::NoSession => (1, 0, [0; 16]),
            Expected::Exactly(at) => (2, at, [0; 16]),
            Expected::ForkOf(point) => (3, point.seq, *point.session.as_bytes()),
        };
        let mut encoded = Vec::new();
        if !commit.keeps_only() {
            commit.encode(UNPLACED, commit.time, &mut encoded);
        }
        let head = Self {
            session: *commit.session.as_bytes(),
            time: commit.time.0,
            expected,
            at,
            parent,
            encoded: encoded.len() as u64,
            contents: commit.contents.iter().map(|c| (*c.digest.as_bytes(), c.bytes.len() as u64)).collect(),
            lists: commit.lists.iter().map(|list| (*list.digest.as_bytes(), list.length, raw(&list.chunks))).collect(),
        };
        (head, encoded)
    }

    pub(super) fn commit(self, mut tail: Bytes) -> Option<Commit> {
        let encoded = cut(&mut tail, self.encoded)?;
        let mut commit = match encoded.is_empty() {
            true => Commit::new(SessionId::from_bytes(self.session), Timestamp(self.time)),
            false => {
                let view = CommitView::parse(&encoded).ok()?;
                let mut commit = Commit::of_view(&view, 0).ok().filter(|commit| commit.len() == view.count)?;
                if view.call == Some(UNPLACED) {
                    commit = commit.of_call(CallLink::Opens);
                }
                commit.id = view.id;
                commit
            }
        };
        commit = commit.expecting(match self.expected {
            0 => Expected::Any,
            1 => Expected::NoSession,
            2 => Expected::Exactly(self.at),
            3 => Expected::ForkOf(ForkPoint { session: SessionId::from_bytes(self.parent), seq: self.at }),
            _ => return None,
        });
        for (digest, length) in self.contents {
            let bytes = cut(&mut tail, length)?;
            let digest = Digest::from_bytes(digest);
            if !digest.is_of(&bytes) {
                return None;
            }
            commit.keep(Content { digest, bytes });
        }
        for (digest, length, chunks) in self.lists {
            let chunks = chunks.into_iter().map(Digest::from_bytes).collect();
            commit.keep_list(ChunkList { digest: Digest::from_bytes(digest), length, chunks });
        }
        tail.is_empty().then_some(commit)
    }
}

fn raw(digests: &[Digest]) -> Vec<[u8; 32]> {
    digests.iter().map(|digest| *digest.as_bytes()).collect()
}

fn cut(bytes: &mut Bytes, length: u64) -> Option<Bytes> {
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len())?;
    Some(bytes.split_to(length))
}

impl WireQuery {
    pub(super) fn of(query: SessionQuery<'_>) -> Self {
        match query {
            SessionQuery::Named(name) => Self::Named(name.to_owned()),
            SessionQuery::IdPrefix(digits) => Self::IdPrefix(digits.to_owned()),
            SessionQuery::After(after) => Self::After(after.map(|after| *after.as_bytes())),
            SessionQuery::ChildrenOf(parent) => Self::ChildrenOf(*parent.as_bytes()),
            SessionQuery::NamedNear(name) => Self::NamedNear(name.to_owned()),
        }
    }

    pub(super) fn query(&self) -> SessionQuery<'_> {
        match self {
            Self::Named(name) => SessionQuery::Named(name),
            Self::IdPrefix(digits) => SessionQuery::IdPrefix(digits),
            Self::After(after) => SessionQuery::After(after.map(SessionId::from_bytes)),
            Self::ChildrenOf(parent) => SessionQuery::ChildrenOf(SessionId::from_bytes(*parent)),
            Self::NamedNear(name) => SessionQuery::NamedNear(name),
        }
    }
}

impl WireSnapshot {
    pub(super) fn of(snapshot: &Snapshot) -> (Self, Vec<&[u8]>) {
        let lengths = |slice: &EncodedSlice| slice.blocks.iter().map(|block| block.len() as u64).collect();
        let slices = snapshot.slices.iter();
        let tail = slices.clone().flat_map(|slice| slice.blocks.iter().map(Bytes::as_ref)).collect();
        let head = Self {
            seq: snapshot.seq,
            time: snapshot.time.0,
            unreadable: snapshot.unreadable,
            slices: slices.map(|slice| (slice.name.to_string(), slice.version, lengths(slice))).collect(),
        };
        (head, tail)
    }

    pub(super) fn snapshot(self, session: SessionId, mut tail: Bytes) -> Option<Snapshot> {
        let mut slices = Vec::with_capacity(self.slices.len());
        for (name, version, lengths) in self.slices {
            let blocks: Option<Vec<Bytes>> = lengths.into_iter().map(|length| cut(&mut tail, length)).collect();
            slices.push(EncodedSlice { name: Arc::from(name), version, blocks: blocks? });
        }
        Some(Snapshot { session, seq: self.seq, time: Timestamp(self.time), unreadable: self.unreadable, slices })
    }
}

impl WireError {
    pub(super) fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Conflict { session, expected, actual } => {
                Self::Conflict { session: *session.as_bytes(), expected: *expected, actual: *actual }
            }
            StoreError::NoSession(session) => Self::NoSession(*session.as_bytes()),
            StoreError::NoContent(digest) => Self::NoContent(*digest.as_bytes()),
            StoreError::Poisoned(why) => Self::Poisoned(why.clone()),
            other => {
                let advice = other.advice().and_then(|advice| serde_json::to_string(&advice).ok());
                Self::Other { message: other.to_string(), advice }
            }
        }
    }

    pub(super) fn error(self) -> StoreError {
        match self {
            Self::Conflict { session, expected, actual } => {
                StoreError::Conflict { session: SessionId::from_bytes(session), expected, actual }
            }
            Self::NoSession(session) => StoreError::NoSession(SessionId::from_bytes(session)),
            Self::NoContent(digest) => StoreError::NoContent(Digest::from_bytes(digest)),
            Self::Poisoned(why) => StoreError::Poisoned(why),
            Self::Other { message, advice } => {
                let advice = advice.and_then(|advice| serde_json::from_str(&advice).ok());
                StoreError::Elsewhere { message, advice }
            }
        }
    }
}
