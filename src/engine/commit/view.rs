use super::DECLARES;
use crate::engine::event::Common;
use crate::engine::recorded::ValidatedPayload;
use crate::engine::{CommitId, EventRef, Seq, SessionId, Timestamp};

#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitView<'a> {
    pub(crate) session: SessionId,
    pub(crate) first: Seq,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<CommitId>,
    pub(crate) call: Option<Seq>,
    pub(crate) count: u32,
    pub(crate) agent: &'a str,
    pub(crate) body: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a commit: truncated or malformed bytes")]
pub(crate) struct NotACommit;

impl<'a> CommitView<'a> {
    pub(crate) const AGENT: usize = 16 + 8 + 8 + 16 + 8 + 4 + 1;

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

    pub(crate) fn encoded_len(&self) -> usize {
        Self::AGENT + self.agent.len() + self.body.len()
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, NotACommit> {
        Self::parse_by(bytes, "")
    }

    /// Parses the head of a commit; an agent equal to `known` is not validated as UTF-8 again.
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
        let agent = match rest.split_off(..usize::from(agent_len)).ok_or(NotACommit)? {
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

    pub(crate) fn last(&self) -> Seq {
        self.first + u64::from(self.count) - 1
    }

    /// Returns true if all of its events are present.
    #[cfg(feature = "nats")]
    pub(crate) fn is_whole(&self) -> bool {
        self.events().filter_map(Result::ok).count() == self.count as usize
    }

    /// Returns true if its first event is the intent of a call.
    pub(crate) fn begins_call(&self) -> bool {
        self.call == Some(self.first)
    }

    /// Returns the events in order; an error ends the sequence.
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

    fn next_event(&self, rest: &mut &'a [u8], seq: Seq) -> Result<EventRef<'a>, NotACommit> {
        let StoredEvent { common, kind, version, payload } = StoredEvent::take(rest)?;
        let (version, payload, declared) = declared_in(version, payload);
        Ok(EventRef {
            session: self.session,
            seq,
            time: self.time,
            call: self.call,
            agent: self.agent,
            kind,
            version,
            payload,
            declared,
            common,
            validated: ValidatedPayload::No,
        })
    }
}

/// Stored event; its references follow its payload if its version says so.
pub(crate) struct StoredEvent<'a> {
    pub(crate) common: Common,
    pub(crate) kind: &'a str,
    pub(crate) version: u16,
    pub(crate) payload: &'a [u8],
}

impl<'a> StoredEvent<'a> {
    #[inline]
    pub(crate) fn take(rest: &mut &'a [u8]) -> Result<Self, NotACommit> {
        let [kind_len] = take_array(rest)?;
        let kind = rest.split_off(..usize::from(kind_len)).ok_or(NotACommit)?;
        let common = Common::of(kind);
        let kind = match common.name() {
            Some(kind) => kind,
            None => std::str::from_utf8(kind).map_err(|_| NotACommit)?,
        };
        let version = u16::from_le_bytes(take_array(rest)?);
        let length = u32::from_le_bytes(take_array(rest)?);
        let payload = rest.split_off(..length as usize).ok_or(NotACommit)?;
        Ok(Self { common, kind, version, payload })
    }
}

/// Splits the references off a payload if its stored version has the flag.
#[inline]
pub(crate) fn declared_in(version: u16, stored: &[u8]) -> (u16, &[u8], Option<&[[u8; 32]]>) {
    let split = || {
        let (rest, count) = stored.split_last_chunk()?;
        let bytes = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(32)?;
        let (payload, references) = rest.split_at_checked(rest.len().checked_sub(bytes)?)?;
        Some((version & !DECLARES, payload, Some(references.as_chunks().0)))
    };
    let declared = if version & DECLARES == 0 { None } else { split() };
    declared.unwrap_or((version, stored, None))
}

#[inline]
fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], NotACommit> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(NotACommit)?;
    *rest = tail;
    Ok(*head)
}
