//! The route to a shared store, and its changes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::remote::{Remote, RemoteError};
use super::server::{self, ServedStore, StoreAnswer, StoreServer};
use super::socket;
use super::unacknowledged::{SettledStore, Settling, unsettled};
use super::wire::{Message, StoreReply, StoreRequest, Upkeep, done, odd_answer};
use crate::engine::bus::Bus;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::commit::Commit;
use crate::engine::id::CommitId;
use crate::engine::lock::{lock, read_lock, write_lock};
use crate::engine::store::name_lock::NameLock;
use crate::engine::store::pending::Ticket;
use crate::engine::store::{
    Committed, Durability, EventStore, LocalStore, LocalStoreOptions, Pending, Result, StoreError,
};

/// Maximum wait for a store whose owner does not serve it: one that collects, checks, or ends.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
/// Pause before a store that can't write is opened anew.
const REVIVAL: Duration = Duration::from_secs(1);
const TRIES: usize = 20;

pub(super) struct SharedInner {
    pub(super) directory: PathBuf,
    pub(super) options: LocalStoreOptions,
    pub(super) bus: Arc<Bus>,
    pub(super) place: RwLock<StoreRoute>,
    pub(super) moving: Mutex<()>,
    pub(super) settling: Arc<Settling>,
    pub(super) naming: NameLock,
    is_closed: AtomicBool,
    /// Set while a store that can't write is about to be opened anew.
    is_reviving: AtomicBool,
}

pub(super) enum StoreRoute {
    Here(Box<LocalRoute>),
    There(Arc<Remote>),
    Nowhere,
}

pub(super) struct LocalRoute {
    pub(super) store: LocalStore,
    server: Option<StoreServer>,
}

impl SharedInner {
    pub(super) fn open(directory: &Path, options: LocalStoreOptions) -> Result<Arc<Self>> {
        let inner = Arc::new_cyclic(|inner: &Weak<Self>| Self {
            directory: directory.to_owned(),
            options,
            bus: Arc::default(),
            place: RwLock::new(StoreRoute::Nowhere),
            moving: Mutex::default(),
            settling: Arc::new(Settling::new(inner.clone())),
            naming: NameLock::of(directory),
            is_closed: AtomicBool::new(false),
            is_reviving: AtomicBool::new(false),
        });
        inner.move_from(None)?;
        Ok(inner)
    }

    pub(super) fn place(&self) -> RwLockReadGuard<'_, StoreRoute> {
        read_lock(&self.place)
    }

    fn put(&self, place: StoreRoute) -> StoreRoute {
        std::mem::replace(&mut *write_lock(&self.place), place)
    }

    /// Runs work on the store, wherever it is; with the next owner if the current one ends.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        here: impl Fn(&LocalStore) -> Result<T>,
        there: impl Fn(&Remote) -> Result<T, RemoteError>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            let remote = match &*self.place() {
                StoreRoute::Here(found) => return here(&found.store),
                StoreRoute::There(remote) => Some(Arc::clone(remote)),
                StoreRoute::Nowhere => None,
            };
            let Some(remote) = remote else {
                self.open_again()?;
                continue;
            };
            match there(&remote) {
                Ok(done) => return Ok(done),
                Err(RemoteError::Told(error)) => return Err(error),
                Err(RemoteError::Gone) => self.move_from(Some(&remote))?,
            }
        }
        Err(self.restless())
    }

    /// Finds the store again after it could not be reopened; fails once it was closed.
    pub(super) fn open_again(self: &Arc<Self>) -> Result<()> {
        if self.is_closed() {
            return Err(StoreError::Poisoned("the store was closed".to_owned()));
        }
        self.move_from(None)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns the route once no new owner is being given unacknowledged commits: new commits follow them.
    pub(super) fn settled_place(&self) -> RwLockReadGuard<'_, StoreRoute> {
        loop {
            let place = self.place();
            if !self.settling.is_giving() {
                return place;
            }
            drop(place);
            drop(lock(&self.moving));
        }
    }

    pub(super) fn ask<T>(
        self: &Arc<Self>,
        here: impl Fn(&LocalStore) -> Result<T>,
        request: StoreRequest,
        read: impl Fn(Message<StoreReply>) -> Option<T>,
    ) -> Result<T> {
        self.with(here, |remote| read(remote.ask(&request, &[])?).ok_or_else(|| odd_answer().into()))
    }

    pub(super) fn restless(&self) -> StoreError {
        StoreError::Locked { path: self.directory.clone(), holder: "processes that come and go".to_owned() }
    }

    /// Takes the store, or connects to its owner. A second caller finds it done.
    pub(super) fn move_from(self: &Arc<Self>, gone: Option<&Arc<Remote>>) -> Result<()> {
        let _moving = lock(&self.moving);
        let is_done = match (&*self.place(), gone) {
            (StoreRoute::There(now), Some(gone)) => !Arc::ptr_eq(now, gone),
            (StoreRoute::Nowhere, None) => false,
            _ => true,
        };
        if is_done || self.is_closed() {
            return Ok(());
        }
        let _giving = self.settling.begin_giving();
        let clock = SystemClock::default();
        let until = clock.monotonic_micros() + u64::try_from(PATIENCE.as_micros()).unwrap_or(u64::MAX);
        loop {
            let locked = match LocalStore::open_on(&self.directory, self.options.clone(), Arc::clone(&self.bus)) {
                Ok(store) => {
                    self.hold(store);
                    return Ok(());
                }
                Err(error @ StoreError::Locked { .. }) => error,
                Err(error) => return Err(error),
            };
            if let Some(remote) = Remote::connect(&self.directory, &self.bus)? {
                let remote = Arc::new(remote);
                match self.settling.give(&|commit| remote.submit(commit)) {
                    Ok(()) => {
                        self.put(StoreRoute::There(remote));
                        return Ok(());
                    }
                    Err(RemoteError::Told(error)) => return Err(error),
                    Err(RemoteError::Gone) => {}
                }
            }
            if clock.monotonic_micros() >= until {
                return Err(locked);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Serves the store, then gives it unacknowledged commits: other processes may have to give theirs before.
    fn hold(self: &Arc<Self>, store: LocalStore) {
        self.put(StoreRoute::Here(Box::new(LocalRoute { store, server: None })));
        let served: Weak<Self> = Arc::downgrade(self);
        let server = StoreServer::begin(&self.directory, served);
        let server = server.inspect_err(|error| tracing::warn!(%error, "other processes can't use the store"));
        if let StoreRoute::Here(here) = &mut *write_lock(&self.place) {
            here.server = server.ok();
        }
        let given = self.settling.give(&|commit| match &*self.place() {
            StoreRoute::Here(here) => Ok(here.store.submit(commit.clone())?.committed),
            _ => Err(RemoteError::Gone),
        });
        if given.is_err() {
            tracing::error!("could not give commits to the store: it was closed");
        }
    }

    /// Reopens a store that can't write, as the next process would: there may be room again.
    pub(super) fn revive_soon(self: &Arc<Self>) {
        if self.is_reviving.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(self);
        let reviving = std::thread::Builder::new().name("foldspace-revive".to_owned()).spawn(move || {
            // Not again and again while there is no room.
            std::thread::sleep(REVIVAL);
            drop(inner.closed_for(|_| Ok(())));
            inner.is_reviving.store(false, Ordering::Release);
        });
        if reviving.is_err() {
            self.is_reviving.store(false, Ordering::Release);
        }
    }

    pub(super) fn has_company(&self) -> bool {
        match &*self.place() {
            StoreRoute::Here(here) => here.server.as_ref().is_some_and(StoreServer::has_company),
            _ => true,
        }
    }

    /// Gives a commit to the owner of the store, and to the next one if that ends.
    pub(super) fn submit_elsewhere(self: &Arc<Self>, mut commit: Commit) -> Result<Pending> {
        if self.settling.is_full() {
            self.settling.flush()?;
        }
        let _order = lock(&self.settling.order);
        commit.id = commit.id.or_else(|| Some(CommitId::from_bytes(SystemClock::default().fresh_id())));
        let number = self.settling.add(commit.clone());
        let refused = |error| {
            self.settling.forget(number);
            Err(error)
        };
        for _ in 0..TRIES {
            let remote = match &*self.settled_place() {
                StoreRoute::There(remote) => Some(Arc::clone(remote)),
                StoreRoute::Nowhere => None,
                // The move gave it to this store, or it comes now.
                StoreRoute::Here(here) => match self.settling.outcome_of(number) {
                    Some(Ok(committed)) => return Ok(self.pending(number, committed)),
                    Some(Err(error)) => return Err(error),
                    None => {
                        self.settling.forget(number);
                        return here.store.submit(commit);
                    }
                },
            };
            let Some(remote) = remote else {
                self.open_again().map_err(unsettled)?;
                continue;
            };
            match remote.submit(&commit) {
                Ok(committed) => {
                    let committed = self.settling.tell(number, committed);
                    return Ok(self.pending(number, committed));
                }
                Err(RemoteError::Told(error @ StoreError::Locked { .. })) => return Err(unsettled(error)),
                Err(RemoteError::Told(error)) => return refused(error),
                Err(RemoteError::Gone) => {}
            }
            self.move_from(Some(&remote)).map_err(unsettled)?;
            match self.settling.outcome_of(number) {
                Some(Ok(committed)) => return Ok(self.pending(number, committed)),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        Err(unsettled(self.restless()))
    }

    fn pending(&self, number: u64, committed: Committed) -> Pending {
        Pending { committed, ticket: Ticket::Group { number, waits: Arc::clone(&self.settling) as _ } }
    }

    pub(super) fn upkeep<T: serde::de::DeserializeOwned>(self: &Arc<Self>, upkeep: Upkeep) -> Result<T> {
        let read = |report: &str| serde_json::from_str(report).map_err(|_| odd_answer());
        for _ in 0..TRIES {
            let remote = match &*self.place() {
                StoreRoute::There(remote) => Some(Arc::clone(remote)),
                _ => None,
            };
            let Some(remote) = remote else {
                match self.keep_up(upkeep) {
                    Some(report) => return read(&report?),
                    None => {
                        self.open_again()?;
                        continue;
                    }
                }
            };
            match remote.ask(&StoreRequest::Keep(upkeep), &[]) {
                Ok(Message { head: StoreReply::Json(report), .. }) => return read(&report),
                Ok(_) => return Err(odd_answer()),
                Err(RemoteError::Told(error)) => return Err(error),
                Err(RemoteError::Gone) => self.move_from(Some(&remote))?,
            }
        }
        Err(self.restless())
    }

    /// Maintains a store that is here and returns the report as JSON; none if it is not here.
    fn keep_up(self: &Arc<Self>, upkeep: Upkeep) -> Option<Result<String>> {
        let report = self.closed_for(|directory| match upkeep {
            Upkeep::Collect { rehearse } => LocalStore::collect(directory, rehearse).map(|report| json(&report)),
            Upkeep::Check => LocalStore::fsck(directory, false).map(|report| json(&report)),
        });
        match report {
            // Another process took it while it was closed: that one does it.
            Some(Err(StoreError::Locked { .. })) => None,
            other => other,
        }
    }

    /// Closes a store that is here for work on its directory; none if it is not here. If it can't be reopened, another
    /// process has taken it, or the next caller tries.
    fn closed_for<T>(self: &Arc<Self>, work: impl FnOnce(&Path) -> Result<T>) -> Option<Result<T>> {
        let _moving = lock(&self.moving);
        let mut place = write_lock(&self.place);
        let LocalRoute { store, server } = match std::mem::replace(&mut *place, StoreRoute::Nowhere) {
            StoreRoute::Here(here) => *here,
            other => {
                *place = other;
                return None;
            }
        };
        drop(store);
        let done = work(&self.directory);
        match LocalStore::open_on(&self.directory, self.options.clone(), Arc::clone(&self.bus)) {
            Ok(store) => {
                *place = StoreRoute::Here(Box::new(LocalRoute { store, server }));
                Some(done)
            }
            Err(error) => {
                drop(place);
                // On a thread of its own: one of those that it waits for may be this one.
                if std::thread::Builder::new().spawn(|| server.map(StoreServer::stop)).is_err() {
                    tracing::warn!("connections of other processes stay until they end");
                }
                // A check reports it; other calls are refused.
                Some(if matches!(error, StoreError::Lost(_)) { done } else { Err(error) })
            }
        }
    }

    pub(super) fn sync(self: &Arc<Self>) -> Result<()> {
        self.ask(|store| store.sync(), StoreRequest::Sync, done)
    }

    pub(super) fn close(&self) {
        if !self.settling.is_empty()
            && let Err(error) = self.settling.flush()
        {
            tracing::warn!(%error, "the last commits may be lost");
        }
        self.is_closed.store(true, Ordering::Release);
        let _moving = lock(&self.moving);
        self.settling.close();
        let StoreRoute::Here(here) = self.put(StoreRoute::Nowhere) else { return };
        let LocalRoute { store, server } = *here;
        if let Some(server) = server {
            server.stop();
            // While the lock is held, so that it is not the next holder's.
            if let Err(error) = socket::remove(&socket::path_in(&self.directory)) {
                tracing::debug!(%error, "the store's socket is left");
            }
        }
        drop(store);
    }
}

impl ServedStore for SharedInner {
    fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    fn answer(self: Arc<Self>, request: StoreRequest, tail: Bytes) -> Option<Result<StoreAnswer>> {
        if let StoreRequest::Keep(upkeep) = request {
            return self.keep_up(upkeep).map(|report| report.map(StoreAnswer::json));
        }
        let answer = match &*self.place() {
            StoreRoute::Here(here) => {
                let is_submission = matches!(request, StoreRequest::Submit(_));
                let answer = server::answer(&here.store, request, tail);
                // What another process sees must not be lost with this one. Of a commit it knows that it may be.
                match self.options.durability == Durability::Synced || is_submission {
                    true => answer,
                    false => answer.and_then(|answer| here.store.sync().map(|()| answer)),
                }
            }
            _ => return None,
        };
        if let Err(StoreError::Poisoned(_)) = &answer {
            self.revive_soon();
        }
        Some(answer)
    }
}

impl SettledStore for SharedInner {
    fn settling(&self) -> &Settling {
        &self.settling
    }

    fn sync(self: Arc<Self>) -> Result<()> {
        Self::sync(&self)
    }
}

fn json(report: &impl serde::Serialize) -> String {
    serde_json::to_string(report).unwrap_or_default()
}
