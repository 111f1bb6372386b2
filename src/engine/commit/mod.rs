//! Commits: events of one session that are recorded all or not at all, and their encoding.

mod view;

use std::sync::Arc;

use bytes::Bytes;

use super::event::{CodecError, Event};
use super::{CommitId, Diagnostic, Digest, ErrorKind, EventRef, Seq, SessionId, Timestamp};

pub(crate) use view::{CommitView, StoredEvent, declared_in};

/// Maximum bytes of the events of one commit.
pub const MAX_COMMIT_BYTES: usize = 32 << 20;
/// Maximum events of one commit.
pub const MAX_COMMIT_EVENTS: u32 = 1 << 20;
/// Maximum bytes of an agent's name.
pub const MAX_AGENT_BYTES: usize = 200;
/// Maximum bytes of an event's kind.
pub const MAX_KIND_BYTES: usize = 100;
const MAX_EVENT_VERSION: u16 = DECLARES - 1;
const EVENT_BYTES: usize = 256;
/// Flag in the stored version of an event: its references follow its payload.
const DECLARES: u16 = 1 << 15;

/// Required end of the session's history for a commit to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// Any position.
    #[default]
    Any,
    /// No session yet: the commit creates it.
    NoSession,
    /// The position of the last event.
    Exactly(Seq),
    /// No session yet: the commit creates it as a child. Its history is the parent's up to that position, then its own.
    ForkOf(ForkPoint),
}

/// Last position that a child's history shares with its parent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkPoint {
    /// Parent session.
    pub session: SessionId,
    /// Last position that both have; at least 1.
    pub seq: Seq,
}

/// Link of a commit to a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallLink {
    /// No call.
    #[default]
    None,
    /// The commit's first event is the call's intent; its position becomes the call id.
    Opens,
    /// Call that began at this position.
    Of(Seq),
}

/// Content to store, with its digest.
#[derive(Debug, Clone)]
pub struct Content {
    /// BLAKE3 digest of the bytes.
    pub digest: Digest,
    /// Bytes of the content.
    pub bytes: Bytes,
}

/// Content as a list of chunks, which are stored already or in the same commit.
#[derive(Debug, Clone)]
pub(crate) struct ChunkList {
    pub(crate) digest: Digest,
    pub(crate) length: u64,
    pub(crate) chunks: Vec<Digest>,
}

/// Events of one session that are recorded together. It holds up to 32 MiB, so it is moved and never cloned; see
/// [`duplicate`](Commit::duplicate).
#[derive(Debug)]
pub struct Commit {
    pub(crate) session: SessionId,
    pub(crate) time: Timestamp,
    pub(crate) expected: Expected,
    pub(crate) id: Option<CommitId>,
    pub(crate) call: CallLink,
    agent: Option<Arc<str>>,
    pub(crate) count: u32,
    body: Vec<u8>,
    pub(crate) contents: Vec<Content>,
    pub(crate) lists: Vec<ChunkList>,
}

/// Reason why a commit can't be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// An event can't be encoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A size is over its limit.
    #[error("{what}: {actual} is over the limit of {limit}; split the work into several commits")]
    TooLarge {
        /// Measured quantity.
        what: &'static str,
        /// Measured value.
        actual: u64,
        /// Maximum value.
        limit: u64,
    },
    /// The commit is empty.
    #[error("the commit has no events")]
    Empty,
}

impl Diagnostic for CommitError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Commit {
    /// Creates an empty commit of `session` at `time`.
    pub fn new(session: SessionId, time: Timestamp) -> Self {
        Self {
            session,
            time,
            expected: Expected::Any,
            id: None,
            call: CallLink::None,
            agent: None,
            count: 0,
            body: Vec::new(),
            contents: Vec::new(),
            lists: Vec::new(),
        }
    }

    pub(crate) fn of_recorded(event: &super::recorded::Recorded) -> Result<Self, CommitError> {
        let call = event.call.map_or(CallLink::None, CallLink::Of);
        let mut commit = Self::new(event.session, event.time).as_agent(&event.agent).of_call(call);
        commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes)?;
        Ok(commit)
    }

    /// Creates a commit of a stored commit's events, from position `from` up to the first unreadable event.
    pub(crate) fn of_view(view: &CommitView<'_>, from: Seq) -> Result<Self, CommitError> {
        let call = view.call.map_or(CallLink::None, CallLink::Of);
        let agent = (!view.agent.is_empty()).then(|| Arc::from(view.agent));
        let mut commit = Self { agent, ..Self::new(view.session, view.time) }.of_call(call);
        commit.body.reserve(view.body.len());
        for event in view.events().map_while(Result::ok).filter(|event| event.seq >= from) {
            commit.push_event(&event)?;
        }
        commit.validate()?;
        Ok(commit)
    }

    /// Copies the commit, to submit it more than once: in a retry with the same id, or to two stores.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            expected: self.expected,
            id: self.id,
            count: self.count,
            body: self.body.clone(),
            contents: self.contents.clone(),
            lists: self.lists.clone(),
            ..self.emptied()
        }
    }

    pub(crate) fn emptied(&self) -> Self {
        let (agent, call) = (self.agent.clone(), self.call);
        Self { agent, call, ..Self::new(self.session, self.time) }
    }

    /// Sets the required end of the history.
    #[must_use]
    pub fn expecting(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    /// Sets an id that identifies retries. A retry within the session's last 1,024 commits with an id returns the
    /// positions of the first attempt.
    #[must_use]
    pub fn with_id(mut self, id: CommitId) -> Self {
        self.id = Some(id);
        self
    }

    #[doc(hidden)]
    pub fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Links the commit to a tool call.
    #[must_use]
    pub fn of_call(mut self, call: CallLink) -> Self {
        self.call = call;
        self
    }

    /// Sets the acting agent.
    #[must_use]
    pub fn as_agent(mut self, agent: &Arc<str>) -> Self {
        self.agent = Some(Arc::clone(agent));
        self
    }

    /// Adds an event. Fails with [`CommitError`]. The commit is then unchanged.
    pub fn push<E: Event>(&mut self, event: &E) -> Result<(), CommitError> {
        self.body.reserve(EVENT_BYTES);
        let references = event.references();
        let references: Option<Vec<_>> = references.map(|all| all.iter().map(|digest| *digest.as_bytes()).collect());
        self.push_with(E::KIND, E::VERSION, references.as_deref(), |body| Ok(event.encode(body)?))
    }

    /// Adds an encoded event that declares no references.
    pub fn push_encoded(&mut self, kind: &str, version: u16, payload: &[u8]) -> Result<(), CommitError> {
        self.push_with(kind, version, None, |body| {
            body.extend_from_slice(payload);
            Ok(())
        })
    }

    pub(crate) fn push_payload(
        &mut self,
        kind: &str,
        payload: &[u8],
        references: &[[u8; 32]],
        limit: usize,
    ) -> Result<(), CommitError> {
        check("bytes of an event's data", payload.len() as u64, limit as u64)?;
        self.push_with(kind, 1, Some(references), |body| {
            body.extend_from_slice(payload);
            Ok(())
        })
    }

    pub(crate) fn push_event(&mut self, event: &EventRef<'_>) -> Result<(), CommitError> {
        self.push_with(event.kind, event.version, event.declared, |body| {
            body.extend_from_slice(event.payload);
            Ok(())
        })
    }

    fn push_with(
        &mut self,
        kind: &str,
        version: u16,
        references: Option<&[[u8; 32]]>,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CommitError>,
    ) -> Result<(), CommitError> {
        check("bytes of an event's kind", kind.len() as u64, MAX_KIND_BYTES as u64)?;
        check("an event's version", u64::from(version), u64::from(MAX_EVENT_VERSION))?;
        check("events in a commit", u64::from(self.count) + 1, u64::from(MAX_COMMIT_EVENTS))?;
        let start = self.body.len();
        self.body.push(u8::try_from(kind.len()).unwrap_or(u8::MAX));
        self.body.extend_from_slice(kind.as_bytes());
        self.body.extend_from_slice(&(version | references.map_or(0, |_| DECLARES)).to_le_bytes());
        let payload_at = self.body.len() + 4;
        self.body.extend_from_slice(&[0; 4]);
        let encoded = encode(&mut self.body);
        if let Some(references) = references {
            self.body.extend_from_slice(references.as_flattened());
            self.body.extend_from_slice(&u32::try_from(references.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        let size = self.body.len() as u64;
        let outcome = encoded.and_then(|()| check("bytes in a commit", size, MAX_COMMIT_BYTES as u64));
        if outcome.is_err() {
            self.body.truncate(start);
            return outcome;
        }
        let length = u32::try_from(self.body.len() - payload_at).unwrap_or(u32::MAX);
        self.body[payload_at - 4..payload_at].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        Ok(())
    }

    /// Adds a content that the events refer to; the store keeps one copy of equal contents. The contents of a commit
    /// without events stay until the next collection, for a later commit that refers to them.
    pub fn keep(&mut self, content: Content) {
        self.contents.push(content);
    }

    pub(crate) fn keep_list(&mut self, list: ChunkList) {
        self.lists.push(list);
    }

    pub(crate) fn keeps_only(&self) -> bool {
        self.count == 0 && !(self.contents.is_empty() && self.lists.is_empty())
    }

    /// Adds the events and contents of another commit; agent and time are unchanged. Fails with
    /// [`CommitError::TooLarge`]; the commit is then unchanged.
    pub fn append(&mut self, other: Self) -> Result<(), CommitError> {
        self.append_events(&other)?;
        self.contents.extend(other.contents);
        self.lists.extend(other.lists);
        Ok(())
    }

    /// Adds another commit like [`append`](Commit::append). The caller keeps it, to record it again after a failure.
    #[doc(hidden)]
    pub fn append_retained(&mut self, other: &Self) -> Result<(), CommitError> {
        self.append_events(other)?;
        self.contents.extend_from_slice(&other.contents);
        self.lists.extend_from_slice(&other.lists);
        Ok(())
    }

    fn append_events(&mut self, other: &Self) -> Result<(), CommitError> {
        let (bytes, count) = (self.body.len() + other.body.len(), u64::from(self.count) + u64::from(other.count));
        check("bytes in a commit", bytes as u64, MAX_COMMIT_BYTES as u64)?;
        check("events in a commit", count, u64::from(MAX_COMMIT_EVENTS))?;
        self.body.extend_from_slice(&other.body);
        self.count += other.count;
        Ok(())
    }

    /// Returns the number of events.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns true if the commit has no events.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn validate(&self) -> Result<(), CommitError> {
        check("bytes of an agent's name", self.agent().len() as u64, MAX_AGENT_BYTES as u64)?;
        if self.is_empty() && !self.keeps_only() { Err(CommitError::Empty) } else { Ok(()) }
    }

    pub(crate) fn encode(&self, first: Seq, time: Timestamp, out: &mut Vec<u8>) {
        self.view(first, time).encode(out);
    }

    #[doc(hidden)]
    pub fn encoded_len(&self) -> usize {
        self.view(1, self.time).encoded_len()
    }

    pub(crate) fn view(&self, first: Seq, time: Timestamp) -> CommitView<'_> {
        let call = match self.call {
            CallLink::None => None,
            CallLink::Opens => Some(first),
            CallLink::Of(seq) => Some(seq),
        };
        let (session, id, count) = (self.session, self.id, self.count);
        CommitView { session, first, time, id, call, count, agent: self.agent(), body: &self.body }
    }

    pub(crate) fn agent(&self) -> &str {
        self.agent.as_deref().unwrap_or_default()
    }
}

fn check(what: &'static str, actual: u64, limit: u64) -> Result<(), CommitError> {
    if actual > limit { Err(CommitError::TooLarge { what, actual, limit }) } else { Ok(()) }
}
