//! Stored events, a run of them at a time.

use std::ops::Range;

use super::StoreError;
use crate::engine::clock::Timestamp;
use crate::engine::commit::{Commit, CommitView};
use crate::engine::event::Common;
use crate::engine::id::{CommitId, SessionId};
use crate::engine::recorded::{EventRef, Recorded, Seq};
use crate::engine::run::Wanted;

/// Events of one session in order and without gaps, as they are stored: read once, looked at in place,
/// by several threads if need be.
#[derive(Debug, Clone, Default)]
pub struct EventBatch {
    bytes: Vec<u8>,
    commits: Vec<CommitHead>,
    events: Vec<EventHead>,
    last: Seq,
}

/// What the events of a commit have in common.
#[derive(Debug, Clone)]
struct CommitHead {
    session: SessionId,
    first: Seq,
    last: Seq,
    time: Timestamp,
    id: Option<CommitId>,
    call: Option<Seq>,
    /// Where the agent's name lies.
    agent: Range<u32>,
    /// Its events; fewer than it says when its bytes end early.
    events: Range<usize>,
}

/// Where an event lies: its kind, version and length stand before its payload.
#[derive(Debug, Clone, Copy)]
struct EventHead {
    payload: u32,
    length: u32,
    version: u16,
    kind_len: u8,
    common: Common,
}

/// Bytes between the end of an event's kind and its payload.
const BETWEEN: usize = 6;

impl EventBatch {
    /// A batch of these events; for stores that keep them in another way.
    ///
    /// # Errors
    /// [`StoreError::Commit`] when an event is over a limit.
    pub fn of(events: &[Recorded]) -> Result<Self, StoreError> {
        let mut batch = Self::default();
        for event in events {
            let mut encoded = Vec::new();
            Commit::of_recorded(event)?.encode(event.seq, event.time, &mut encoded);
            batch.add(&encoded);
        }
        Ok(batch)
    }

    /// An empty batch, of about so many commits that lie in `bytes`.
    pub(super) fn with_buffer(bytes: Vec<u8>, commits: usize) -> Self {
        Self { bytes, commits: Vec::with_capacity(commits), events: Vec::with_capacity(commits), last: 0 }
    }

    /// Adds a commit.
    pub(super) fn add(&mut self, encoded: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(encoded);
        self.add_range(start..self.bytes.len(), |_| true);
    }

    /// Takes a commit that lies in the buffer, if it is one and as `expected`.
    pub(super) fn add_range(
        &mut self,
        range: Range<usize>,
        expected: impl FnOnce(&CommitView<'_>) -> bool,
    ) -> Option<()> {
        let view = CommitView::parse(self.bytes.get(range.clone())?).ok().filter(expected)?;
        let mut at = range.start + CommitView::AGENT;
        let agent = at..at + view.agent().len();
        at = agent.end;
        let events_from = self.events.len();
        for event in view.events() {
            let Ok(event) = event else { break };
            at += 1 + event.kind.len() + BETWEEN;
            self.events.push(EventHead {
                payload: offset(at),
                length: offset(event.payload.len()),
                version: event.version,
                kind_len: u8::try_from(event.kind.len()).unwrap_or(u8::MAX),
                common: event.common,
            });
            at += event.payload.len();
        }
        let agent = offset(agent.start)..offset(agent.end);
        let (first, last) = (view.first, view.last());
        let events = events_from..self.events.len();
        let CommitView { session, time, id, call, .. } = view;
        self.commits.push(CommitHead { session, first, last, time, id, call, agent, events });
        self.last = last;
        Some(())
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none: the history ends before the position that was asked for.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The position of its last event; 0 when it is empty.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Fails when the events ended before the position behind the last one: a commit is not whole.
    pub(crate) fn check(&self, next: Seq) -> Result<(), StoreError> {
        if next > self.last {
            return Ok(());
        }
        Err(StoreError::Damaged { segment: 0, offset: 0, what: format!("event {next} ends early in its commit") })
    }

    /// The events in order. It may begin before the position that was asked for: a commit is whole.
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        static ALL: Wanted = Wanted::all();
        self.select(&ALL, 0, Seq::MAX)
    }

    /// The events after one position, up to another, that are wanted.
    #[inline]
    pub(crate) fn select<'a>(
        &'a self,
        wanted: &'a Wanted,
        after: Seq,
        until: Seq,
    ) -> impl Iterator<Item = EventRef<'a>> + use<'a> {
        let within = move |commit: &&CommitHead| commit.last > after && commit.first <= until;
        self.commits.iter().filter(within).flat_map(move |commit| {
            let agent = text(&self.bytes, commit.agent.start as usize, commit.agent.end as usize);
            let events = self.events.get(commit.events.clone()).unwrap_or_default();
            events.iter().zip(commit.first..).filter_map(move |(event, seq)| {
                if !wanted.may_take(event.common) || seq <= after || seq > until {
                    return None;
                }
                let event = self.event(commit, agent, event, seq)?;
                wanted.takes(event.common, event.kind).then_some(event)
            })
        })
    }

    #[inline]
    fn event<'a>(&'a self, commit: &CommitHead, agent: &'a str, event: &EventHead, seq: Seq) -> Option<EventRef<'a>> {
        let payload = event.payload as usize;
        let kind = event.common.name().unwrap_or_else(|| {
            let end = payload - BETWEEN;
            text(&self.bytes, end - usize::from(event.kind_len), end)
        });
        Some(EventRef {
            session: commit.session,
            seq,
            time: commit.time,
            call: commit.call,
            agent,
            kind,
            version: event.version,
            payload: self.bytes.get(payload..payload + event.length as usize)?,
            common: event.common,
        })
    }

    /// The position of the last event that is whole, and its time; none in an empty batch.
    pub(crate) fn reached(&self, until: Seq) -> Option<(Seq, Timestamp)> {
        let after = self.commits.partition_point(|commit| commit.first <= until);
        let commit = self.commits.get(after.checked_sub(1)?)?;
        let count = commit.events.len() as u64;
        (count > 0).then(|| ((commit.first + count - 1).min(until), commit.time))
    }

    /// The named commits in order, with their first and last positions.
    pub(super) fn named(&self) -> impl Iterator<Item = (CommitId, Seq, Seq)> {
        self.commits.iter().filter_map(|commit| Some((commit.id?, commit.first, commit.last)))
    }
}

/// A text that was found to be one when the batch was read.
#[inline]
fn text(bytes: &[u8], start: usize, end: usize) -> &str {
    if start == end {
        return "";
    }
    bytes.get(start..end).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

/// A batch is far smaller than 4 GiB: one commit has 32 MiB at most.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
