//! A commit: events of one session that are recorded all or not at all; and its encoding.

mod view;

use std::sync::Arc;

use bytes::Bytes;

use super::clock::Timestamp;
use super::event::{CodecError, Event};
use super::id::{CommitId, Digest, Seq, SessionId};
use super::recorded::EventRef;
use crate::engine::error::{Diagnostic, ErrorKind};

pub(crate) use view::{CommitView, declared_in};

/// Bytes that the events of one commit may take together.
pub const MAX_COMMIT_BYTES: usize = 32 << 20;
/// Events that one commit may hold.
pub const MAX_COMMIT_EVENTS: u32 = 1 << 20;
/// Bytes of an agent's name.
pub const MAX_AGENT_BYTES: usize = 200;
/// Bytes of an event's kind.
pub const MAX_KIND_BYTES: usize = 100;
/// The highest version that an event's encoding may have.
const MAX_EVENT_VERSION: u16 = DECLARES - 1;
/// Bytes before an event's payload, its kind left out.
const EVENT_HEAD: usize = 1 + 2 + 4;
/// Bytes of a common event.
const EVENT_BYTES: usize = 256;
/// Set in the stored version of an event behind whose payload its references stand.
const DECLARES: u16 = 1 << 15;

/// Where the session's history must end for a commit to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// Wherever it ends.
    #[default]
    Any,
    /// The session must not exist yet; the commit begins it.
    NoSession,
    /// Its last event must have this position.
    Exactly(Seq),
    /// The session must not exist yet; the commit begins it as a child, whose history is the parent's up to
    /// that position, and then its own.
    ForkOf(ForkPoint),
}

/// A position in the history of a session, up to which a child's is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkPoint {
    /// The parent.
    pub session: SessionId,
    /// The last position that both have; at least 1.
    pub seq: Seq,
}

/// The tool call that a commit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallLink {
    /// None.
    #[default]
    None,
    /// The commit's first event is the call's intent: the call takes its position as its name.
    Opens,
    /// The call that began at this position.
    Of(Seq),
}

/// A content to be kept, with its digest.
#[derive(Debug, Clone)]
pub struct Content {
    /// BLAKE3 of the bytes.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Bytes,
}

/// A content by its chunks, which are contents that are kept already or in the same commit.
#[derive(Debug, Clone)]
pub(crate) struct ChunkList {
    /// BLAKE3 of the whole.
    pub(crate) digest: Digest,
    /// Bytes of the whole.
    pub(crate) length: u64,
    pub(crate) chunks: Vec<Digest>,
}

/// Events of one session to be recorded together.
#[derive(Debug, Clone)]
pub struct Commit {
    pub(crate) session: SessionId,
    pub(crate) time: Timestamp,
    pub(crate) expected: Expected,
    pub(crate) id: Option<CommitId>,
    pub(crate) call: CallLink,
    /// None for nobody.
    agent: Option<Arc<str>>,
    pub(crate) count: u32,
    body: Vec<u8>,
    pub(crate) contents: Vec<Content>,
    pub(crate) lists: Vec<ChunkList>,
}

/// Why a commit can't be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// An event has no encoding.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Something is over a limit.
    #[error("{what}: {actual} is over the limit of {limit}; split the work into several commits")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// How much there is.
        actual: u64,
        /// How much there may be.
        limit: u64,
    },
    /// A commit with nothing in it was given.
    #[error("the commit has no events")]
    Empty,
}

impl Diagnostic for CommitError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Commit {
    /// An empty commit of `session`, said to happen at `time`.
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

    /// The commit of one event that was recorded before.
    pub(crate) fn of_recorded(event: &super::recorded::Recorded) -> Result<Self, CommitError> {
        let call = event.call.map_or(CallLink::None, CallLink::Of);
        let mut commit = Self::new(event.session, event.time).by(&event.agent).of_call(call);
        commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes)?;
        Ok(commit)
    }

    /// The events of a stored commit from position `from` on, as far as its bytes are events.
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

    /// A commit of events that are encoded already, one behind the other.
    ///
    /// # Errors
    /// [`CommitError`] when it is over a limit, or the bytes are no such events.
    pub(crate) fn of_parts(
        session: SessionId,
        time: Timestamp,
        count: u32,
        agent: &str,
        body: &[u8],
    ) -> Result<Self, CommitError> {
        check("bytes in a commit", body.len() as u64, MAX_COMMIT_BYTES as u64)?;
        check("events in a commit", u64::from(count), u64::from(MAX_COMMIT_EVENTS))?;
        let agent = (!agent.is_empty()).then(|| Arc::from(agent));
        let commit = Self { agent, count, body: body.to_vec(), ..Self::new(session, time) };
        check("bytes of an agent's name", commit.agent().len() as u64, MAX_AGENT_BYTES as u64)?;
        Ok(commit)
    }

    /// Whether the bytes are as many events as it says, and nothing else.
    pub(crate) fn is_whole(&self) -> bool {
        let (mut bytes, mut count) = (0, 0);
        for event in self.view(1, self.time).events().map_while(Result::ok) {
            bytes += EVENT_HEAD + event.kind.len() + event.stored_form().1;
            count += 1;
        }
        (count, bytes) == (self.count, self.body.len())
    }

    /// The events, encoded.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// A commit of the same kind without any events or contents.
    pub(crate) fn emptied(&self) -> Self {
        let (agent, call) = (self.agent.clone(), self.call);
        Self { agent, call, ..Self::new(self.session, self.time) }
    }

    /// Sets where the history must end.
    #[must_use]
    pub fn expecting(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    /// Names the commit, so that giving it again within the session's last 1,024 named commits is
    /// recognised and answered with the first one's positions.
    #[must_use]
    pub fn with_id(mut self, id: CommitId) -> Self {
        self.id = Some(id);
        self
    }

    /// Links the commit to a tool call.
    #[must_use]
    pub fn of_call(mut self, call: CallLink) -> Self {
        self.call = call;
        self
    }

    /// Names who acts.
    #[must_use]
    pub fn by(mut self, agent: &Arc<str>) -> Self {
        self.agent = Some(Arc::clone(agent));
        self
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`CommitError`] when the event can't be encoded or the commit would grow over a limit; the
    /// commit is then as before.
    pub fn push<E: Event>(&mut self, event: &E) -> Result<(), CommitError> {
        self.body.reserve(EVENT_BYTES);
        let references = event.references();
        let references: Option<Vec<_>> = references.map(|all| all.iter().map(|digest| *digest.as_bytes()).collect());
        self.push_with(E::KIND, E::VERSION, references.as_deref(), |body| Ok(event.encode(body)?))
    }

    /// Adds an event that is encoded already, and says nothing of what it refers to.
    ///
    /// # Errors
    /// As [`Commit::push`].
    pub fn push_encoded(&mut self, kind: &str, version: u16, payload: &[u8]) -> Result<(), CommitError> {
        self.push_stored(kind, version, payload, None)
    }

    /// Adds an event as it was recorded elsewhere.
    pub(crate) fn push_event(&mut self, event: &EventRef<'_>) -> Result<(), CommitError> {
        self.push_stored(event.kind, event.version, event.payload, event.declared)
    }

    fn push_stored(
        &mut self,
        kind: &str,
        version: u16,
        payload: &[u8],
        references: Option<&[[u8; 32]]>,
    ) -> Result<(), CommitError> {
        self.body.reserve(kind.len() + EVENT_HEAD + payload.len());
        self.push_with(kind, version, references, |body| {
            body.extend_from_slice(payload);
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
        let outcome = self.encode_event(kind, version, references, encode);
        if outcome.is_err() {
            self.body.truncate(start);
        } else {
            self.count += 1;
        }
        outcome
    }

    fn encode_event(
        &mut self,
        kind: &str,
        version: u16,
        references: Option<&[[u8; 32]]>,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CommitError>,
    ) -> Result<(), CommitError> {
        let declares = if references.is_some() { DECLARES } else { 0 };
        self.body.push(u8::try_from(kind.len()).unwrap_or(u8::MAX));
        self.body.extend_from_slice(kind.as_bytes());
        self.body.extend_from_slice(&(version | declares).to_le_bytes());
        let length_at = self.body.len();
        self.body.extend_from_slice(&[0; 4]);
        encode(&mut self.body)?;
        if let Some(references) = references {
            self.body.extend_from_slice(references.as_flattened());
            self.body.extend_from_slice(&u32::try_from(references.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        check("bytes in a commit", self.body.len() as u64, MAX_COMMIT_BYTES as u64)?;
        let length = u32::try_from(self.body.len() - length_at - 4).unwrap_or(u32::MAX);
        self.body[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Adds a content that the events refer to; the store keeps one copy of equal contents. A commit without events
    /// keeps its contents ahead of the commit that refers to them, until the next collection.
    pub fn keep(&mut self, content: Content) {
        self.contents.push(content);
    }

    /// The same for one that is too large to be in memory.
    pub(crate) fn keep_list(&mut self, list: ChunkList) {
        self.lists.push(list);
    }

    /// Tells whether it has nothing but contents.
    pub(crate) fn keeps_only(&self) -> bool {
        self.count == 0 && !(self.contents.is_empty() && self.lists.is_empty())
    }

    /// Adds the events and contents of another commit; who acts, and when, stays as it is.
    ///
    /// # Errors
    /// [`CommitError::TooLarge`]; the commit is then as before.
    pub fn append(&mut self, other: Self) -> Result<(), CommitError> {
        let (bytes, count) = (self.body.len() + other.body.len(), u64::from(self.count) + u64::from(other.count));
        check("bytes in a commit", bytes as u64, MAX_COMMIT_BYTES as u64)?;
        check("events in a commit", count, u64::from(MAX_COMMIT_EVENTS))?;
        self.body.extend_from_slice(&other.body);
        self.count += other.count;
        self.contents.extend(other.contents);
        self.lists.extend(other.lists);
        Ok(())
    }

    /// How many events it holds.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it holds no event.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn validate(&self) -> Result<(), CommitError> {
        check("bytes of an agent's name", self.agent().len() as u64, MAX_AGENT_BYTES as u64)?;
        if self.is_empty() && !self.keeps_only() { Err(CommitError::Empty) } else { Ok(()) }
    }

    /// Appends the stored form to `out`, for events that begin at `first`.
    pub(crate) fn encode(&self, first: Seq, time: Timestamp, out: &mut Vec<u8>) {
        self.view(first, time).encode(out);
    }

    /// Bytes of the stored form.
    pub(crate) fn encoded_len(&self) -> usize {
        self.view(1, self.time).encoded_len()
    }

    /// What is stored of it, for events that begin at `first`.
    fn view(&self, first: Seq, time: Timestamp) -> CommitView<'_> {
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
