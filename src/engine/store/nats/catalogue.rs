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
use crate::engine::store::{EventStore, LocalStore, Result, SessionEntry};

/// The list of sessions, in a bucket of the cluster. The heads in it lag.
pub(super) struct Catalogue {
    cluster: Cluster,
    bucket: kv::Store,
    known: SessionList,
    /// The last position read from the bucket.
    read_to: tokio::sync::Mutex<u64>,
    moved: Mutex<MovedSessions>,
}

type SessionList = Mutex<BTreeMap<SessionId, KnownSession>>;

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
                    note(&self.known, key, *at, &message.payload);
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
        set(&self.known, session, KnownSession { revision, there: Some((begun, entry)) });
        Ok(())
    }

    pub(super) async fn remove(&self, session: SessionId) -> Result<()> {
        lock(&self.moved).sessions.remove(&session);
        let put = self.bucket.put(session.to_string(), Bytes::new()).await;
        let revision = put.map_err(|error| self.failed(&error))?;
        set(&self.known, session, KnownSession { revision, there: None });
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
        let known =
            lock(&self.known).get(&session).map(|known| (known.revision, known.there.as_ref().map(|(at, _)| *at)));
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
            set(&self.known, session, KnownSession { revision, there: Some((begun, entry)) });
        }
        Ok(())
    }

    /// Returns the known entries, with the stream positions of the sessions' first messages.
    pub(super) fn entries(&self) -> BTreeMap<SessionId, (u64, SessionEntry)> {
        let known = lock(&self.known);
        known.iter().filter_map(|(session, known)| Some((*session, known.there.clone()?))).collect()
    }
}

fn encoded(begun: u64, entry: &SessionEntry) -> Result<Bytes> {
    let mut value = begun.to_le_bytes().to_vec();
    value.extend(CatalogueRow::of(entry.clone()).encode()?);
    Ok(value.into())
}

fn set(known: &SessionList, session: SessionId, new: KnownSession) {
    let mut known = lock(known);
    if known.get(&session).is_none_or(|known| known.revision < new.revision) {
        known.insert(session, new);
    }
}

fn note(known: &SessionList, key: &str, revision: u64, value: &[u8]) {
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
    set(known, session, KnownSession { revision, there });
}
