//! Resources that clients watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionSink};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::McpError;
use super::resources::{ResourceUri, What};
use crate::engine::event::{DeleteEntry, Event, WriteFile, WriteMode};
use crate::engine::id::{Digest, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::store::StoreError;
use crate::engine::subscription::{Filter, Subscription};

/// Time in which changes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(50);
/// Addresses that a client may watch.
pub(super) const WATCHED_MAX: usize = 1000;
/// Sessions that it may watch.
pub(super) const SESSIONS_MAX: usize = 16;
/// Time to wait for an event before looking whether there is one all the same.
const LOOK: Duration = Duration::from_millis(500);

/// The one who is told.
#[derive(Clone)]
pub(super) enum ResourceSubscriber {
    /// The client, at any time.
    Peer(Peer<RoleServer>),
    /// A request of the client's that is open for this.
    Sink(SubscriptionSink),
}

impl ResourceSubscriber {
    async fn updated(&self, uri: String) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }

    async fn list_changed(&self) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_list_changed().await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_list_changed().await.is_ok(),
        }
    }
}

/// The resources that are watched.
#[derive(Default)]
pub(super) struct Watching(Mutex<WatchingInner>);

#[derive(Default)]
struct WatchingInner {
    sessions: BTreeMap<SessionId, WatchedResource>,
    /// True where the list of resources was asked for, so that its changes are worth telling.
    has_listed: bool,
    /// The task that tells; it ends with this.
    telling: Option<(Arc<Changes>, DropGuard)>,
}

struct WatchedResource {
    wishes: Arc<Mutex<Wishes>>,
    /// The task that follows the session; it ends with this.
    _following: DropGuard,
}

/// The wishes about one session.
#[derive(Default)]
struct Wishes {
    files: BTreeMap<EntryPath, BTreeSet<String>>,
    slices: BTreeMap<String, (String, Option<Digest>)>,
    logs: BTreeSet<String>,
    list: bool,
}

type OfSession = (Session, Arc<Mutex<Wishes>>);

/// The changes that were not told yet.
#[derive(Default)]
struct Changes {
    uris: Mutex<BTreeSet<String>>,
    list: std::sync::atomic::AtomicBool,
    /// Sessions in which slices that are watched may have changed.
    slices: Mutex<BTreeMap<SessionId, OfSession>>,
    some: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watching {
    /// Tells of changes at an address from now on.
    pub(super) async fn watch(
        &self,
        session: &Session,
        address: &ResourceUri,
        uri: &str,
        told: &ResourceSubscriber,
    ) -> Result<(), McpError> {
        if address.is_settled(session.now()) {
            return Ok(());
        }
        let before = match &address.what {
            What::Slice { name, at: None } => digest_of(session, name).await,
            _ => None,
        };
        let mut inner = lock(&self.0);
        let count: usize = inner.sessions.values().map(|watched| lock(&watched.wishes).count()).sum();
        if count >= WATCHED_MAX {
            return Err(McpError::TooManyWatched);
        }
        let shared = inner.of(session, told)?;
        let mut wishes = lock(&shared);
        match &address.what {
            // So many events ago, or so long, is something else after each event. That the time passes is not told.
            What::File { at: Some(_), .. } | What::Slice { at: Some(_), .. } | What::Log { .. } => {
                wishes.logs.insert(uri.to_owned());
            }
            What::File { path, at: None } => {
                wishes.files.entry(path.clone()).or_default().insert(uri.to_owned());
            }
            What::Slice { name, at: None } => {
                wishes.slices.insert(uri.to_owned(), (name.clone(), before));
                // It may have changed before its events were followed.
                inner.changes(told).look_at(session, &shared);
            }
        }
        Ok(())
    }

    /// Tells of an address no more.
    pub(super) fn forget(&self, uri: &str) {
        let mut inner = lock(&self.0);
        inner.sessions.retain(|_, watched| {
            let mut wishes = lock(&watched.wishes);
            wishes.forget(uri);
            wishes.count() > 0 || wishes.list
        });
    }

    /// Tells from now on when files of the client's session come or go.
    pub(super) fn has_listed(&self, session: Option<&Session>, told: &ResourceSubscriber) -> Result<(), McpError> {
        let mut inner = lock(&self.0);
        inner.has_listed = true;
        if let Some(session) = session {
            lock(&*inner.of(session, told)?).list = true;
        }
        Ok(())
    }

    /// The client has a session now: what it was told of resources before is no longer so.
    pub(super) fn has_joined(&self, session: &Session, peer: &Peer<RoleServer>) {
        let mut inner = lock(&self.0);
        if !inner.has_listed {
            return;
        }
        let told = ResourceSubscriber::Peer(peer.clone());
        match inner.of(session, &told) {
            Ok(wishes) => lock(&wishes).list = true,
            Err(error) => tracing::warn!(%error, "a client can't be told of new resources"),
        }
        inner.changes(&told).list_has_changed();
    }
}

impl WatchingInner {
    /// Returns the wishes about a session, watching it from now on.
    fn of(&mut self, session: &Session, told: &ResourceSubscriber) -> Result<Arc<Mutex<Wishes>>, McpError> {
        if let Some(watched) = self.sessions.get(&session.id()) {
            return Ok(Arc::clone(&watched.wishes));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(McpError::TooManyWatched);
        }
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let follow =
            SessionWatch { session: session.clone(), wishes: Arc::clone(&wishes), changes: self.changes(told) };
        let (subscription, ended) = (session.subscribe(session.head()? + 1, Filter::all()), CancellationToken::new());
        let stop = ended.clone();
        tokio::spawn(async move { stop.run_until_cancelled(follow.run(subscription)).await });
        let watched = WatchedResource { wishes: Arc::clone(&wishes), _following: ended.drop_guard() };
        self.sessions.insert(session.id(), watched);
        Ok(wishes)
    }

    fn changes(&mut self, told: &ResourceSubscriber) -> Arc<Changes> {
        let telling = self.telling.get_or_insert_with(|| {
            let (changes, ended) = (Arc::new(Changes::default()), CancellationToken::new());
            tokio::spawn(tell(Arc::clone(&changes), told.clone(), ended.clone()));
            (changes, ended.drop_guard())
        });
        Arc::clone(&telling.0)
    }
}

impl Wishes {
    fn count(&self) -> usize {
        self.files.values().map(BTreeSet::len).sum::<usize>() + self.slices.len() + self.logs.len()
    }

    fn forget(&mut self, uri: &str) {
        self.files.retain(|_, uris| {
            uris.remove(uri);
            !uris.is_empty()
        });
        self.slices.remove(uri);
        self.logs.remove(uri);
    }

    /// Returns the addresses that change with an entry: itself, the directory that lists it, and with a removal all that was below it.
    fn touched(&self, path: &EntryPath, removed: bool) -> Vec<String> {
        let parent = path.parent();
        let is_it =
            |known: &EntryPath| known == path || parent.as_ref() == Some(known) || (removed && known.is_below(path));
        self.files.iter().filter(|(known, _)| is_it(known)).flat_map(|(_, uris)| uris.iter().cloned()).collect()
    }
}

/// Follows a session's events.
#[derive(Clone)]
struct SessionWatch {
    session: Session,
    wishes: Arc<Mutex<Wishes>>,
    changes: Arc<Changes>,
}

impl SessionWatch {
    async fn run(self, mut subscription: Subscription) {
        loop {
            while let Some(event) = subscription.next_at_hand() {
                self.changes.note(&self.session, &self.wishes, &event);
            }
            if !subscription.is_behind() {
                subscription.announced(LOOK).await;
                continue;
            }
            // It has to be read from the store.
            let follow = self.clone();
            let looked = tokio::task::spawn_blocking(move || follow.look(subscription)).await;
            let Ok((back, outcome)) = looked else { return };
            subscription = back;
            match outcome {
                Ok(()) => {}
                Err(StoreError::NoSession(_)) => return,
                Err(error) => {
                    tracing::warn!(%error, "a session that is watched could not be read");
                    subscription.announced(LOOK).await;
                }
            }
        }
    }

    /// Takes into account what there is.
    fn look(&self, mut subscription: Subscription) -> (Subscription, Result<(), StoreError>) {
        let outcome = loop {
            match subscription.next_within(Duration::ZERO) {
                Ok(Some(event)) => self.changes.note(&self.session, &self.wishes, &event),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        (subscription, outcome)
    }
}

impl Changes {
    /// Takes an event into account.
    fn note(&self, session: &Session, wishes: &Arc<Mutex<Wishes>>, event: &Recorded) {
        let known = lock(wishes);
        let mut uris: Vec<String> = known.logs.iter().cloned().collect();
        match &*event.event.kind {
            WriteFile::KIND => {
                if let Some(Ok(write)) = event.typed::<WriteFile>() {
                    uris.extend(known.touched(&write.event.path, false));
                    if known.list && write.event.mode == WriteMode::Create {
                        self.list_has_changed();
                    }
                }
            }
            DeleteEntry::KIND => {
                if let Some(Ok(delete)) = event.typed::<DeleteEntry>() {
                    uris.extend(known.touched(&delete.event.path, true));
                    if known.list {
                        self.list_has_changed();
                    }
                }
            }
            _ => {}
        }
        if !known.slices.is_empty() {
            self.look_at(session, wishes);
        }
        if !uris.is_empty() {
            lock(&self.uris).extend(uris);
            self.some.notify_one();
        }
    }

    /// Looks soon whether slices of a session have changed.
    fn look_at(&self, session: &Session, wishes: &Arc<Mutex<Wishes>>) {
        lock(&self.slices).insert(session.id(), (session.clone(), Arc::clone(wishes)));
        self.some.notify_one();
    }

    fn list_has_changed(&self) {
        self.list.store(true, std::sync::atomic::Ordering::Release);
        self.some.notify_one();
    }

    /// The slices that are not what they were.
    fn changed_slices(&self) -> Vec<String> {
        let mut changed = Vec::new();
        let sessions = std::mem::take(&mut *lock(&self.slices));
        for (session, wishes) in sessions.into_values() {
            let names: BTreeSet<String> = lock(&wishes).slices.values().map(|(name, _)| name.clone()).collect();
            // The locks are not held meanwhile: that may take long.
            let Ok(state) = session.state() else { continue };
            let digests: BTreeMap<String, Option<Digest>> =
                names.into_iter().map(|name| (name.clone(), state.digest(&name))).collect();
            for (uri, (name, before)) in &mut lock(&wishes).slices {
                let now = digests.get(name).copied().flatten();
                if now.is_some() && now != *before {
                    *before = now;
                    changed.push(uri.clone());
                }
            }
        }
        changed
    }
}

async fn digest_of(session: &Session, name: &str) -> Option<Digest> {
    let (session, name) = (session.clone(), name.to_owned());
    tokio::task::spawn_blocking(move || session.state().ok()?.digest(&name)).await.ok().flatten()
}

/// Tells what has changed, a moment after the first change, until nobody is there to be told.
async fn tell(changes: Arc<Changes>, told: ResourceSubscriber, ended: CancellationToken) {
    loop {
        tokio::select! {
            () = changes.some.notified() => {}
            () = ended.cancelled() => return,
        }
        tokio::time::sleep(GATHER).await;
        let mut uris = std::mem::take(&mut *lock(&changes.uris));
        let looked = Arc::clone(&changes);
        uris.extend(tokio::task::spawn_blocking(move || looked.changed_slices()).await.unwrap_or_default());
        let mut is_there = true;
        for uri in uris {
            is_there &= told.updated(uri).await;
        }
        if changes.list.swap(false, std::sync::atomic::Ordering::AcqRel) {
            is_there &= told.list_changed().await;
        }
        if !is_there {
            tracing::debug!("a client could not be told of a change");
        }
    }
}
