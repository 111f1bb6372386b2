//! The sessions of a cluster, with the ends that their writers last told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::kv::{self, Watch};
use bytes::Bytes;
use futures_util::StreamExt;

use super::cluster::Cluster;
use crate::engine::SessionId;
use crate::engine::lock::lock;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::{EventStore, LocalStore, Result, SessionEntry};

const PAUSE: Duration = Duration::from_secs(1);

/// The sessions that there are, in a bucket of the cluster. The end of one is told some seconds late.
pub(super) struct Catalogue {
    cluster: Cluster,
    bucket: kv::Store,
    known: Arc<SessionList>,
    /// Sessions of which this process has recorded more than it has told.
    moved: Mutex<BTreeSet<SessionId>>,
}

type SessionList = Mutex<BTreeMap<SessionId, KnownSession>>;

/// A session as the bucket has it.
struct KnownSession {
    revision: u64,
    /// Its entry, and the position in the stream at which it begins. None once it is removed.
    there: Option<(u64, SessionEntry)>,
}

impl Catalogue {
    /// Reads it, and follows it from then on.
    pub(super) async fn open(cluster: &Cluster) -> Result<Self> {
        let bucket = cluster.bucket("sessions", "Sessions of foldspace: their first events and last positions").await?;
        let failed = |what: &dyn std::fmt::Display| cluster.failed(format!("did not list its sessions: {what}"));
        let known = Arc::<SessionList>::default();
        let status = bucket.status().await.map_err(|error| failed(&error))?;
        let mut watch = bucket.watch_with_history(">").await.map_err(|error| failed(&error))?;
        if status.values() > 0 {
            while let Some(entry) = watch.next().await {
                let entry = entry.map_err(|error| failed(&error))?;
                note(&known, &entry);
                if entry.seen_current {
                    break;
                }
            }
        }
        tokio::spawn(follow(bucket.clone(), watch, Arc::downgrade(&known)));
        Ok(Self { cluster: cluster.clone(), bucket, known, moved: Mutex::default() })
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
        lock(&self.moved).remove(&session);
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
        lock(&self.moved).insert(session);
    }

    /// Tells the ends of the sessions that have moved.
    pub(super) async fn tell_moved(&self, local: &LocalStore) {
        let moved = std::mem::take(&mut *lock(&self.moved));
        for session in moved {
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

    /// Returns the entries, with the positions in the stream at which the sessions begin.
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

fn note(known: &SessionList, entry: &kv::Entry) {
    let Ok(session) = entry.key.parse() else { return };
    let read = || {
        let (begun, row) = entry.value.split_first_chunk()?;
        Some((u64::from_le_bytes(*begun), CatalogueRow::decode(row)?.entry))
    };
    set(known, session, KnownSession { revision: entry.revision, there: read() });
}

/// Follows the bucket until the catalogue is dropped.
async fn follow(bucket: kv::Store, mut watch: Watch, known: std::sync::Weak<SessionList>) {
    loop {
        while let Some(Ok(entry)) = watch.next().await {
            let Some(known) = known.upgrade() else { return };
            note(&known, &entry);
        }
        // Its consumer is gone, as with the server that had it.
        watch = loop {
            tokio::time::sleep(PAUSE).await;
            if known.strong_count() == 0 {
                return;
            }
            if let Ok(watch) = bucket.watch_with_history(">").await {
                break watch;
            }
        };
    }
}
