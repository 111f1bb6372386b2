//! This host's membership in the cluster: heartbeats and session claims.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_nats::jetstream::kv;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::identity::{DirectoryLine, fresh};
use super::lane::Lane;
use super::lease::{HostRun, Leases, Moment, OwnBeats};
use super::waiting::Waiting;
use super::{NatsInner, NatsStoreOptions, wait_for};
use crate::engine::commit::Commit;
use crate::engine::event::{Event, SessionTaken};
use crate::engine::lock::lock;
use crate::engine::store::{HostFigures, Result, SessionClaim, SessionHosts, StoreError, StoreHost};
use crate::engine::{Clock, SessionId};

/// Heartbeats per lease.
const WORDS: u32 = 3;
/// Leases without an answer before a host releases its sessions. More than one, because the election of a cluster
/// leader takes longer than a lease.
const SILENCES: u32 = 5;
/// Time limit for sign-offs, which are optional.
const LAST: Duration = Duration::from_secs(2);

const REPLACED: &str = "has another process with this host's name or identity; restart this host";

/// A host's heartbeat on the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HostWords {
    /// Unique for each start of its process.
    run: String,
    /// Unique for each heartbeat. Empty from an earlier version.
    #[serde(default)]
    beat: String,
    at: Option<String>,
}

/// The ownership of a session on the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Ownership {
    #[serde(flatten)]
    owner: HostRun,
    epoch: u64,
    /// True once the host has released the session.
    is_released: bool,
    /// True unless another host had the session before, and this host still lacks its files.
    is_ready: bool,
}

type TellLoss = Box<dyn Fn(SessionId) + Send + Sync>;

/// This host.
pub(super) struct Hosts {
    at: Option<String>,
    me: HostRun,
    lease: Duration,
    line: DirectoryLine,
    words: kv::Store,
    owners: kv::Store,
    leases: Mutex<Leases>,
    sent: tokio::sync::Mutex<OwnBeats>,
    on_loss: Mutex<Option<TellLoss>>,
    /// True once another process sends heartbeats as this host.
    is_replaced: AtomicBool,
    takeovers: AtomicU64,
    lost: AtomicU64,
}

fn now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

impl Hosts {
    /// Sends this host's first heartbeat. Waits until an earlier process with its name is gone.
    pub(super) async fn join(
        cluster: &Cluster,
        waiting: &Waiting,
        directory: &Path,
        own: &StoreHost,
        options: &NatsStoreOptions,
    ) -> Result<Self> {
        let words = cluster.bucket("hosts", "Foldspace hosts: their last heartbeats").await?;
        let owners = cluster.bucket("owners", "Foldspace sessions: the hosts that own them").await?;
        let line = DirectoryLine::begin(cluster, waiting, &words, directory).await?;
        let (me, lease) = (HostRun { host: own.name.clone(), run: line.run() }, options.lease);
        let leases = Mutex::new(Leases::of(lease, now()));
        let (sent, on_loss) = (tokio::sync::Mutex::default(), Mutex::default());
        let (is_replaced, takeovers, lost) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let at = own.at.clone();
        let hosts = Self { at, me, lease, line, words, owners, leases, sent, on_loss, is_replaced, takeovers, lost };
        let (begun, mut first) = (now(), None);
        loop {
            let read = || async { Ok(cluster.value_of::<HostWords>(&hosts.words, &hosts.me.host).await.ok()) };
            let (revision, said) = waiting.until_settled("return the last heartbeat of a host", read).await?;
            let is_other = said.is_some_and(|said| !hosts.line.has(&said.run));
            let waited = now() - begun;
            if is_other && *first.get_or_insert(revision) != revision {
                let host = &hosts.me.host;
                let what = format!("already has a host {host}, in another process; choose another host name");
                return Err(cluster.failed(what));
            }
            hosts.sent.lock().await.revision = revision;
            if (!is_other || waited >= lease) && hosts.speak().await {
                return Ok(hosts);
            }
            if waited >= lease + options.patience {
                return Err(cluster.failed("did not accept this host's first heartbeat".to_owned()));
            }
            tokio::time::sleep(lease / WORDS / 2).await;
        }
    }

    /// Sends a heartbeat. Returns false if the cluster did not accept it.
    async fn speak(&self) -> bool {
        let mut own = self.sent.lock().await;
        let sent = now();
        let words = HostWords { run: self.me.run.clone(), beat: own.beat(fresh), at: self.at.clone() };
        let words = serde_json::to_vec(&words).unwrap_or_default();
        let update = self.words.update(&self.me.host, words.into(), own.revision);
        match tokio::time::timeout(self.lease / 2, update).await {
            Ok(Ok(revision)) => {
                own.accepted(revision);
                lock(&self.leases).said(sent, now());
                true
            }
            _ => false,
        }
    }

    /// Checks if an unanswered heartbeat was accepted. Returns false if another process has replaced it.
    async fn look_at_own(&self, cluster: &Cluster) -> bool {
        let look = cluster.value_of::<HostWords>(&self.words, &self.me.host);
        match tokio::time::timeout(self.lease / 2, look).await {
            Ok(Ok((revision, Some(said)))) => {
                let is_clone = said.run == self.me.run;
                let is_own = is_clone && self.sent.lock().await.is_own(revision, &said.beat);
                if is_clone && !is_own {
                    self.line.set_cloned();
                }
                is_own
            }
            Ok(Ok((revision, None))) => {
                self.sent.lock().await.revision = revision;
                true
            }
            _ => true,
        }
    }

    fn is_held(&self) -> bool {
        lock(&self.leases).is_held(now())
    }

    /// Checks that the owner of a session is gone. While it may be alive, returns its URL as the inner error.
    async fn gone(&self, cluster: &Cluster, owner: &HostRun) -> Result<Result<(), Option<String>>> {
        if self.line.has(&owner.run) {
            return Ok(Ok(()));
        }
        let (revision, said) = cluster.value_of::<HostWords>(&self.words, &owner.host).await?;
        // It has signed off.
        let Some(said) = said else { return Ok(Ok(())) };
        let heard = HostRun { host: owner.host.clone(), run: said.run };
        Ok(if self.is_silent(&heard, revision, owner) { Ok(()) } else { Err(said.at) })
    }

    /// Returns true if a run of a host is gone, given the host's last heartbeat.
    fn is_silent(&self, heard: &HostRun, revision: u64, run: &HostRun) -> bool {
        let mut leases = lock(&self.leases);
        leases.heard(heard, revision, now());
        leases.is_gone(run, now())
    }

    fn tell_loss(&self, session: SessionId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        if let Some(tell) = &*lock(&self.on_loss) {
            tell(session);
        }
    }
}

impl Cluster {
    /// Reads a value of a bucket and its revision from the leader; revision 0 for none.
    pub(super) async fn value_of<T: DeserializeOwned>(
        &self,
        bucket: &kv::Store,
        key: &str,
    ) -> Result<(u64, Option<T>)> {
        let (revision, value) = self.newest(&bucket.stream, &format!("{}{key}", bucket.prefix)).await?;
        Ok((revision, serde_json::from_slice(&value).ok()))
    }
}

impl NatsInner {
    fn hosts_now(&self) -> Result<&Hosts> {
        let hosts = self.hosts.as_ref().ok_or(StoreError::ReadOnly)?;
        if hosts.is_replaced.load(Ordering::Acquire) {
            return Err(self.cluster.failed(REPLACED.to_owned()));
        }
        Ok(hosts)
    }

    async fn owner_of(&self, session: SessionId) -> Result<(u64, Option<Ownership>)> {
        let hosts = self.hosts_now()?;
        let key = session.to_string();
        let read = || async {
            match self.cluster.value_of::<Ownership>(&hosts.owners, &key).await {
                Ok(read) => Ok(Some(read)),
                Err(error) => {
                    tracing::debug!(%error, "retrying to request the owner of a session");
                    Ok(None)
                }
            }
        };
        self.waiting.until_settled("return the host that owns a session", read).await
    }

    /// Writes an ownership after a revision. Returns false if another host was faster.
    async fn own(&self, session: SessionId, own: &Ownership, after: u64) -> Result<bool> {
        let hosts = self.hosts_now()?;
        let value: Bytes = serde_json::to_vec(own).unwrap_or_default().into();
        match hosts.owners.update(session.to_string(), value, after).await {
            Ok(_) => Ok(true),
            Err(error) => {
                // It may have been accepted: compare with the stored ownership.
                tracing::debug!(%error, "checking if an ownership was stored");
                Ok(self.owner_of(session).await?.1.as_ref() == Some(own))
            }
        }
    }

    async fn claim(&self, session: SessionId) -> Result<SessionClaim> {
        let (hosts, lane) = (self.hosts_now()?, self.lane(session));
        if lane.is_held() {
            return Ok(SessionClaim::Kept);
        }
        let lease = || async { Ok(self.hosts_now()?.is_held().then_some(())) };
        self.waiting.until_settled("accept this host's heartbeat", lease).await?;
        loop {
            let (revision, before) = self.owner_of(session).await?;
            let epoch = before.as_ref().map_or(1, |before| before.epoch + 1);
            let mut is_taken = false;
            if let Some(before) = &before {
                if !before.is_released
                    && let Err(at) = hosts.gone(&self.cluster, &before.owner).await?
                {
                    return Err(StoreError::OtherHost { session, host: before.owner.host.clone(), at });
                }
                is_taken = !hosts.line.has(&before.owner.run) || !before.is_ready;
            }
            let own = Ownership { owner: hosts.me.clone(), epoch, is_released: false, is_ready: !is_taken };
            if !self.own(session, &own, revision).await? {
                continue;
            }
            lane.hold(epoch);
            if before.is_some_and(|before| !before.is_released && !hosts.line.has(&before.owner.run)) {
                hosts.takeovers.fetch_add(1, Ordering::Relaxed);
            }
            if !is_taken {
                return Ok(SessionClaim::Kept);
            }
            let told = self.tell_taken(&lane, epoch).await;
            if told.is_err() {
                lane.let_go();
            }
            return told.map(|()| SessionClaim::Taken);
        }
    }

    /// Records that this host owns the session. After this commit, the stream rejects messages of a former owner.
    async fn tell_taken(&self, lane: &Lane, epoch: u64) -> Result<()> {
        let mut commit = Commit::new(lane.session, self.clock.now());
        commit.push(&SessionTaken { host: self.hosts_now()?.me.host.clone(), epoch })?;
        self.record(lane, commit).await.map(drop)
    }

    /// Ends this host's ownership if a commit records a newer one.
    pub(super) fn note_taken(&self, lane: &Lane, view: &crate::engine::CommitView<'_>) {
        let taken = view.events().filter_map(|event| event.ok());
        let taken = taken.filter(|event| event.kind == SessionTaken::KIND);
        for taken in taken.filter_map(|event| SessionTaken::decode(event.version, event.payload).ok()) {
            self.lose(lane, taken.epoch, &taken.host);
        }
    }

    /// Ends this host's ownerships of sessions that another host owns by now.
    async fn look_for_owners(self: Arc<Self>) {
        for lane in self.lanes().into_iter().filter(|lane| lane.is_held()) {
            lane.set_ours(false);
            match self.owner_of(lane.session).await {
                Ok((_, Some(found))) => self.lose(&lane, found.epoch, &found.owner.host),
                Ok((_, None)) => {}
                Err(error) => tracing::warn!(%error, session = %lane.session, "failed to read the owner of a session"),
            }
        }
    }

    fn lose(&self, lane: &Lane, epoch: u64, host: &str) {
        let other = || StoreError::OtherHost { session: lane.session, host: host.to_owned(), at: None };
        if lane.lose(epoch, other)
            && let Some(hosts) = &self.hosts
        {
            tracing::warn!(session = %lane.session, host, "another host has taken a session");
            hosts.tell_loss(lane.session);
        }
    }

    /// Changes this host's ownership of a session, if it owns it.
    async fn change(&self, session: SessionId, change: impl FnOnce(Ownership) -> Ownership) -> Result<()> {
        let hosts = self.hosts_now()?;
        let (revision, there) = self.cluster.value_of::<Ownership>(&hosts.owners, &session.to_string()).await?;
        if let Some(own) = there.filter(|own| own.owner == hosts.me && !own.is_released) {
            let value = serde_json::to_vec(&change(own)).unwrap_or_default();
            let changed = hosts.owners.update(session.to_string(), value.into(), revision).await;
            changed.map_err(|error| self.cluster.failed(format!("did not change a session's ownership: {error}")))?;
        }
        Ok(())
    }

    /// Deletes the ownership of a removed session.
    pub(super) async fn forget_owner(&self, session: SessionId) {
        let Some(hosts) = &self.hosts else { return };
        if let Err(error) = hosts.owners.purge(session.to_string()).await {
            tracing::debug!(%error, "failed to delete the ownership of a removed session");
        }
    }

    async fn find(&self, name: &str) -> Result<Option<StoreHost>> {
        let hosts = self.hosts_now()?;
        let (revision, said) = self.cluster.value_of::<HostWords>(&hosts.words, name).await?;
        let Some(HostWords { run, at, .. }) = said else { return Ok(None) };
        let run = HostRun { host: name.to_owned(), run };
        let is_gone = hosts.is_silent(&run, revision, &run);
        Ok((!is_gone).then(|| StoreHost { name: name.to_owned(), at }))
    }

    async fn other(&self, session: SessionId) -> Result<Option<StoreHost>> {
        if self.lane(session).is_held() {
            return Ok(None);
        }
        let (_, owner) = self.owner_of(session).await?;
        if let Some(Ownership { owner, is_released: false, .. }) = owner
            && let Err(at) = self.hosts_now()?.gone(&self.cluster, &owner).await?
        {
            return Ok(Some(StoreHost { name: owner.host, at }));
        }
        self.lane(session).free();
        Ok(None)
    }

    /// Releases all sessions of this host.
    fn give_up(&self, what: &str) {
        self.is_silent.store(true, Ordering::Release);
        let why = || self.cluster.failed(format!("{what}, so this host released its sessions"));
        for lane in self.lanes() {
            if lane.lose(u64::MAX, why)
                && let Some(hosts) = &self.hosts
            {
                hosts.tell_loss(lane.session);
            }
        }
    }

    /// Signs this host off.
    pub(super) async fn leave(&self) {
        let Some(hosts) = &self.hosts else { return };
        let sent = hosts.sent.lock().await;
        let leave = async {
            hosts.line.end(&hosts.words).await;
            hosts.words.update(&hosts.me.host, Bytes::new(), sent.revision).await
        };
        // If this fails, other hosts wait for the lease to expire.
        drop(tokio::time::timeout(LAST, leave).await);
    }
}

/// Sends heartbeats until the store is dropped.
pub(super) async fn speak(store: Weak<NatsInner>) {
    let (mut answered, mut doubtful_until) = (now(), Moment::ZERO);
    loop {
        let Some(inner) = store.upgrade() else { return };
        let Some(hosts) = &inner.hosts else { return };
        let (begun, lease) = (now(), hosts.lease);
        let was_held = hosts.is_held();
        if hosts.speak().await {
            answered = now();
            inner.is_silent.store(false, Ordering::Release);
            // Other hosts may have declared this one dead, and may still be taking its sessions.
            if !was_held {
                doubtful_until = now() + lease * 2;
            }
            if now() < doubtful_until {
                tokio::spawn(Arc::clone(&inner).look_for_owners());
            }
        } else {
            if !hosts.look_at_own(&inner.cluster).await {
                tracing::error!(host = hosts.me.host, "the cluster {REPLACED}");
                hosts.is_replaced.store(true, Ordering::Release);
                inner.give_up(REPLACED);
                return;
            }
            let silence = now().saturating_sub(answered);
            inner.waiting.leave_server(silence).await;
            if silence >= lease * SILENCES {
                inner.give_up(&format!("has not answered for {} s", silence.as_secs()));
            }
        }
        drop(inner);
        tokio::time::sleep((lease / WORDS).saturating_sub(now() - begun)).await;
    }
}

/// The hosts of a cluster's store.
pub(super) struct NatsHosts {
    pub(super) inner: Arc<NatsInner>,
    pub(super) runtime: Handle,
    pub(super) own: StoreHost,
}

impl SessionHosts for NatsHosts {
    fn own(&self) -> &StoreHost {
        &self.own
    }

    fn claim(&self, session: SessionId) -> Result<SessionClaim> {
        let inner = Arc::clone(&self.inner);
        wait_for(&self.runtime, async move { inner.claim(session).await })
    }

    fn ready(&self, session: SessionId) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let ready = |own| Ownership { is_ready: true, ..own };
        wait_for(&self.runtime, async move { inner.change(session, ready).await })
    }

    fn release(&self, session: SessionId) {
        let inner = Arc::clone(&self.inner);
        let released = wait_for(&self.runtime, async move {
            inner.lane(session).let_go();
            let release = inner.change(session, |own| Ownership { is_released: true, ..own });
            tokio::time::timeout(LAST, release).await.unwrap_or(Ok(()))
        });
        if let Err(error) = released {
            tracing::debug!(%error, "failed to release a session; other hosts wait for this host's lease to expire");
        }
    }

    fn other(&self, session: SessionId) -> Result<Option<StoreHost>> {
        if self.inner.lane(session).is_held() {
            return Ok(None);
        }
        let inner = Arc::clone(&self.inner);
        wait_for(&self.runtime, async move { inner.other(session).await })
    }

    fn find(&self, name: &str) -> Result<Option<StoreHost>> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        wait_for(&self.runtime, async move { inner.find(&name).await })
    }

    fn lease(&self) -> Duration {
        self.inner.hosts.as_ref().map_or(Duration::ZERO, |hosts| hosts.lease)
    }

    fn figures(&self) -> HostFigures {
        let Some(hosts) = &self.inner.hosts else { return HostFigures::default() };
        let silence = lock(&hosts.leases).silence(now());
        HostFigures {
            waited: self.inner.waiting.waited().max(silence),
            held: self.inner.lanes().iter().filter(|lane| lane.is_held()).count() as u64,
            takeovers: hosts.takeovers.load(Ordering::Relaxed),
            lost: hosts.lost.load(Ordering::Relaxed),
        }
    }

    fn on_loss(&self, tell: TellLoss) {
        if let Some(hosts) = &self.inner.hosts {
            *lock(&hosts.on_loss) = Some(tell);
        }
    }
}
