use std::num::NonZeroU64;
use std::ops::Range;

use super::{Result, StoreError};
use crate::engine::commit::{StoredEvent, declared_in};
use crate::engine::event::Common;
use crate::engine::recorded::ValidatedPayload;
use crate::engine::{Commit, CommitId, CommitView, EventRef, Recorded, Seq, SessionId, Timestamp};

/// Stored events of one session, in order and without gaps. They are read once and visited in place, possibly by
/// several threads.
#[derive(Debug, Clone, Default)]
pub struct EventBatch {
    bytes: Vec<u8>,
    commits: Vec<CommitHead>,
    events: Vec<EventHead>,
    /// Agents in order; consecutive equal agents are stored once.
    agents: Vec<Box<str>>,
    named: Vec<(CommitId, Seq, Seq)>,
}

/// The head of a commit. Heads are small, because every slice's fold iterates over all of them.
#[derive(Debug, Clone, Copy)]
struct CommitHead {
    session: SessionId,
    first: Seq,
    time: Timestamp,
    call: Option<NonZeroU64>,
    count: u32,
    agent: u32,
    /// Index of its first event, and the number of whole events: fewer than `count` if its bytes end early.
    events: u32,
    whole: u32,
}

/// The place of a stored event: its kind, version and length precede its payload.
#[derive(Debug, Clone, Copy)]
struct EventHead {
    payload: u32,
    length: u32,
    version: u16,
    kind_len: u8,
    common: Common,
}

const BETWEEN: usize = 6;

impl EventBatch {
    /// Creates a batch of events, for stores with another representation. Fails with [`StoreError::Commit`].
    pub fn of(events: &[Recorded]) -> Result<Self> {
        let mut batch = Self::default();
        for event in events {
            let mut encoded = Vec::new();
            let commit = Commit::of_recorded(event)?;
            commit.validate()?;
            commit.encode(event.seq, event.time, &mut encoded);
            // A commit within the limits is always valid.
            let _ = batch.add(&encoded);
        }
        Ok(batch)
    }

    pub(super) fn reserve(&mut self, commits: usize) {
        self.commits.reserve(commits);
        self.events.reserve(commits);
    }

    pub(super) fn add(&mut self, encoded: &[u8]) -> Option<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(encoded);
        self.add_range(start..self.bytes.len(), |_| true)
    }

    /// Adds a commit from the buffer, if it is valid and matches `expected`.
    pub(super) fn add_range(
        &mut self,
        range: Range<usize>,
        expected: impl FnOnce(&CommitView<'_>) -> bool,
    ) -> Option<()> {
        let known = self.agents.last().map_or("", |agent| agent);
        let view = CommitView::parse_by(self.bytes.get(range.clone())?, known).ok().filter(expected)?;
        let mut at = range.start + CommitView::AGENT + view.agent.len();
        let events_from = self.events.len();
        let mut rest = view.body;
        for _ in 0..view.count {
            let Ok(event) = StoredEvent::take(&mut rest) else { break };
            at += 1 + event.kind.len() + BETWEEN;
            let length = event.payload.len();
            self.events.push(EventHead {
                payload: offset(at),
                length: offset(length),
                version: event.version,
                kind_len: u8::try_from(event.kind.len()).unwrap_or(u8::MAX),
                common: event.common,
            });
            at += length;
        }
        self.named.extend(view.id.map(|id| (id, view.first, view.last())));
        let agent = (self.agents.is_empty() || view.agent != known).then(|| Box::from(view.agent));
        self.commits.push(CommitHead {
            session: view.session,
            first: view.first,
            time: view.time,
            call: view.call.and_then(NonZeroU64::new),
            count: view.count,
            agent: offset(self.agents.len() - usize::from(agent.is_none())),
            events: offset(events_from),
            whole: offset(self.events.len() - events_from),
        });
        self.agents.extend(agent);
        Some(())
    }

    /// Turns the events up to `until` into events of a child; drops later events and the parent's commit ids.
    pub(super) fn pass_for(&mut self, session: SessionId, until: Seq) {
        self.commits.retain(|commit| commit.first <= until);
        for commit in &mut self.commits {
            commit.session = session;
            let left = u32::try_from(until - commit.first).unwrap_or(u32::MAX).saturating_add(1);
            commit.count = commit.count.min(left);
            commit.whole = commit.whole.min(left);
        }
        self.named.clear();
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if the batch has no events: the history ends before the requested position.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Returns the position of its last event; 0 if it is empty.
    pub fn last(&self) -> Seq {
        self.commits.last().map_or(0, CommitHead::last)
    }

    /// Fails if a commit of the batch has position `next`, where the caller found no event: its bytes end early.
    pub(crate) fn check(&self, next: Seq) -> Result<()> {
        if next > self.last() {
            return Ok(());
        }
        Err(StoreError::Damaged { segment: 0, offset: 0, what: format!("event {next} ends early in its commit") })
    }

    /// Iterates over the events in order. It may start before the requested position, at the start of a commit.
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.commits.iter().flat_map(move |commit| {
            let events = self.events_of(commit).iter().zip(commit.first..);
            events.filter_map(|(event, seq)| self.event(commit, event, seq))
        })
    }

    /// Visits the events after `after`, up to `until`, in place: a fold of millions should not move them.
    #[inline]
    pub(crate) fn visit(
        &self,
        after: Seq,
        until: Seq,
        takes: impl Fn(Common) -> bool,
        mut visitor: impl FnMut(&mut EventRef<'_>),
    ) {
        for commit in self.commits.iter().filter(|commit| commit.last() > after && commit.first <= until) {
            for (event, seq) in self.events_of(commit).iter().zip(commit.first..) {
                if seq > after
                    && seq <= until
                    && takes(event.common)
                    && let Some(mut event) = self.event(commit, event, seq)
                {
                    visitor(&mut event);
                }
            }
        }
    }

    #[inline]
    fn events_of(&self, commit: &CommitHead) -> &[EventHead] {
        let from = commit.events as usize;
        self.events.get(from..from + commit.whole as usize).unwrap_or_default()
    }

    #[inline]
    fn event<'a>(&'a self, commit: &CommitHead, event: &EventHead, seq: Seq) -> Option<EventRef<'a>> {
        let payload = event.payload as usize;
        let kind = event.common.name().unwrap_or_else(|| {
            let end = payload - BETWEEN;
            // Parsing the commit checked the UTF-8.
            let kind = self.bytes.get(end - usize::from(event.kind_len)..end);
            kind.and_then(|kind| std::str::from_utf8(kind).ok()).unwrap_or_default()
        });
        let stored = self.bytes.get(payload..payload + event.length as usize)?;
        let (version, payload, declared) = declared_in(event.version, stored);
        Some(EventRef {
            session: commit.session,
            seq,
            time: commit.time,
            call: commit.call.map(NonZeroU64::get),
            agent: self.agents.get(commit.agent as usize)?,
            kind,
            version,
            payload,
            declared,
            common: event.common,
            validated: ValidatedPayload::No,
        })
    }

    pub(crate) fn reached(&self, until: Seq) -> Option<(Seq, Timestamp)> {
        let after = self.commits.partition_point(|commit| commit.first <= until);
        let commit = self.commits.get(after.checked_sub(1)?)?;
        let count = u64::from(commit.whole);
        (count > 0).then(|| ((commit.first + count - 1).min(until), commit.time))
    }

    pub(crate) fn commit_of(&self, seq: Seq) -> Option<(Seq, Seq)> {
        let commit = self.holder_of(seq)?;
        Some((commit.first, commit.last()))
    }

    pub(crate) fn event_at(&self, seq: Seq) -> Option<EventRef<'_>> {
        let commit = self.holder_of(seq)?;
        let event = self.events_of(commit).get(usize::try_from(seq - commit.first).ok()?)?;
        self.event(commit, event, seq)
    }

    fn holder_of(&self, seq: Seq) -> Option<&CommitHead> {
        let commit = self.commits.get(self.commits.partition_point(|commit| commit.last() < seq))?;
        (commit.first <= seq).then_some(commit)
    }

    /// Iterates over the commits in order, without their ids and incomplete events.
    pub(crate) fn commits(&self) -> impl Iterator<Item = CommitView<'_>> {
        self.commits.iter().filter_map(|commit| {
            let events = self.events_of(commit);
            let (from, until) = (events.first()?, events.last()?);
            let from = from.payload as usize - BETWEEN - usize::from(from.kind_len) - 1;
            let body = self.bytes.get(from..(until.payload + until.length) as usize).unwrap_or_default();
            let agent = self.agents.get(commit.agent as usize).map_or("", |agent| agent);
            let CommitHead { session, first, time, whole: count, .. } = *commit;
            let call = commit.call.map(NonZeroU64::get);
            Some(CommitView { session, first, time, id: None, call, count, agent, body })
        })
    }

    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        for stored in self.commits() {
            out.extend_from_slice(&u32::try_from(stored.encoded_len()).unwrap_or(u32::MAX).to_le_bytes());
            stored.encode(out);
        }
    }

    /// Reads the output of [`write_to`](Self::write_to). `None` if it is invalid.
    pub(super) fn read_from(mut bytes: &[u8]) -> Option<Self> {
        let mut batch = Self::default();
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (commit, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            batch.add(commit)?;
            bytes = rest;
        }
        bytes.is_empty().then_some(batch)
    }

    pub(super) fn named(&self) -> &[(CommitId, Seq, Seq)] {
        &self.named
    }
}

impl CommitHead {
    #[inline]
    fn last(&self) -> Seq {
        self.first + u64::from(self.count) - 1
    }
}

/// Converts an offset: a batch is far below 4 GiB, because a commit has 32 MiB at most.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
