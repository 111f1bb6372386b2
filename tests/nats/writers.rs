//! Writers that record through stores, as those of several machines do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foldspace::event::CommitId;
use foldspace::store::{NatsStore, NatsStoreOptions, StoreHost};
use foldspace::{Commit, EventStore, SessionId, StoreError, Timestamp};
use tempfile::TempDir;

use crate::checker::{self, Acknowledged};
use crate::rig::{Cluster, NODES};
use crate::stored::hex;
use crate::testing::{Random, eventually};

pub(crate) const STREAM: &str = "TESTS";

/// A store of one machine, with the copy in a directory of its own.
pub(crate) struct Machine {
    pub(crate) store: NatsStore,
    _directory: TempDir,
}

impl Machine {
    /// Opens one that knows these nodes.
    pub(crate) fn open(cluster: &Cluster, nodes: &[usize], options: NatsStoreOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = cluster.store_address(nodes, STREAM).parse().unwrap();
        // It has threads of its own, and waits for them.
        let opened = tokio::task::block_in_place(|| NatsStore::open(&address, directory.path(), options));
        Self { store: opened.unwrap(), _directory: directory }
    }

    /// Opens one that waits for the cluster for as long as it takes.
    pub(crate) fn patient(cluster: &Cluster) -> Self {
        Self::open(cluster, &[0, 1, 2], NatsStoreOptions::default())
    }

    /// Opens one that gives up on a commit after some seconds.
    pub(crate) fn impatient(cluster: &Cluster, nodes: &[usize], seconds: u64) -> Self {
        let patience = Duration::from_secs(seconds);
        Self::open(cluster, nodes, NatsStoreOptions { patience, ..NatsStoreOptions::default() })
    }

    /// Opens one that claims sessions.
    pub(crate) fn host(cluster: &Cluster, name: &str) -> Self {
        let host = Some(StoreHost { name: name.to_owned(), at: None });
        Self::open(cluster, &[0, 1, 2], NatsStoreOptions { host, ..NatsStoreOptions::default() })
    }
}

/// Returns the session of a number.
pub(crate) fn session(number: u64) -> SessionId {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_bytes(bytes)
}

/// A commit with what the checker has to know of it.
pub(crate) struct Note {
    pub(crate) commit: Commit,
    session: SessionId,
    id: [u8; 16],
    bytes: Vec<u8>,
}

impl Note {
    /// Makes one with an id of its own, of one to three events.
    pub(crate) fn new(session: SessionId, random: &mut Random) -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.next().to_le_bytes());
        id[8..].copy_from_slice(&random.next().to_le_bytes());
        let mut commit = Commit::new(session, Timestamp(1_000)).with_id(CommitId::from_bytes(id));
        let mut bytes = Vec::new();
        for _ in 0..=random.below(3) {
            let words = 1 + random.below(70);
            let payload: Vec<u8> = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
            commit.push_encoded("Note", 1, &payload).unwrap();
            bytes.extend(payload);
        }
        Self { commit, session, id, bytes }
    }

    /// Records it, and notes that it was acknowledged.
    pub(crate) fn record(&self, store: &NatsStore, acknowledged: &Acknowledged) -> Result<(), StoreError> {
        let committed = store.submit(self.commit.duplicate())?.wait()?;
        let events = committed.last + 1 - committed.first;
        acknowledged.note(&self.session.to_string(), committed.last, events, &hex(&self.id), &self.bytes);
        Ok(())
    }
}

/// Writers at work, each in a session of its own, and what they were told.
pub(crate) struct Load {
    pub(crate) acknowledged: Arc<Acknowledged>,
    recorded: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
    _directory: TempDir,
}

impl Load {
    /// Starts writers, which are spread over three machines.
    pub(crate) fn start(cluster: &Cluster, writers: usize) -> Self {
        // What is not acknowledged in time is tried again with its id, as a program would.
        let machines = [(); NODES].map(|()| Arc::new(Machine::impatient(cluster, &[0, 1, 2], 5)));
        Self::of(&machines, writers)
    }

    /// Starts writers on these machines.
    pub(crate) fn of(machines: &[Arc<Machine>], writers: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let acknowledged = Arc::new(Acknowledged::open(directory.path().join("acknowledged")));
        let (recorded, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let writer = |number: usize| {
            let machine = Arc::clone(&machines[number % machines.len()]);
            let (acknowledged, recorded, ended) = (acknowledged.clone(), recorded.clone(), ended.clone());
            std::thread::spawn(move || {
                let (number, mut random) = (number as u64, Random(number as u64));
                while !ended.load(Ordering::Relaxed) {
                    let note = Note::new(session(number), &mut random);
                    while let Err(error) = note.record(&machine.store, &acknowledged) {
                        assert!(matches!(error, StoreError::Cluster { .. }), "{error}");
                    }
                    recorded.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let writers = (0..writers).map(writer).collect();
        Self { acknowledged, recorded, ended, writers, _directory: directory }
    }

    /// Returns the number of commits that were acknowledged.
    pub(crate) fn count(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Waits until so many more commits are acknowledged.
    pub(crate) fn await_more(&self, commits: u64) {
        let enough = self.count() + commits;
        eventually("commits are acknowledged", || self.count() >= enough);
    }

    /// Lets the writers finish.
    pub(crate) fn finish(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        eventually("the writers end", || self.writers.iter().all(JoinHandle::is_finished));
        self.writers.drain(..).for_each(|writer| writer.join().unwrap());
    }

    /// Lets the writers finish, and checks what they have written.
    pub(crate) async fn end(mut self, cluster: &Cluster) {
        self.finish();
        assert!(self.acknowledged.read().len() as u64 >= self.count());
        let found = checker::check(&cluster.connect(0).await, STREAM, &self.acknowledged).await;
        assert!(found.is_empty(), "{found:#?}");
        cluster.verify(STREAM);
    }
}
