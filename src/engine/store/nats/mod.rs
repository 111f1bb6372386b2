//! A store on a NATS cluster, shared by several machines.
//!
//! The cluster's stream is the source of truth: one subject per session, one message per commit. Each process has a
//! copy of its sessions in a [local store](LocalStore), and adds a commit to it once the cluster has acknowledged the
//! commit.

mod address;
#[cfg(feature = "replicate")]
mod bucket;
mod catalogue;
mod clocks;
mod cluster;
mod contents;
mod copy;
mod cursors;
mod fsck;
mod health;
mod hosts;
mod identity;
mod lane;
mod lease;
#[cfg(test)]
mod lease_simulation;
mod message;
mod sending;
mod starts;
mod stream_info;
mod waiting;
mod watching;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::object_store::ObjectStore;
use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};

use super::journal::disk::{JournalDisk, OsDisk};
use super::{
    Durability, EventBatch, EventStore, LocalStore, LocalStoreOptions, Pending, Result, SessionEntry, SessionHosts,
    SessionQuery, SessionTotals, Snapshot, StorageUse, StoreError, StoreHost,
};
use crate::engine::bus::Bus;
use crate::engine::commit::Commit;
use crate::engine::lock::lock;
use crate::engine::{Content, Digest, Seq, SessionId, SystemClock, Timestamp};

pub use address::{AddressError, NatsAddress};
use catalogue::Catalogue;
use cluster::Cluster;
pub use fsck::StreamProblem;
pub use health::{ReplicaHealth, StreamHealth};
use hosts::{Hosts, NatsHosts};
use lane::Lane;
use waiting::Waiting;

/// Threads that send and receive.
const THREADS: usize = 2;

/// Options of a store on a NATS cluster.
#[derive(Debug, Clone)]
pub struct NatsStoreOptions {
    /// This host, which announces itself to [claim](SessionHosts::claim) sessions. `None` for a store that claims no
    /// sessions.
    pub host: Option<StoreHost>,
    /// Maximum silence of a host before it is declared dead; 2 s by default.
    pub lease: Duration,
    /// Time to wait for a cluster without a leader or connection before a commit fails; 60 s by default.
    pub patience: Duration,
    /// Minimum events between two snapshots of a session on the cluster, which other hosts start their copies at;
    /// 1,536 by default. Large snapshots are sent less often: at least one event per hundred bytes.
    pub snapshot_every: u64,
}

impl Default for NatsStoreOptions {
    fn default() -> Self {
        Self { host: None, lease: Duration::from_secs(2), patience: Duration::from_secs(60), snapshot_every: 1536 }
    }
}

/// A store on a NATS cluster with JetStream. Several processes, on several machines, may have it open.
///
/// It guarantees everything that an [`EventStore`] does, and:
/// - A commit is acknowledged once most replicas of the stream have it; on their disks, if the servers have
///   `sync_interval: always`.
/// - If two processes extend a session at the same time, one succeeds. The other records after it, or fails with
///   [`StoreError::Conflict`] if its commit expects a position.
/// - While the cluster has no leader, commits wait. A commit that waits longer than the store's patience fails with
///   [`StoreError::Cluster`], and may or may not be recorded: a retry with the same id finds out.
/// - [`entries`](EventStore::entries) lists the sessions of all machines. Heads of sessions written by other hosts may
///   lag: each host publishes five heads every 5 s. All other reads of a session are current; for a session that this
///   host has claimed, they include everything that hosts have recorded.
/// - The directory is a copy, which can be deleted.
pub struct NatsStore {
    inner: Arc<NatsInner>,
    hosts: Option<NatsHosts>,
    /// `None` once the store is closed.
    runtime: Option<Runtime>,
}

struct NatsInner {
    cluster: Cluster,
    local: LocalStore,
    waiting: Waiting,
    catalogue: Catalogue,
    hosts: Option<Hosts>,
    snapshots: ObjectStore,
    snapshot_every: u64,
    lanes: Mutex<BTreeMap<SessionId, Arc<Lane>>>,
    /// Lanes for the pasts of sessions that the local copy started late.
    pasts: Mutex<BTreeMap<SessionId, Arc<Lane>>>,
    /// True while the cluster does not answer and this host has released its sessions.
    is_silent: AtomicBool,
    clock: SystemClock,
}

impl NatsStore {
    /// Opens the store, with the copy in a directory, and creates missing streams.
    ///
    /// # Errors
    /// [`StoreError::Cluster`] if the cluster can't be reached, is too old, or has streams with another configuration.
    /// Otherwise like [`LocalStore::open`].
    pub fn open(address: &NatsAddress, directory: impl AsRef<Path>, options: NatsStoreOptions) -> Result<Self> {
        let directory = directory.as_ref();
        let copy = LocalStoreOptions { durability: Durability::Buffered, ..LocalStoreOptions::default() };
        let local = LocalStore::open(directory, copy)?;
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("foldspace-nats").enable_all();
        let runtime = runtime.build().map_err(StoreError::io("start threads for", directory))?;
        let (address, asked) = (address.clone(), options.clone());
        let opened = wait_for(runtime.handle(), async move { NatsInner::open(&address, local, &asked).await });
        let inner = match opened {
            Ok(inner) => Arc::new(inner),
            Err(error) => {
                // The caller may be on a thread that must not block until its end.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        runtime.spawn(watching::follow(Arc::downgrade(&inner)));
        runtime.spawn(watching::tell_moved(Arc::downgrade(&inner)));
        runtime.spawn(hosts::speak(Arc::downgrade(&inner)));
        runtime.spawn(clocks::watch(Arc::downgrade(&inner)));
        let threads = runtime.handle().clone();
        let hosts = options.host.map(|own| NatsHosts { inner: Arc::clone(&inner), runtime: threads, own });
        Ok(Self { inner, hosts, runtime: Some(runtime) })
    }

    /// Returns the local copy.
    pub fn local(&self) -> &LocalStore {
        &self.inner.local
    }

    /// Runs a future on the store's threads, and blocks for the result.
    fn wait_for<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        wait_for(self.runtime.as_ref().ok_or(StoreError::Unsettled)?.handle(), work)
    }

    /// Updates the local copy of a session, unless only this process extends it.
    fn refresh(&self, session: SessionId) -> Result<()> {
        let lane = self.inner.lane(session);
        if lane.is_fresh() {
            return Ok(());
        }
        self.inner.check_answers()?;
        let inner = Arc::clone(&self.inner);
        self.wait_for(async move {
            let mut cursor = lane.cursor.lock().await;
            inner.catch_up(&lane, &mut cursor).await.map(drop)
        })
    }
}

/// Runs a future on the store's threads, and blocks for the result.
fn wait_for<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    runtime.spawn(async move { drop(sender.send(work.await)) });
    receiver.recv().unwrap_or(Err(StoreError::Unsettled))
}

/// Replaces a file of the copy.
fn replace(directory: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    OsDisk.create(&new)?.write_all_at(bytes, 0)?;
    OsDisk.rename(&new, &directory.join(name))
}

impl NatsInner {
    async fn open(address: &NatsAddress, local: LocalStore, options: &NatsStoreOptions) -> Result<Self> {
        let name = options.host.as_ref().map_or("", |host| &host.name);
        let cluster = Cluster::connect(address, name, options.patience).await?;
        let waiting = Waiting::for_cluster(cluster.clone(), options.patience);
        if options.host.is_some() {
            clocks::check(&cluster, &waiting).await?;
        }
        let catalogue = Catalogue::open(&cluster).await?;
        let snapshots = cluster.objects("snapshots", "Foldspace snapshots: the latest of each long session").await?;
        let hosts = match &options.host {
            Some(host) => Some(Hosts::join(&cluster, &waiting, local.directory(), host, options).await?),
            None => None,
        };
        let lanes = cursors::load(&local).into_iter();
        let lanes = lanes.map(|(session, at)| (session, Arc::new(Lane::of(session, Some(at)))));
        let (lanes, clock) = (Mutex::new(lanes.collect()), SystemClock::default());
        let (pasts, is_silent, snapshot_every) = (Mutex::default(), AtomicBool::default(), options.snapshot_every);
        Ok(Self {
            cluster,
            local,
            waiting,
            catalogue,
            hosts,
            snapshots,
            snapshot_every,
            lanes,
            pasts,
            is_silent,
            clock,
        })
    }

    fn lane(&self, session: SessionId) -> Arc<Lane> {
        Arc::clone(lock(&self.lanes).entry(session).or_insert_with(|| Arc::new(Lane::of(session, None))))
    }

    fn past_lane(&self, session: SessionId) -> Arc<Lane> {
        Arc::clone(lock(&self.pasts).entry(session).or_insert_with(|| Arc::new(Lane::of_past(session))))
    }

    /// Stores a content in the local copy.
    fn keep_here(&self, content: Content) {
        let mut commit = Commit::new(SessionId::from_bytes([0; 16]), Timestamp(0));
        commit.keep(content);
        if let Err(error) = self.local.submit(commit) {
            tracing::debug!(%error, "failed to store a content of the cluster locally");
        }
    }

    /// Fails while the cluster does not answer this host, so that status requests and cancellations do not hang.
    fn check_answers(&self) -> Result<()> {
        if self.is_silent.load(Ordering::Acquire) {
            return Err(self.cluster.failed("does not answer".to_owned()));
        }
        Ok(())
    }

    /// Updates the list of sessions.
    async fn look(&self) -> Result<()> {
        let attempt = async || {
            self.check_answers()?;
            let looked = self.catalogue.look().await;
            Ok(looked.inspect_err(|why| tracing::debug!(why, "retrying to read the list of sessions")).ok())
        };
        self.waiting.until_settled("list its sessions", attempt).await
    }

    fn lanes(&self) -> Vec<Arc<Lane>> {
        lock(&self.lanes).values().cloned().collect()
    }
}

impl EventStore for NatsStore {
    fn submit(&self, commit: Commit) -> Result<Pending> {
        commit.validate()?;
        let runtime = self.runtime.as_ref().ok_or(StoreError::Unsettled)?;
        let lane = self.inner.lane(commit.session);
        let (pending, begins) = lane.push(commit)?;
        if begins {
            runtime.spawn(Arc::clone(&self.inner).send_all(lane));
        }
        Ok(pending)
    }

    fn head(&self, session: SessionId) -> Result<Seq> {
        self.refresh(session)?;
        self.inner.local.head(session)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>> {
        self.refresh(session)?;
        self.inner.local.entry(session)
    }

    fn entries(&self) -> Result<Vec<SessionEntry>> {
        self.select(SessionQuery::After(None), usize::MAX)
    }

    fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionEntry>> {
        // If the session with a known name still exists, the list need not be read.
        if let SessionQuery::Named(_) = query
            && let [known] = &self.inner.catalogue.select(query, limit)?[..]
            && let Some(entry) = self.entry(known.id)?
        {
            return Ok(vec![entry]);
        }
        let inner = Arc::clone(&self.inner);
        self.wait_for(async move { inner.look().await })?;
        let mut entries = self.inner.catalogue.select(query, limit)?;
        for known in &mut entries {
            if let Some(entry) = self.inner.local.entry(known.id)?.filter(|entry| entry.head >= known.head) {
                *known = entry;
            }
        }
        Ok(entries)
    }

    fn totals(&self) -> Result<SessionTotals> {
        Ok(self.inner.catalogue.totals())
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch> {
        if !self.inner.local.head(session).is_ok_and(|head| head >= until) {
            self.refresh(session)?;
        }
        match self.inner.local.read(session, from, until, bytes) {
            Err(StoreError::NotHere { .. }) => {}
            other => return other,
        }
        let inner = Arc::clone(&self.inner);
        self.wait_for(async move { inner.fill(session, from).await })?;
        self.inner.local.read(session, from, until, bytes)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes> {
        match self.inner.local.content(digest) {
            Err(StoreError::NoContent(_)) => {}
            other => return other,
        }
        let (inner, digest) = (Arc::clone(&self.inner), *digest);
        self.wait_for(async move {
            let bytes = contents::get(&inner.cluster, &digest, &inner.waiting).await?;
            inner.keep_here(Content { digest, bytes: bytes.clone() });
            Ok(bytes)
        })
    }

    fn read_ahead(&self, digests: &[Digest]) {
        let is_there = |digest: &&Digest| !self.inner.local.has_content(digest).unwrap_or(true);
        let wanted: Vec<Digest> = digests.iter().filter(is_there).copied().collect();
        if wanted.len() > 1 {
            let inner = Arc::clone(&self.inner);
            let read = self.wait_for(async move {
                let read = contents::get_many(&inner.cluster, &wanted, |content| inner.keep_here(content)).await;
                read.map_err(|what| inner.cluster.failed(format!("did not return contents: {what}")))
            });
            if let Err(error) = read {
                tracing::debug!(%error, "failed to prefetch contents; reading them one by one");
            }
        }
    }

    fn has_content(&self, digest: &Digest) -> Result<bool> {
        if self.inner.local.has_content(digest)? {
            return Ok(true);
        }
        let (inner, digest) = (Arc::clone(&self.inner), *digest);
        self.wait_for(async move { contents::has(&inner.cluster, &digest, &inner.waiting).await })
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        self.inner.local.snapshot(session, seq)
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        self.inner.local.snapshots(session)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        let kept = self.inner.local.put_snapshot(snapshot)?;
        if let Some(runtime) = &self.runtime {
            runtime.spawn(Arc::clone(&self.inner).offer(snapshot.clone()));
        }
        Ok(kept)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        self.inner.local.drop_snapshot(session, seq)
    }

    fn remove(&self, session: SessionId) -> Result<()> {
        let (inner, lane) = (Arc::clone(&self.inner), self.inner.lane(session));
        self.wait_for(async move { inner.end(&lane).await })
    }

    fn check_own(&self) -> Result<()> {
        self.inner.local.check_own()
    }

    fn hosts(&self) -> Option<&dyn SessionHosts> {
        self.hosts.as_ref().map(|hosts| hosts as &dyn SessionHosts)
    }

    fn bus(&self) -> &Arc<Bus> {
        self.inner.local.bus()
    }

    fn sync(&self) -> Result<()> {
        for last in self.inner.lanes().iter().filter_map(|lane| lane.answers.last()) {
            // The submitter of each commit gets its outcome.
            drop(last.wait());
        }
        self.inner.local.sync()
    }

    fn usage(&self) -> Result<Vec<StorageUse>> {
        self.inner.local.usage()
    }
}

impl Drop for NatsStore {
    fn drop(&mut self) {
        drop(self.sync());
        let inner = Arc::clone(&self.inner);
        let ended = self.wait_for(async move {
            inner.catalogue.tell_moved(&inner.local, usize::MAX).await;
            inner.end_offers().await;
            inner.leave().await;
            Ok(())
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "failed to sign off; other hosts wait for this host's lease to expire");
        }
        cursors::save(&self.inner);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

crate::engine::debug_by!(NatsStore, |store| cluster: store.inner.cluster.name());
