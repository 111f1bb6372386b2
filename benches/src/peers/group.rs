//! Group commit for engines without one of their own.
//!
//! Whoever waits while nobody writes takes what has gathered and writes it: with one writer that
//! costs no change of threads, with many they share a sync.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use super::Peer;
use crate::log::{Log, Record};

/// An engine behind a group commit.
#[derive(Debug)]
pub struct Grouped<P> {
    gathered: Mutex<Gathered>,
    state: Mutex<State>,
    changed: Condvar,
    peer: Mutex<Writing<P>>,
}

#[derive(Debug, Default)]
struct Gathered {
    records: Vec<Record>,
    number: u64,
}

#[derive(Debug, Default)]
struct State {
    durable: u64,
    writing: bool,
    failed: bool,
}

#[derive(Debug)]
struct Writing<P> {
    peer: P,
    spare: Vec<Record>,
}

impl<P: Peer> Grouped<P> {
    /// Puts a group commit before an engine.
    pub fn new(peer: P) -> Self {
        Self {
            gathered: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            peer: Mutex::new(Writing { peer, spare: Vec::new() }),
        }
    }

    fn write_group(&self) -> Result<u64> {
        let writing = &mut *lock(&self.peer);
        let mut gathered = lock(&self.gathered);
        let batch = std::mem::replace(&mut gathered.records, std::mem::take(&mut writing.spare));
        let number = gathered.number;
        drop(gathered);
        writing.peer.append_batch(&batch)?;
        writing.spare = batch;
        writing.spare.clear();
        Ok(number)
    }
}

impl<P: Peer> Log for Grouped<P> {
    type Ticket = u64;

    fn submit(&self, record: &Record) -> Result<u64> {
        let mut gathered = lock(&self.gathered);
        gathered.records.push(*record);
        gathered.number += 1;
        Ok(gathered.number)
    }

    fn wait(&self, number: u64) -> Result<()> {
        let mut state = lock(&self.state);
        while state.durable < number {
            ensure!(!state.failed, "another writer's group failed");
            if state.writing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.writing = true;
            drop(state);
            let written = self.write_group();
            state = lock(&self.state);
            state.writing = false;
            match written {
                Ok(durable) => state.durable = durable,
                Err(_) => state.failed = true,
            }
            self.changed.notify_all();
            written?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
