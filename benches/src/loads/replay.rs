//! Folding a long journal from its first event, beside reading and checking the same bytes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::{Durability, Keep, Session, Sessions, SnapshotPolicy};

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::sample::median;
use crate::table::{Table, against, number};

const OFF: SnapshotPolicy = SnapshotPolicy { every: 0, keep: Keep::All };

/// A journal that is closed and opened again, without snapshots.
pub struct Journal {
    /// The session in it.
    pub session: Session,
    /// How many events it has.
    pub events: u64,
    _sessions: Sessions,
    scratch: Scratch,
}

impl Journal {
    /// Writes a journal and opens it again.
    ///
    /// # Errors
    /// What the store says.
    pub fn new(plan: Plan, pack: bool) -> Result<Self> {
        let scratch = Scratch::new("replay")?;
        let sessions = journal::open(scratch.path(), Durability::Buffered, pack, OFF)?;
        drop(journal::write(&sessions, "long", plan)?);
        sessions.close();
        let sessions = journal::open(scratch.path(), Durability::Buffered, pack, OFF)?;
        if pack {
            wait_until_packed(scratch.path())?;
        }
        let session = sessions.session(sessions.find("long")?.id)?;
        Ok(Self { events: session.head()?, session, _sessions: sessions, scratch })
    }

    /// Folds all of it.
    ///
    /// # Errors
    /// What the store says.
    pub fn replay(&self) -> Result<Duration> {
        self.session.forget_states();
        let start = Instant::now();
        let state = self.session.state()?;
        let took = start.elapsed();
        ensure!(state.seq() == self.events && state.unreadable() == 0, "the fold is not whole");
        Ok(took)
    }

    /// Reads its files and checks them: what no replay can be faster than on one core.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn floor(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut buffer = vec![0; 1 << 20];
        for entry in std::fs::read_dir(self.scratch.path().join("journal"))? {
            let mut file = std::fs::File::open(entry?.path())?;
            let mut crc = 0;
            loop {
                let count = std::io::Read::read(&mut file, &mut buffer)?;
                if count == 0 {
                    break;
                }
                crc = crc32c::crc32c_append(crc, &buffer[..count]);
            }
            std::hint::black_box(crc);
        }
        Ok(start.elapsed())
    }
}

/// Full segments are packed in the background; that must not run beside a measurement.
fn wait_until_packed(directory: &Path) -> Result<()> {
    for _ in 0..600 {
        let raw = std::fs::read_dir(directory.join("journal"))?.flatten();
        let raw = raw.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "seg" || ending == "tmp"));
        if raw.count() <= 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Measures both shapes of journals.
///
/// # Errors
/// What the store says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let events = size.of(200_000, 1_000_000);
    let head = ["journal", "events/s (target >= 5,000,000)", "ms", "floor ms (read + CRC)", "ratio to the floor"];
    let mut table = Table::new(format!("replay: {events} events on 10,000 paths, no snapshots"), &head);
    let rows = [
        ("`WriteFile`, one a commit", Shape::Writes, false),
        ("tool calls", Shape::Calls, false),
        ("tool calls, full segments packed", Shape::Calls, true),
    ];
    for (name, shape, pack) in rows {
        let journal = Journal::new(Plan { shape, events, paths: 10_000 }, pack)?;
        let (mut folds, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..size.of(3, 7) {
            folds.push(journal.replay()?.as_secs_f64());
            floors.push(journal.floor()?.as_secs_f64());
        }
        let (fold, floor) = (median(&folds), median(&floors));
        let rate = against(journal.events as f64 / fold, 5e6, true);
        table.row([name.to_owned(), rate, number(fold * 1e3), number(floor * 1e3), number(fold / floor)]);
    }
    Ok(vec![table])
}
