//! The sessions of a cluster, with the heads that their writers last published.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Mutex;

use async_nats::jetstream::kv;
use bytes::Bytes;

use super::cluster::{Cluster, subject_of};
use crate::engine::SessionId;
use crate::engine::lock::lock;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::session_index::SessionIndex;
use crate::engine::store::{EventStore, LocalStore, Result, SessionEntry, SessionQuery, SessionTotals};

/// The list of sessions, in a bucket of the cluster. The heads in it lag.
pub(super) struct Catalogue {
    cluster: Cluster,
    bucket: kv::Store,
    known: Mutex<SessionList>,
    /// The last position read from the bucket.
    read_to: tokio::sync::Mutex<u64>,
    moved: Mutex<MovedSessions>,
}

#[derive(Default)]
struct SessionList {
    sessions: BTreeMap<SessionId, KnownSession>,
    index: SessionIndex,
    /// Number of events in them.
    events: u64,
}

/// A session's state in the bucket.
struct KnownSession {
    revision: u64,
    /// Its entry, and the stream position of its first message. `None` once it is removed.
    there: Option<(u64, SessionEntry)>,
}

/// Sessions with heads that this process has not published yet.
#[derive(Default)]
struct MovedSessions {
    sessions: BTreeSet<SessionId>,
    /// The session that was published last; the following ids are next.
    told: Option<SessionId>,
}

impl MovedSessions {
    fn next(&mut self) -> Option<SessionId> {
        let after = self.told.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.sessions.range((after, Bound::Unbounded)).next().or_else(|| self.sessions.first()).copied()?;
        self.sessions.remove(&next);
        self.told = Some(next);
        Some(next)
    }
}

impl Catalogue {
    pub(super) async fn open(cluster: &Cluster) -> Result<Self> {
        let bucket = cluster.bucket("sessions", "Foldspace sessions: their first events and last positions").await?;
        let (known, read_to, moved) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { cluster: cluster.clone(), bucket, known, read_to, moved })
    }

    /// Reads new entries of the bucket, up to the leader's last one. Fails with the reason to retry.
    pub(super) async fn look(&self) -> Result<(), String> {
        let mut read_to = self.read_to.lock().await;
        let (keys, stream) = (format!("{}>", self.bucket.prefix), &self.bucket.stream);
        let (newest, _) = self.cluster.newest(stream, &keys).await.map_err(|error| error.to_string())?;
        while *read_to < newest {
            let batch = self.cluster.messages_from(&self.bucket.stream_name, &keys, *read_to + 1).await?;
            *read_to = batch.last().ok_or("a replica is behind")?.0;
            for (at, message) in &batch {
                if let Some(key) = subject_of(message).and_then(|subject| subject.strip_prefix(&self.bucket.prefix)) {
                    lock(&self.known).note(key, *at, &message.payload);
                }
            }
        }
        Ok(())
    }

    /// Adds a new session, with the stream position of its first message.
    pub(super) async fn add(&self, local: &LocalStore, session: SessionId, begun: u64) -> Result<()> {
        let Some(entry) = local.entry(session)? else { return Ok(()) };
        let put = self.bucket.put(session.to_string(), encoded(begun, &entry)?).await;
        let revision = put.map_err(|error| self.failed(&error))?;
        lock(&self.known).set(session, KnownSession { revision, there: Some((begun, entry)) });
        Ok(())
    }

    pub(super) async fn remove(&self, session: SessionId) -> Result<()> {
        lock(&self.moved).sessions.remove(&session);
        let put = self.bucket.put(session.to_string(), Bytes::new()).await;
        let revision = put.map_err(|error| self.failed(&error))?;
        lock(&self.known).set(session, KnownSession { revision, there: None });
        Ok(())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> crate::engine::store::StoreError {
        self.cluster.failed(format!("did not change its list of sessions: {error}"))
    }

    /// Records that a session has a new head.
    pub(super) fn moved(&self, session: SessionId) {
        lock(&self.moved).sessions.insert(session);
    }

    /// Publishes the heads of at most `most` sessions that have moved.
    pub(super) async fn tell_moved(&self, local: &LocalStore, most: usize) {
        let count = lock(&self.moved).sessions.len().min(most);
        if count == 0 {
            return;
        }
        // Another host may have removed one of them.
        if let Err(why) = self.look().await {
            tracing::debug!(why, "publishing heads without an up-to-date list of sessions");
        }
        for _ in 0..count {
            let Some(session) = lock(&self.moved).next() else { return };
            if let Err(error) = self.tell(local, session).await {
                tracing::debug!(%error, "failed to publish the head of a session; retrying later");
                self.moved(session);
            }
        }
    }

    async fn tell(&self, local: &LocalStore, session: SessionId) -> Result<()> {
        let known = {
            let known = lock(&self.known);
            known.sessions.get(&session).map(|known| (known.revision, known.there.as_ref().map(|(at, _)| *at)))
        };
        let (revision, begun) = match known {
            Some((revision, Some(begun))) => (revision, begun),
            Some((_, None)) => return Ok(()),
            // The process that created it did not list it.
            None => return self.add(local, session, self.cluster.begin_of(session).await?).await,
        };
        let Some(entry) = local.entry(session)? else { return Ok(()) };
        let value = encoded(begun, &entry)?;
        // If another host was faster, its newer entry stands.
        if let Ok(revision) = self.bucket.update(session.to_string(), value, revision).await {
            lock(&self.known).set(session, KnownSession { revision, there: Some((begun, entry)) });
        }
        Ok(())
    }

    /// Returns the known sessions that a query selects.
    pub(super) fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        let known = lock(&self.known);
        let ids = known.index.select(query, limit, &|_| true)?;
        let entry = |id| Some(known.sessions.get(id)?.there.as_ref()?.1.clone());
        Ok(ids.iter().filter_map(entry).collect())
    }

    pub(super) fn totals(&self) -> SessionTotals {
        let known = lock(&self.known);
        SessionTotals { sessions: known.index.len(), events: known.events }
    }
}

fn encoded(begun: u64, entry: &SessionEntry) -> Result<Bytes> {
    let mut value = begun.to_le_bytes().to_vec();
    value.extend(CatalogueRow::of(entry.clone()).encode()?);
    Ok(value.into())
}

impl SessionList {
    fn set(&mut self, session: SessionId, new: KnownSession) {
        let old = self.sessions.get(&session);
        if old.is_some_and(|old| old.revision >= new.revision) {
            return;
        }
        let old = old.and_then(|old| old.there.as_ref());
        self.events -= old.map_or(0, |(_, entry)| entry.own_events());
        self.events += new.there.as_ref().map_or(0, |(_, entry)| entry.own_events());
        match &new.there {
            None => self.index.remove(session),
            // Only its head has moved.
            Some((begun, entry)) if old.is_some_and(|old| (old.0, &old.1.origin) == (*begun, &entry.origin)) => {}
            Some((begun, entry)) => self.index.add(session, &entry.origin, *begun),
        }
        self.sessions.insert(session, new);
    }

    fn note(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Ok(session) = key.parse() else { return };
        let read = || {
            let (begun, row) = value.split_first_chunk()?;
            Some((u64::from_le_bytes(*begun), CatalogueRow::decode(row)?.entry))
        };
        let there = read();
        if there.is_none() && !value.is_empty() {
            // The writer's next entry will replace it.
            tracing::warn!(%session, revision, "skipping an invalid entry of the list of sessions");
            return;
        }
        self.set(session, KnownSession { revision, there });
    }
}
