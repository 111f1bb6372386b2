//! The sessions of a cluster, with the ends that their writers last told.

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

/// The sessions that there are, in a bucket of the cluster. The end of one is told late.
pub(super) struct Catalogue {
    cluster: Cluster,
    bucket: kv::Store,
    known: SessionList,
    /// The position in the bucket up to which it is known.
    read_to: tokio::sync::Mutex<u64>,
    moved: Mutex<MovedSessions>,
}

type SessionList = Mutex<BTreeMap<SessionId, KnownSession>>;

/// A session as the bucket has it.
struct KnownSession {
    revision: u64,
    /// Its entry, and the position in the stream at which it begins. None once it is removed.
    there: Option<(u64, SessionEntry)>,
}

/// Sessions of which this process has recorded more than it has told.
#[derive(Default)]
struct MovedSessions {
    sessions: BTreeSet<SessionId>,
    /// The session that was told last: those after it are next.
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
        let bucket = cluster.bucket("sessions", "Sessions of foldspace: their first events and last positions").await?;
        let (known, read_to, moved) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { cluster: cluster.clone(), bucket, known, read_to, moved })
    }

    /// Reads what is new in the bucket, up to what its leader has. Fails with the reason to try again.
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

    /// Takes up a new session, which begins at that position in the stream.
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

    /// Notes that a session has a new end.
    pub(super) fn moved(&self, session: SessionId) {
        lock(&self.moved).sessions.insert(session);
    }

    /// Tells the ends of some sessions that have moved, `most` at most.
    pub(super) async fn tell_moved(&self, local: &LocalStore, most: usize) {
        let count = lock(&self.moved).sessions.len().min(most);
        if count == 0 {
            return;
        }
        // One may have been removed.
        if let Err(why) = self.look().await {
            tracing::debug!(why, "the ends of sessions are told by the list as it is known");
        }
        for _ in 0..count {
            let Some(session) = lock(&self.moved).next() else { return };
            if let Err(error) = self.tell(local, session).await {
                tracing::debug!(%error, "the end of a session is told later");
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
            // Who has begun it told nobody.
            None => return self.add(local, session, self.cluster.begin_of(session).await?).await,
        };
        let Some(entry) = local.entry(session)? else { return Ok(()) };
        let value = encoded(begun, &entry)?;
        // Another one's newer word counts.
        if let Ok(revision) = self.bucket.update(session.to_string(), value, revision).await {
            set(&self.known, session, KnownSession { revision, there: Some((begun, entry)) });
        }
        Ok(())
    }

    /// Returns the entries as they are known, with the positions in the stream at which the sessions begin.
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
        // Its writer's next word is read.
        tracing::warn!(%session, revision, "an entry of the list of sessions makes no sense, and is passed over");
        return;
    }
    set(known, session, KnownSession { revision, there });
}
