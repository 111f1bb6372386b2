//! The in-memory store: the simple reference for tests of the other stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::session_index::SessionIndex;
use super::{
    Committed, EventBatch, EventStore, Pending, Result, SessionEntry, SessionQuery, Snapshot, StoreError,
    check_expected,
};
use crate::engine::bus::Bus;
use crate::engine::{Commit, CommitId, CommitView, Digest, Expected, ForkPoint, Recorded, Seq, SessionId, lock};

/// A simple store in memory.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{EventStore, MemoryStore};
/// assert!(MemoryStore::default().entries().unwrap().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    held: Mutex<StoredSession>,
    bus: Arc<Bus>,
}

#[derive(Debug, Default)]
struct StoredSession {
    sessions: BTreeMap<SessionId, Vec<Recorded>>,
    index: SessionIndex,
    last_begun: u64,
    named: BTreeMap<(SessionId, CommitId), Committed>,
    contents: BTreeMap<Digest, Bytes>,
    snapshots: BTreeMap<(SessionId, Seq), Snapshot>,
    /// Fork points, also of removed sessions.
    bases: BTreeMap<SessionId, ForkPoint>,
    /// Removed sessions that have children.
    buried: BTreeMap<SessionId, Vec<Recorded>>,
}

impl StoredSession {
    fn keep(&mut self, commit: Commit) {
        self.contents.extend(commit.contents.into_iter().map(|content| (content.digest, content.bytes)));
        for list in commit.lists {
            let chunks = list.chunks.iter().filter_map(|chunk| self.contents.get(chunk));
            let whole: Vec<u8> = chunks.flatten().copied().collect();
            self.contents.insert(list.digest, whole.into());
        }
    }

    fn has_children(&self, session: SessionId) -> bool {
        self.bases.values().any(|base| base.session == session)
    }

    fn past(&self, child: SessionId, base: ForkPoint) -> Result<Vec<Recorded>> {
        let parent = self.sessions.get(&base.session).ok_or(StoreError::NoSession(base.session))?;
        let count = usize::try_from(base.seq).unwrap_or(usize::MAX);
        let Some(past) = parent.get(..count).filter(|past| !past.is_empty()) else {
            let actual = parent.len() as u64;
            return Err(StoreError::Conflict { session: base.session, expected: base.seq, actual });
        };
        Ok(past.iter().map(|event| Recorded { session: child, ..event.clone() }).collect())
    }
}

impl EventStore for MemoryStore {
    fn submit(&self, commit: Commit) -> Result<Pending> {
        commit.validate()?;
        let mut held = lock(&self.held);
        let session = commit.session;
        if commit.keeps_only() {
            held.keep(commit);
            return Ok(Pending::done(Committed { first: 0, last: 0, repeated: false }));
        }
        if let Some(earlier) = commit.id.and_then(|id| held.named.get(&(session, id))) {
            let committed = Committed { repeated: true, ..*earlier };
            return Ok(Pending::done(committed));
        }
        if held.buried.contains_key(&session) {
            let exactly = matches!(commit.expected, Expected::Exactly(_));
            return Err(if exactly { StoreError::NoSession(session) } else { StoreError::Buried(session) });
        }
        let events = held.sessions.get(&session);
        let actual = events.map_or(0, |events| events.len() as u64);
        check_expected(&commit, actual)?;
        let mut last = events.and_then(|events| events.last()).map(|last| last.time);
        let mut past = Vec::new();
        if let Expected::ForkOf(base) = commit.expected {
            past = held.past(session, base)?;
            last = past.last().map(|last| last.time);
            held.bases.insert(session, base);
        }
        let time = last.map_or(commit.time, |last| last.max(commit.time));
        let mut encoded = Vec::new();
        commit.encode(actual + past.len() as u64 + 1, time, &mut encoded);
        let view = CommitView::parse(&encoded).map_err(|e| StoreError::Index(e.to_string()))?;
        let added: Vec<Recorded> = view.events().map_while(Result::ok).map(|event| event.to_recorded()).collect();
        if actual == 0
            && let Some(origin) = added.first()
        {
            held.last_begun += 1;
            let begun = held.last_begun;
            held.index.add(session, origin, begun);
        }
        let committed = Committed { first: view.first, last: view.last(), repeated: false };
        let id = commit.id;
        held.keep(commit);
        held.sessions.entry(session).or_default().extend(past.into_iter().chain(added.iter().cloned()));
        if let Some(id) = id {
            held.named.insert((session, id), committed);
        }
        drop(held);
        if self.bus.wanted(session) {
            self.bus.publish(session, Arc::from(added));
        }
        Ok(Pending::done(committed))
    }

    fn head(&self, session: SessionId) -> Result<Seq> {
        lock(&self.held).sessions.get(&session).map(|events| events.len() as u64).ok_or(StoreError::NoSession(session))
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>> {
        let held = lock(&self.held);
        Ok(held.sessions.get(&session).and_then(|events| held.entry(events)))
    }

    fn entries(&self) -> Result<Vec<SessionEntry>> {
        self.select(SessionQuery::After(None), usize::MAX)
    }

    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        let held = lock(&self.held);
        let ids = held.index.select(query, limit, &|_| true)?;
        Ok(ids.iter().filter_map(|id| held.entry(held.sessions.get(id)?)).collect())
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        let held = lock(&self.held);
        let events = held.sessions.get(&session).ok_or(StoreError::NoSession(session))?;
        let skip = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let mut room = bytes.max(1);
        let fits = |event: &&Recorded| {
            let fits = room > 0 && event.seq <= until;
            room = room.saturating_sub(event.event.bytes.len() + 64);
            fits
        };
        let chosen: Vec<Recorded> = events.iter().skip(skip).take_while(fits).cloned().collect();
        EventBatch::of(&chosen)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes> {
        lock(&self.held).contents.get(digest).cloned().ok_or(StoreError::NoContent(*digest))
    }

    fn has_content(&self, digest: &Digest) -> Result<bool> {
        Ok(lock(&self.held).contents.contains_key(digest))
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        let held = lock(&self.held);
        let (mut session, mut seq) = (session, seq);
        loop {
            let found = held.snapshots.range((session, 0)..=(session, seq)).next_back();
            let (None, Some(base)) = (found, held.bases.get(&session)) else {
                return Ok(found.map(|(_, snapshot)| snapshot.clone()));
            };
            (session, seq) = (base.session, seq.min(base.seq));
        }
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        let held = lock(&self.held);
        Ok(held.snapshots.range((session, 0)..=(session, Seq::MAX)).map(|((_, seq), _)| *seq).collect())
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        let bytes = snapshot.slices.iter().flat_map(|slice| &slice.blocks).map(|block| block.len() as u64).sum();
        lock(&self.held).snapshots.insert((snapshot.session, snapshot.seq), snapshot.clone());
        Ok(bytes)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        lock(&self.held).snapshots.remove(&(session, seq));
        Ok(())
    }

    fn remove(&self, session: SessionId) -> Result<()> {
        let mut held = lock(&self.held);
        let events = held.sessions.remove(&session).ok_or(StoreError::NoSession(session))?;
        held.named.retain(|(of, _), _| *of != session);
        held.buried.insert(session, events);
        held.index.remove(session);
        let mut next = Some(session);
        while let Some(session) = next.filter(|session| !held.has_children(*session)) {
            held.buried.remove(&session);
            held.snapshots.retain(|(of, _), _| *of != session);
            let parent = held.bases.remove(&session).map(|base| base.session);
            next = parent.filter(|parent| held.buried.contains_key(parent));
        }
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl StoredSession {
    fn entry(&self, events: &[Recorded]) -> Option<SessionEntry> {
        let (id, last) = (events.first()?.session, events.last()?);
        let past = self.bases.get(&id).map_or(0, |base| usize::try_from(base.seq).unwrap_or(usize::MAX));
        let calls = events.iter().filter(|event| event.call == Some(event.seq)).count() as u64;
        let origin = events.get(past)?.clone();
        Some(SessionEntry { id, head: last.seq, updated: last.time, origin, calls: Some(calls) })
    }
}
