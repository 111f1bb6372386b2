//! foldspace: a session per writer, commits of one event.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use foldspace::event::{Clock, CodecError, SystemClock};
use foldspace::store::{Durability, LocalStoreOptions, Pending, RemoteStore, StoreServer};
use foldspace::{Commit, Event, EventStore, LocalStore, Registry, SessionId, Sessions};
use serde::{Deserialize, Serialize};

use crate::log::{Log, Record};

/// An event that is bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Blob(pub Vec<u8>);

impl Event for Blob {
    const KIND: &'static str = "Blob";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn decode(_: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(Self(bytes.to_vec()))
    }
}

const AGENTS: usize = 8;

/// A store of this process, or one that it works in through its owner.
pub struct Foldspace {
    store: Box<dyn EventStore>,
    /// It ends after the one that works through it.
    _owner: Option<(StoreServer, Sessions)>,
    clock: SystemClock,
    /// One for each writer, as sessions have.
    agents: [Arc<str>; AGENTS],
}

impl Foldspace {
    /// Opens a store that acknowledges what is on the disk.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_as(directory, Durability::Synced)
    }

    /// Opens a store.
    ///
    /// # Errors
    /// What the store says.
    pub fn open_as(directory: &Path, durability: Durability) -> Result<Self> {
        let store = LocalStore::open(directory, LocalStoreOptions { durability, ..LocalStoreOptions::default() })?;
        Ok(Self::over(Box::new(store), None))
    }

    /// Opens a store and serves it: what is measured goes over the socket to its owner, as from another process.
    ///
    /// # Errors
    /// What the store says.
    pub fn through(directory: &Path) -> Result<Self> {
        let sessions = Sessions::open(directory, Registry::standard())?;
        let server = StoreServer::start(&sessions, directory)?;
        let store = RemoteStore::connect(directory)?.ok_or_else(|| anyhow::anyhow!("nobody serves it"))?;
        Ok(Self::over(Box::new(store), Some((server, sessions))))
    }

    fn over(store: Box<dyn EventStore>, owner: Option<(StoreServer, Sessions)>) -> Self {
        Self {
            store,
            _owner: owner,
            clock: SystemClock::default(),
            agents: std::array::from_fn(|n| Arc::from(format!("agent-{n}"))),
        }
    }

    /// Takes an event.
    ///
    /// # Errors
    /// What the store says.
    pub fn take(&self, record: &Record) -> Result<Pending> {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&record.writer.to_le_bytes());
        let agent = &self.agents[record.writer as usize % AGENTS];
        let mut commit = Commit::new(SessionId::from_bytes(id), self.clock.now()).as_agent(agent);
        commit.push_encoded(Blob::KIND, Blob::VERSION, &record.bytes)?;
        Ok(self.store.submit(commit)?)
    }
}

impl Log for Foldspace {
    type Ticket = Pending;

    fn submit(&self, record: &Record) -> Result<Pending> {
        self.take(record)
    }

    fn wait(&self, ticket: Pending) -> Result<()> {
        ticket.wait()?;
        Ok(())
    }
}
