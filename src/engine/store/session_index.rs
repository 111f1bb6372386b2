//! An index of sessions by id, name, parent and order of creation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Result, SessionEntry, StoreError};
use crate::engine::event::SessionStarted;
use crate::engine::{SessionId, Timestamp};

/// A selection of a store's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionQuery<'a> {
    /// Sessions with that name, oldest first. There is more than one only if two hosts took the name at the same time.
    Named(&'a str),
    /// Sessions with ids that begin with these lowercase hexadecimal digits, in order of ids.
    IdPrefix(&'a str),
    /// Sessions created after that session, oldest first; all for `None`. Fails with [`StoreError::NoSession`].
    After(Option<SessionId>),
    /// Children of a session, oldest first.
    ChildrenOf(SessionId),
    /// Sessions with the closest names in alphabetical order: half of the limit before that name, half from it on.
    NamedNear(&'a str),
}

/// The size of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Number of sessions.
    pub sessions: u64,
    /// Number of events. The inherited events of forks are not counted.
    pub events: u64,
}

/// An index of sessions. It may list a session that is not visible yet.
#[derive(Debug, Default)]
pub(super) struct SessionIndex {
    ids: BTreeMap<SessionId, ListedSession>,
    created: BTreeSet<(CreationOrder, SessionId)>,
    names: BTreeSet<(Arc<str>, SessionId)>,
    children: BTreeSet<(SessionId, SessionId)>,
}

/// The time of a session's first event, and that event's place among others of that time.
type CreationOrder = (Timestamp, u64);

#[derive(Debug)]
struct ListedSession {
    created: CreationOrder,
    name: Arc<str>,
    parent: Option<SessionId>,
}

impl SessionIndex {
    /// Adds a session, given its first event and that event's place in the store.
    pub(super) fn add(&mut self, id: SessionId, origin: &crate::engine::Recorded, place: u64) {
        self.remove(id);
        let started = origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
        let parent = started.as_ref().and_then(|started| Some(started.origin.as_ref()?.parent));
        let name: Arc<str> = started.map_or_else(|| id.short(), |started| started.name).into();
        let created = (origin.time, place);
        self.created.insert((created, id));
        self.names.insert((Arc::clone(&name), id));
        self.children.extend(parent.map(|parent| (parent, id)));
        self.ids.insert(id, ListedSession { created, name, parent });
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        if let Some(ListedSession { created, name, parent }) = self.ids.remove(&id) {
            self.created.remove(&(created, id));
            self.names.remove(&(name, id));
            parent.map(|parent| self.children.remove(&(parent, id)));
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Returns the first `limit` sessions that a query selects, of the visible ones.
    pub(super) fn select(
        &self,
        query: SessionQuery<'_>,
        limit: usize,
        is_visible: &dyn Fn(SessionId) -> bool,
    ) -> Result<Vec<SessionId>> {
        let first = |ids: &mut dyn Iterator<Item = SessionId>| ids.filter(|id| is_visible(*id)).take(limit).collect();
        let oldest = |ids: &mut dyn Iterator<Item = SessionId>| {
            let mut ids: Vec<_> = ids.collect();
            ids.sort_by_key(|id| self.ids.get(id).map(|listed| listed.created));
            first(&mut ids.into_iter())
        };
        let (least, most) = (SessionId::from_bytes([0; 16]), SessionId::from_bytes([0xff; 16]));
        Ok(match query {
            SessionQuery::Named(name) => {
                let name: Arc<str> = name.into();
                oldest(&mut self.names.range((Arc::clone(&name), least)..=(name, most)).map(|(_, id)| *id))
            }
            SessionQuery::IdPrefix(digits) => match id_range(digits) {
                Some(range) => first(&mut self.ids.range(range).map(|(id, _)| *id)),
                None => Vec::new(),
            },
            SessionQuery::After(after) => {
                let from = match after {
                    Some(id) => Bound::Excluded((self.ids.get(&id).ok_or(StoreError::NoSession(id))?.created, id)),
                    None => Bound::Unbounded,
                };
                first(&mut self.created.range((from, Bound::Unbounded)).map(|(_, id)| *id))
            }
            SessionQuery::ChildrenOf(parent) => {
                oldest(&mut self.children.range((parent, least)..=(parent, most)).map(|(_, id)| *id))
            }
            SessionQuery::NamedNear(name) => {
                let from = (Arc::from(name), least);
                let before = self.names.range(..&from).rev().take(limit / 2);
                first(&mut before.chain(self.names.range(&from..)).map(|(_, id)| *id))
            }
        })
    }
}

/// Returns the range of ids that begin with these digits. `None` if they are not hexadecimal or too many.
fn id_range(digits: &str) -> Option<std::ops::RangeInclusive<SessionId>> {
    let is_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_hex && digits.len() <= 32).then_some(())?;
    Some(format!("{digits:0<32}").parse().ok()?..=format!("{digits:f<32}").parse().ok()?)
}

/// Selects among all entries of a store without an index.
pub(super) fn select_among(
    entries: &[SessionEntry],
    query: SessionQuery<'_>,
    limit: usize,
) -> Result<Vec<SessionEntry>> {
    let mut index = SessionIndex::default();
    (0..).zip(entries).for_each(|(place, entry)| index.add(entry.id, &entry.origin, place));
    let by_id: BTreeMap<SessionId, &SessionEntry> = entries.iter().map(|entry| (entry.id, entry)).collect();
    let ids = index.select(query, limit, &|_| true)?;
    Ok(ids.iter().filter_map(|id| by_id.get(id)).map(|entry| (*entry).clone()).collect())
}

impl SessionEntry {
    /// Returns its name; the beginning of its id if its first event can't be read.
    pub fn name(&self) -> String {
        match self.origin.typed::<SessionStarted>() {
            Some(Ok(started)) => started.event.name,
            _ => self.id.short(),
        }
    }

    /// Counts its own events, without a fork's past.
    pub(super) fn own_events(&self) -> u64 {
        self.head.saturating_sub(self.origin.seq - 1)
    }
}

impl SessionTotals {
    pub(super) fn of(entries: &[SessionEntry]) -> Self {
        Self { sessions: entries.len() as u64, events: entries.iter().map(SessionEntry::own_events).sum() }
    }
}
