//! Subscriptions of clients to resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionSink};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::resources::{ResourceUri, What};
use crate::engine::event::{DeleteEntry, WriteFile, WriteMode};
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::store::StoreError;
use crate::engine::subscription::{Filter, Subscription};
use crate::hub::operations::OperationError;

/// Time for collecting changes before a notification.
const GATHER: Duration = Duration::from_millis(50);
/// Limit for the URIs that a client watches.
const WATCHED_MAX: usize = 1000;
/// Limit for the sessions that a client watches.
const SESSIONS_MAX: usize = 16;
/// Limit for the events read between notifications.
const EVENTS_MAX: usize = 1000;
/// Longest wait for an announced event before a check for unannounced events.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) enum ResourceSubscriber {
    Peer(Peer<RoleServer>),
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

#[derive(Default)]
pub(super) struct Watching(Mutex<WatchingInner>);

#[derive(Default)]
struct WatchingInner {
    sessions: BTreeMap<SessionId, WatchedResource>,
    /// True once the list was requested. Only then are its changes notified.
    has_listed: bool,
}

struct WatchedResource {
    wishes: Arc<SharedWishes>,
    /// Ends the task that follows the session when dropped.
    _following: DropGuard,
}

#[derive(Default)]
struct SharedWishes {
    known: Mutex<Wishes>,
    /// Wakes the task when a slice is added, since it may have changed before its events were followed.
    added: Notify,
}

#[derive(Default)]
struct Wishes {
    watched: BTreeMap<String, Watched>,
    list: bool,
}

enum Watched {
    File(EntryPath),
    /// A slice with its digest at the last check.
    Slice(String, Option<Digest>),
    /// The log, and relative positions, which move with each event. The mere passing of time is not notified.
    EachEvent,
}

/// Changes that are not notified yet.
#[derive(Default)]
struct ResourceChanges {
    uris: BTreeSet<String>,
    list: bool,
}

impl Watching {
    pub(super) async fn watch(
        &self,
        session: &Session,
        address: &ResourceUri,
        uri: &str,
        told: &ResourceSubscriber,
    ) -> Result<(), OperationError> {
        if address.is_settled(session.now()) {
            return Ok(());
        }
        let watched = match &address.what {
            What::File { path, at: None } => Watched::File(path.clone()),
            What::Slice { name, at: None } => Watched::Slice(name.clone(), digest_of(session, name).await),
            What::File { .. } | What::Slice { .. } | What::Log { .. } | What::Mount { .. } => Watched::EachEvent,
        };
        let mut inner = lock(&self.0);
        let count: usize = inner.sessions.values().map(|watched| lock(&watched.wishes.known).watched.len()).sum();
        if count >= WATCHED_MAX {
            return Err(too_many());
        }
        let shared = inner.of(session, told)?;
        lock(&shared.known).watched.insert(uri.to_owned(), watched);
        shared.added.notify_one();
        Ok(())
    }

    pub(super) fn forget(&self, uri: &str) {
        let mut inner = lock(&self.0);
        inner.sessions.retain(|_, watched| {
            let mut wishes = lock(&watched.wishes.known);
            wishes.watched.remove(uri);
            !wishes.watched.is_empty() || wishes.list
        });
    }

    pub(super) fn has_listed(
        &self,
        session: Option<&Session>,
        told: &ResourceSubscriber,
    ) -> Result<(), OperationError> {
        let mut inner = lock(&self.0);
        inner.has_listed = true;
        if let Some(session) = session {
            lock(&inner.of(session, told)?.known).list = true;
        }
        Ok(())
    }

    /// Records the client's new session, and notifies the client if it has listed resources before.
    pub(super) fn has_joined(&self, session: &Session, peer: &Peer<RoleServer>) {
        let mut inner = lock(&self.0);
        if !inner.has_listed {
            return;
        }
        let told = ResourceSubscriber::Peer(peer.clone());
        match inner.of(session, &told) {
            Ok(wishes) => lock(&wishes.known).list = true,
            Err(error) => tracing::warn!(%error, "can't watch a client's resource list for changes"),
        }
        tokio::spawn(async move { told.list_changed().await });
    }
}

impl WatchingInner {
    fn of(&mut self, session: &Session, told: &ResourceSubscriber) -> Result<Arc<SharedWishes>, OperationError> {
        if let Some(watched) = self.sessions.get(&session.id()) {
            return Ok(Arc::clone(&watched.wishes));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(too_many());
        }
        let wishes = Arc::new(SharedWishes::default());
        let follow = SessionWatch { session: session.clone(), wishes: Arc::clone(&wishes), told: told.clone() };
        let (subscription, ended) =
            (session.subscribe(session.aside(|| session.head())? + 1, Filter::all()), CancellationToken::new());
        let stop = ended.clone();
        tokio::spawn(async move { stop.run_until_cancelled(follow.run(subscription)).await });
        let watched = WatchedResource { wishes: Arc::clone(&wishes), _following: ended.drop_guard() };
        self.sessions.insert(session.id(), watched);
        Ok(wishes)
    }
}

struct SessionWatch {
    session: Session,
    wishes: Arc<SharedWishes>,
    told: ResourceSubscriber,
}

impl SessionWatch {
    /// Sends notifications, shortly after the first change of each batch.
    async fn run(self, mut subscription: Subscription) {
        let watch = Arc::new(self);
        loop {
            let is_added = tokio::select! {
                () = subscription.announced(LOOK) => false,
                () = watch.wishes.added.notified() => true,
            };
            tokio::time::sleep(GATHER).await;
            let looking = Arc::clone(&watch);
            let looked = tokio::task::spawn_blocking(move || {
                let mut changes = ResourceChanges::default();
                let outcome = looking.look(&mut subscription, is_added, &mut changes);
                (subscription, changes, outcome)
            });
            let Ok((back, changes, outcome)) = looked.await else { return };
            subscription = back;
            watch.tell(changes).await;
            match outcome {
                Ok(()) => {}
                Err(StoreError::NoSession(_)) => return,
                Err(error) => tracing::warn!(%error, "failed to read a watched session"),
            }
        }
    }

    fn look(
        &self,
        subscription: &mut Subscription,
        is_added: bool,
        changes: &mut ResourceChanges,
    ) -> Result<(), StoreError> {
        let mut is_due = is_added;
        for _ in 0..EVENTS_MAX {
            let Some(event) = subscription.next_within(Duration::ZERO)? else { break };
            is_due = true;
            changes.note(&lock(&self.wishes.known), &event);
        }
        if is_due {
            self.compare_slices(changes);
        }
        Ok(())
    }

    fn compare_slices(&self, changes: &mut ResourceChanges) {
        let name = |watched: &Watched| match watched {
            Watched::Slice(name, _) => Some(name.clone()),
            Watched::File(_) | Watched::EachEvent => None,
        };
        let names: BTreeSet<String> = lock(&self.wishes.known).watched.values().filter_map(name).collect();
        if names.is_empty() {
            return;
        }
        // The lock is not held while the state is read, which may take long.
        let Ok(state) = self.session.state() else { return };
        let digests: BTreeMap<_, _> = names.iter().map(|name| (name, state.digest(name))).collect();
        for (uri, watched) in &mut lock(&self.wishes.known).watched {
            let Watched::Slice(name, before) = watched else { continue };
            let now = digests.get(name).copied().flatten();
            if now.is_some() && now != *before {
                *before = now;
                changes.uris.insert(uri.clone());
            }
        }
    }

    async fn tell(&self, changes: ResourceChanges) {
        let mut is_there = true;
        for uri in changes.uris {
            is_there &= self.told.updated(uri).await;
        }
        if changes.list {
            is_there &= self.told.list_changed().await;
        }
        if !is_there {
            tracing::debug!("failed to notify a client of a change");
        }
    }
}

impl ResourceChanges {
    fn note(&mut self, wishes: &Wishes, event: &Recorded) {
        let (mut changed, mut removed) = (None, false);
        if let Some(Ok(write)) = event.typed::<WriteFile>() {
            self.list |= wishes.list && write.event.mode == WriteMode::Create;
            changed = Some(write.event.path);
        } else if let Some(Ok(delete)) = event.typed::<DeleteEntry>() {
            self.list |= wishes.list;
            (changed, removed) = (Some(delete.event.path), true);
        }
        // A change of an entry also changes its directory; a removal also changes everything below it.
        let parent = changed.as_ref().and_then(EntryPath::parent);
        let changes_file = |known: &EntryPath| {
            changed.as_ref() == Some(known)
                || parent.as_ref() == Some(known)
                || (removed && changed.as_ref().is_some_and(|path| known.is_below(path)))
        };
        let touched = wishes.watched.iter().filter(|(_, watched)| match watched {
            Watched::File(known) => changes_file(known),
            Watched::Slice(..) => false,
            Watched::EachEvent => true,
        });
        self.uris.extend(touched.map(|(uri, _)| uri.clone()));
    }
}

fn too_many() -> OperationError {
    let what = format!("too many watched resources; the limits are {WATCHED_MAX} URIs and {SESSIONS_MAX} sessions");
    OperationError::refused(what)
}

async fn digest_of(session: &Session, name: &str) -> Option<Digest> {
    let (session, name) = (session.clone(), name.to_owned());
    tokio::task::spawn_blocking(move || session.state().ok()?.digest(&name)).await.ok().flatten()
}
