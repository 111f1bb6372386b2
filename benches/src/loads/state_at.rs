//! The state at a random position of a long session, nothing kept in memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::{Session, Sessions};

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::sample::{Noise, micros, quantile};
use crate::table::{Table, against, number};

/// A session with snapshots, closed and opened again.
pub struct Past {
    session: Session,
    head: u64,
    noise: Noise,
    sessions: Sessions,
    _scratch: Scratch,
}

impl Past {
    /// Writes a session and opens it again.
    ///
    /// # Errors
    /// What the store says.
    pub fn new(events: u64, paths: u64) -> Result<Self> {
        let scratch = Scratch::new("state-at")?;
        let policy = SnapshotPolicy::default();
        let sessions = journal::open(scratch.path(), Durability::Buffered, true, policy)?;
        drop(journal::write(&sessions, "long", Plan { shape: Shape::Calls, events, paths })?);
        sessions.close();
        Self::open(scratch, "long")
    }

    /// Opens the store of a session that was written.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn open(scratch: Scratch, name: &str) -> Result<Self> {
        let sessions = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
        let session = sessions.session(sessions.find(name)?.id)?;
        Ok(Self { head: session.head()?, session, noise: Noise::new(1), sessions, _scratch: scratch })
    }

    /// How many snapshots it has.
    ///
    /// # Errors
    /// What the store says.
    pub fn snapshots(&self) -> Result<usize> {
        Ok(self.sessions.store().snapshots(self.session.id())?.len())
    }

    /// The part of the store's bytes on the disk that its snapshots have.
    ///
    /// # Errors
    /// What the store says.
    pub fn share(&self) -> Result<f64> {
        let uses = self.sessions.store().usage()?;
        let bytes = |what: &str| uses.iter().filter(|used| used.what == what).map(|used| used.disk_bytes).sum::<u64>();
        let all = bytes("journal files") + bytes("index") + bytes("snapshots");
        Ok(bytes("snapshots") as f64 / all as f64)
    }

    /// Goes to a random position.
    ///
    /// # Errors
    /// What the store says.
    pub fn look(&mut self) -> Result<Duration> {
        let seq = 1 + self.noise.below(self.head);
        self.session.forget_states();
        let start = Instant::now();
        let state = self.session.state_at(seq)?;
        let took = start.elapsed();
        ensure!(state.seq() == seq, "another position");
        Ok(took)
    }
}

/// Measures a session with many files and one with fewer.
///
/// # Errors
/// What the store says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let events = size.of(50_000, 1_000_000);
    let head = [
        "session",
        "snapshots",
        "their share of the store, % (target <= 30)",
        "p50 ms",
        "p99 ms (target <= 5)",
        "max ms",
    ];
    let mut table = Table::new(format!("state_at: random positions of {events} events, caches cold"), &head);
    for paths in [10_000, 1_000] {
        let mut past = Past::new(events, paths)?;
        let mut all = Vec::new();
        for _ in 0..size.of(100, 400) {
            all.push(past.look()?);
        }
        let mut at = |part| quantile(&mut all, part).map_or(f64::NAN, micros) / 1e3;
        let (middle, high, most) = (number(at(0.5)), against(at(0.99), 5.0, false), number(at(1.0)));
        let share = against(past.share()? * 100.0, 30.0, false);
        table.row([format!("{paths} files"), past.snapshots()?.to_string(), share, middle, high, most]);
    }
    Ok(vec![table])
}
