//! Where a shared store is for this process, and the way from one place to the next.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;

use super::remote::{Remote, Trouble};
use super::server::{self, Answer, Server};
use super::settling::Settling;
use super::socket;
use super::wire::{Message, Reply, Request, Upkeep};
use crate::engine::bus::Bus;
use crate::engine::store::naming::Naming;
use crate::engine::store::{Durability, EventStore, LocalStore, LocalStoreOptions, StoreError};

/// How long a store is waited for that somebody holds who does not serve it: one that collects, checks, or ends.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the holder may go away during one question.
const TRIES: usize = 20;

/// What the handles of a shared store have together.
pub(super) struct Inner {
    pub(super) directory: PathBuf,
    pub(super) options: LocalStoreOptions,
    pub(super) bus: Arc<Bus>,
    pub(super) place: RwLock<Place>,
    /// Held while another place is looked for.
    pub(super) moving: Mutex<()>,
    pub(super) settling: Arc<Settling>,
    pub(super) naming: Naming,
}

/// Where the store is, for this process.
pub(super) enum Place {
    /// Here.
    Here(Box<Here>),
    /// With another process.
    There(Arc<Remote>),
    /// Nowhere: it was closed, or is being collected.
    Nowhere,
}

pub(super) struct Here {
    pub(super) store: LocalStore,
    /// None where there can be no socket.
    server: Option<Server>,
}

impl Inner {
    pub(super) fn open(directory: &Path, options: LocalStoreOptions) -> Result<Arc<Self>, StoreError> {
        let inner = Arc::new(Self {
            directory: directory.to_owned(),
            options,
            bus: Arc::default(),
            place: RwLock::new(Place::Nowhere),
            moving: Mutex::default(),
            settling: Arc::default(),
            naming: Naming::of(directory),
        });
        inner.settling.serves(&inner);
        inner.move_from(None)?;
        Ok(inner)
    }

    pub(super) fn place(&self) -> RwLockReadGuard<'_, Place> {
        self.place.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: Place) -> Place {
        std::mem::replace(&mut *self.place.write().unwrap_or_else(PoisonError::into_inner), place)
    }

    /// Does something with the store, wherever it is; when the holder goes away, with the next one.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        here: impl Fn(&LocalStore) -> Result<T, StoreError>,
        there: impl Fn(&Remote) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            let remote = match &*self.place() {
                Place::Here(found) => return here(&found.store),
                Place::There(remote) => Arc::clone(remote),
                Place::Nowhere => return Err(StoreError::Poisoned("the store was closed".to_owned())),
            };
            match there(&remote) {
                Ok(done) => return Ok(done),
                Err(Trouble::Told(error)) => return Err(error),
                Err(Trouble::Gone) => self.move_from(Some(&remote))?,
            }
        }
        Err(self.restless())
    }

    /// The same for a question whose answer has nothing but its head.
    pub(super) fn ask<T>(
        self: &Arc<Self>,
        here: impl Fn(&LocalStore) -> Result<T, StoreError>,
        request: Request,
        read: impl Fn(Message<Reply>) -> Option<T>,
    ) -> Result<T, StoreError> {
        self.with(here, |remote| read(remote.ask(&request, &[])?).ok_or_else(|| odd_answer().into()))
    }

    fn restless(&self) -> StoreError {
        StoreError::Locked { path: self.directory.clone(), holder: "processes that come and go".to_owned() }
    }

    /// Takes the store, or finds who holds it now. Whoever comes second finds it done.
    fn move_from(self: &Arc<Self>, gone: Option<&Arc<Remote>>) -> Result<(), StoreError> {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let is_done = match (&*self.place(), gone) {
            (Place::There(now), Some(gone)) => !Arc::ptr_eq(now, gone),
            (Place::Nowhere, None) => false,
            _ => true,
        };
        if is_done {
            return Ok(());
        }
        let mut waited = Duration::ZERO;
        loop {
            let locked = match LocalStore::open_on(&self.directory, self.options.clone(), Arc::clone(&self.bus)) {
                Ok(store) => return self.hold(store),
                Err(error @ StoreError::Locked { .. }) => error,
                Err(error) => return Err(error),
            };
            if let Some(remote) = Remote::connect(&self.directory, &self.bus)? {
                match self.settling.send_to(&remote) {
                    Ok(()) => {
                        self.put(Place::There(Arc::new(remote)));
                        return Ok(());
                    }
                    Err(Trouble::Told(error)) => return Err(error),
                    Err(Trouble::Gone) => {}
                }
            }
            if waited >= PATIENCE {
                return Err(locked);
            }
            std::thread::sleep(PAUSE);
            waited += PAUSE;
        }
    }

    fn hold(self: &Arc<Self>, store: LocalStore) -> Result<(), StoreError> {
        self.settling.give_to(&store)?;
        self.put(Place::Here(Box::new(Here { store, server: None })));
        let server = Server::begin(self);
        let server =
            server.inspect_err(|error| tracing::warn!(%error, "other processes can't use the store meanwhile"));
        if let Place::Here(here) = &mut *self.place.write().unwrap_or_else(PoisonError::into_inner) {
            here.server = server.ok();
        }
        Ok(())
    }

    /// Answers another process; none when this one does not hold the store any more.
    pub(super) fn answer(self: &Arc<Self>, request: Request, tail: Bytes) -> Option<Result<Answer, StoreError>> {
        if let Request::Keep(upkeep) = request {
            return self.keep_up(upkeep).map(|report| report.map(Answer::json));
        }
        match &*self.place() {
            Place::Here(here) => {
                // What another process sees must not be lost with this one.
                let is_safe = self.options.durability == Durability::Synced;
                let synced = if is_safe { Ok(()) } else { here.store.sync() };
                Some(synced.and_then(|()| server::answer(&here.store, request, tail)))
            }
            _ => None,
        }
    }

    /// Has work on the whole store done by who holds it.
    pub(super) fn upkeep<T: serde::de::DeserializeOwned>(self: &Arc<Self>, upkeep: Upkeep) -> Result<T, StoreError> {
        let read = |report: &str| serde_json::from_str(report).map_err(|_| odd_answer());
        for _ in 0..TRIES {
            let remote = match &*self.place() {
                Place::There(remote) => Some(Arc::clone(remote)),
                _ => None,
            };
            let Some(remote) = remote else {
                match self.keep_up(upkeep) {
                    Some(report) => return read(&report?),
                    None => continue,
                }
            };
            match remote.ask(&Request::Keep(upkeep), &[]) {
                Ok(Message { head: Reply::Json(report), .. }) => return read(&report),
                Ok(_) => return Err(odd_answer()),
                Err(Trouble::Told(error)) => return Err(error),
                Err(Trouble::Gone) => self.move_from(Some(&remote))?,
            }
        }
        Err(self.restless())
    }

    /// Works on the whole of a store that is here, and gives the report as JSON; none when it is not here. Who asks
    /// anything meanwhile waits.
    fn keep_up(self: &Arc<Self>, upkeep: Upkeep) -> Option<Result<String, StoreError>> {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let here = match std::mem::replace(&mut *place, Place::Nowhere) {
            Place::Here(here) => *here,
            other => {
                *place = other;
                return None;
            }
        };
        let Here { store, server } = here;
        drop(store);
        let report = match upkeep {
            Upkeep::Collect { rehearse } => LocalStore::collect(&self.directory, rehearse).map(|report| json(&report)),
            Upkeep::Check { repair } => LocalStore::fsck(&self.directory, repair).map(|report| json(&report)),
        };
        match LocalStore::open_on(&self.directory, self.options.clone(), Arc::clone(&self.bus)) {
            Ok(store) => {
                *place = Place::Here(Box::new(Here { store, server }));
                Some(report)
            }
            // It is nobody's from now on. The answers under way, this one among them, come first.
            Err(error) => {
                drop(place);
                let ending = std::thread::Builder::new().spawn(|| server.map(Server::stop));
                Some(report.and(ending.map_or(Err(error.clone()), |_| Err(error))))
            }
        }
    }

    pub(super) fn sync(self: &Arc<Self>) -> Result<(), StoreError> {
        self.ask(|store| store.sync(), Request::Sync, done)
    }

    pub(super) fn close(&self) {
        if let Place::Here(here) = self.put(Place::Nowhere) {
            let Here { store, server } = *here;
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
}

fn json(report: &impl serde::Serialize) -> String {
    serde_json::to_string(report).unwrap_or_default()
}

pub(super) fn done(message: Message<Reply>) -> Option<()> {
    matches!(message.head, Reply::Done).then_some(())
}

pub(super) fn odd_answer() -> StoreError {
    let message = "its answer makes no sense".to_owned();
    StoreError::Elsewhere { message, hint: Some("end the process that holds the store, and try again".to_owned()) }
}
