//! A commit: events of one session that are recorded all or not at all; and its encoding.

use std::sync::Arc;

use bytes::Bytes;

use super::clock::Timestamp;
use super::event::{CodecError, Common, Event};
use super::id::{CommitId, Digest, SessionId};
use super::recorded::{EventRef, Seq};

/// Bytes that the events of one commit may take together.
pub const MAX_COMMIT_BYTES: usize = 32 << 20;
/// Events that one commit may hold.
pub const MAX_COMMIT_EVENTS: u32 = 1 << 20;
/// Bytes of an agent's name.
pub const MAX_AGENT_BYTES: usize = 200;
/// Bytes of an event's kind.
pub const MAX_KIND_BYTES: usize = 100;
/// Bytes before an event's payload, its kind left out.
const EVENT_HEAD: usize = 1 + 2 + 4;
/// Bytes of a common event.
const EVENT_BYTES: usize = 256;

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
    /// A commit without events was given.
    #[error("the commit has no events")]
    Empty,
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
        }
    }

    /// The commit of one event that was recorded before.
    pub(crate) fn of_recorded(event: &super::recorded::Recorded) -> Result<Self, CommitError> {
        let call = event.call.map_or(CallLink::None, CallLink::Of);
        let mut commit = Self::new(event.session, event.time).by(&event.agent).of_call(call);
        commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes)?;
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
        commit.validate()?;
        Ok(commit)
    }

    /// Whether the bytes are as many events as it says, and nothing else.
    pub(crate) fn is_whole(&self) -> bool {
        let (mut bytes, mut count) = (0, 0);
        for event in self.view(1, self.time).events().map_while(Result::ok) {
            bytes += EVENT_HEAD + event.kind.len() + event.payload.len();
            count += 1;
        }
        (count, bytes) == (self.count, self.body.len())
    }

    /// The events, encoded.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
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
        self.push_with(E::KIND, E::VERSION, |body| Ok(event.encode(body)?))
    }

    /// Adds an event that is encoded already, as an import or a copy of a history has it.
    ///
    /// # Errors
    /// As [`Commit::push`].
    pub fn push_encoded(&mut self, kind: &str, version: u16, payload: &[u8]) -> Result<(), CommitError> {
        self.body.reserve(kind.len() + EVENT_HEAD + payload.len());
        self.push_with(kind, version, |body| {
            body.extend_from_slice(payload);
            Ok(())
        })
    }

    fn push_with(
        &mut self,
        kind: &str,
        version: u16,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CommitError>,
    ) -> Result<(), CommitError> {
        check("bytes of an event's kind", kind.len() as u64, MAX_KIND_BYTES as u64)?;
        check("events in a commit", u64::from(self.count) + 1, u64::from(MAX_COMMIT_EVENTS))?;
        let start = self.body.len();
        let outcome = self.encode_event(kind, version, encode);
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
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CommitError>,
    ) -> Result<(), CommitError> {
        self.body.push(u8::try_from(kind.len()).unwrap_or(u8::MAX));
        self.body.extend_from_slice(kind.as_bytes());
        self.body.extend_from_slice(&version.to_le_bytes());
        let length_at = self.body.len();
        self.body.extend_from_slice(&[0; 4]);
        encode(&mut self.body)?;
        check("bytes in a commit", self.body.len() as u64, MAX_COMMIT_BYTES as u64)?;
        let length = u32::try_from(self.body.len() - length_at - 4).unwrap_or(u32::MAX);
        self.body[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Adds a content that the events refer to; the store keeps one copy of equal contents.
    pub fn keep(&mut self, content: Content) {
        self.contents.push(content);
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
        if self.is_empty() { Err(CommitError::Empty) } else { Ok(()) }
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

/// A stored commit, read in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitView<'a> {
    pub(crate) session: SessionId,
    pub(crate) first: Seq,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<CommitId>,
    pub(crate) call: Option<Seq>,
    pub(crate) count: u32,
    agent: &'a str,
    body: &'a [u8],
}

/// Bytes that are no stored commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a commit: its bytes end early or make no sense")]
pub(crate) struct NotACommit;

impl<'a> CommitView<'a> {
    /// Where the agent's name begins.
    pub(crate) const AGENT: usize = 16 + 8 + 8 + 16 + 8 + 4 + 1;

    /// A commit as it was read before, under no identity.
    pub(crate) fn of_parts(
        (session, first, time): (SessionId, Seq, Timestamp),
        call: Option<Seq>,
        count: u32,
        agent: &'a str,
        body: &'a [u8],
    ) -> Self {
        Self { session, first, time, id: None, call, count, agent, body }
    }

    /// Appends the stored form to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.session.as_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.time.0.to_le_bytes());
        out.extend_from_slice(self.id.as_ref().map_or(&[0; 16][..], |id| id.as_bytes()));
        out.extend_from_slice(&self.call.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.push(u8::try_from(self.agent.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(self.agent.as_bytes());
        out.extend_from_slice(self.body);
    }

    /// Bytes of the stored form.
    pub(crate) fn encoded_len(&self) -> usize {
        Self::AGENT + self.agent.len() + self.body.len()
    }

    /// Reads the head of a commit.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, NotACommit> {
        Self::parse_by(bytes, "")
    }

    /// The same where the commit is likely by an agent whose name is known to be a text.
    #[inline]
    pub(crate) fn parse_by(bytes: &'a [u8], known: &'a str) -> Result<Self, NotACommit> {
        let mut rest = bytes;
        let session = SessionId::from_bytes(take_array(&mut rest)?);
        let first = u64::from_le_bytes(take_array(&mut rest)?);
        let time = Timestamp(i64::from_le_bytes(take_array(&mut rest)?));
        let id: [u8; 16] = take_array(&mut rest)?;
        let call = u64::from_le_bytes(take_array(&mut rest)?);
        let count = u32::from_le_bytes(take_array(&mut rest)?);
        let [agent_len] = take_array(&mut rest)?;
        let agent = match take(&mut rest, usize::from(agent_len))? {
            agent if agent == known.as_bytes() => known,
            agent => std::str::from_utf8(agent).map_err(|_| NotACommit)?,
        };
        if first == 0 || count == 0 || first.checked_add(u64::from(count)).is_none() {
            return Err(NotACommit);
        }
        Ok(Self {
            session,
            first,
            time,
            id: (id != [0; 16]).then(|| CommitId::from_bytes(id)),
            call: (call != 0).then_some(call),
            count,
            agent,
            body: rest,
        })
    }

    /// The position of its last event.
    pub(crate) fn last(&self) -> Seq {
        self.first + u64::from(self.count) - 1
    }

    /// Who acted.
    pub(crate) fn agent(&self) -> &'a str {
        self.agent
    }

    /// Its events in order; an error ends the sequence.
    pub(crate) fn events(&self) -> impl Iterator<Item = Result<EventRef<'a>, NotACommit>> + use<'a> {
        let commit = *self;
        let mut rest = self.body;
        let mut seq = self.first;
        let mut left = self.count;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let event = commit.next_event(&mut rest, seq);
            left = if event.is_ok() { left - 1 } else { 0 };
            seq += 1;
            Some(event)
        })
    }

    #[inline]
    fn next_event(&self, rest: &mut &'a [u8], seq: Seq) -> Result<EventRef<'a>, NotACommit> {
        let [kind_len] = take_array(rest)?;
        let kind = take(rest, usize::from(kind_len))?;
        let common = Common::of(kind);
        let kind = match common.name() {
            Some(kind) => kind,
            None => std::str::from_utf8(kind).map_err(|_| NotACommit)?,
        };
        let version = u16::from_le_bytes(take_array(rest)?);
        let length = u32::from_le_bytes(take_array(rest)?);
        let payload = take(rest, usize::try_from(length).map_err(|_| NotACommit)?)?;
        Ok(EventRef {
            session: self.session,
            seq,
            time: self.time,
            call: self.call,
            agent: self.agent,
            kind,
            version,
            payload,
            common,
        })
    }
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], NotACommit> {
    let (head, tail) = rest.split_at_checked(count).ok_or(NotACommit)?;
    *rest = tail;
    Ok(head)
}

#[inline]
fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], NotACommit> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(NotACommit)?;
    *rest = tail;
    Ok(*head)
}
