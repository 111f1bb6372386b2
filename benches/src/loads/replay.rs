//! Folding a long journal from its first event, beside reading and checking the same bytes.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use foldspace::session::{Keep, SnapshotPolicy};
use foldspace::store::{Durability, LocalStoreOptions};
use foldspace::{Session, SessionId, Sessions};

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
        let sessions = open(scratch.path(), pack)?;
        drop(journal::write(&sessions, "long", plan)?);
        sessions.close();
        let sessions = open(scratch.path(), pack)?;
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
    pub fn replay(&self) -> Result<Took> {
        self.session.forget_states();
        let took = Took::since();
        let state = self.session.state()?;
        ensure!(state.seq() == self.events && state.unreadable() == 0, "the fold is not whole");
        Ok(took())
    }

    /// Reads its files and checks them: what no replay can be faster than on one core.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn floor(&self) -> Result<Took> {
        floor_of(self.scratch.path())
    }
}

/// Times of one piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// By the clock.
    pub clock: Duration,
    /// Of the processors, which is the time on one core, whatever else the machine does.
    pub processor: Duration,
}

impl Took {
    /// Begins to measure.
    fn since() -> impl FnOnce() -> Self {
        let processor = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
        };
        let (clock, before) = (Instant::now(), processor());
        move || Self { clock: clock.elapsed(), processor: processor() - before }
    }
}

/// Bytes of a segment's head, of a frame's header, and to which frames are aligned: docs/FORMAT.md has it all.
const HEAD: usize = 64;
const HEADER: usize = 24;
const ALIGN: usize = 8;

fn floor_of(directory: &Path) -> Result<Took> {
    let took = Took::since();
    let mut buffer = vec![0; 1 << 20];
    for entry in std::fs::read_dir(directory.join("journal"))? {
        let mut file = std::fs::File::open(entry?.path())?;
        let (mut kept, mut skip) = (0, HEAD);
        loop {
            let count = std::io::Read::read(&mut file, &mut buffer[kept..])?;
            let bytes = &buffer[skip.min(kept + count)..kept + count];
            let left = check_frames(bytes)?;
            if count == 0 || left == bytes.len() && skip == 0 {
                break;
            }
            let from = kept + count - left;
            buffer.copy_within(from..kept + count, 0);
            (kept, skip) = (left, 0);
        }
    }
    Ok(took())
}

/// Checks both checksums of each whole frame; gives how many bytes are left behind them.
fn check_frames(mut bytes: &[u8]) -> Result<usize> {
    let word = |at: &[u8]| at.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let length = word(header) as usize;
        // Behind the last frame there are zeros.
        if length == 0 || rest.len() < length.next_multiple_of(ALIGN) {
            break;
        }
        let is_whole = crc32c::crc32c(&rest[..length]) == word(&header[16..]);
        ensure!(is_whole && crc32c::crc32c(&header[..20]) == word(&header[20..]), "a frame is damaged");
        bytes = &rest[length.next_multiple_of(ALIGN)..];
    }
    Ok(bytes.len())
}

/// Reads the commits of a session from raw segments, each where it is, and neighbours at once: what no replay of it can
/// be faster than on one core while its commits lie apart.
fn bare_reads(directory: &Path, session: SessionId) -> Result<Took> {
    let mut places = Vec::new();
    for entry in std::fs::read_dir(directory.join("journal"))? {
        let path = entry?.path();
        let (bytes, mut at) = (std::fs::read(&path)?, HEAD);
        let mut runs: Vec<(u64, usize)> = Vec::new();
        while let Some(length) =
            bytes.get(at..at + 4).and_then(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word))
            && length > 0
        {
            let end = (at + HEADER + length as usize).next_multiple_of(ALIGN);
            if bytes[at + HEADER..].starts_with(session.as_bytes()) {
                match runs.last_mut().filter(|(from, length)| *from as usize + length == at) {
                    Some((_, length)) => *length += end - at,
                    None => runs.push((at as u64, end - at)),
                }
            }
            at = end;
        }
        places.push((std::fs::File::open(path)?, runs));
    }
    let took = Took::since();
    let mut buffer = vec![0; 1 << 20];
    for (file, runs) in &places {
        for (at, length) in runs {
            file.read_exact_at(&mut buffer[..*length], *at)?;
        }
    }
    Ok(took())
}

/// Opens a store without snapshots, in which all full segments are packed or none.
fn open(directory: &Path, pack: bool) -> Result<Sessions> {
    let options = LocalStoreOptions { durability: Durability::Buffered, pack, raw_segments: 0, ..Default::default() };
    journal::open_with(directory, options, OFF)
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
    bail!("the segments are not packed after a minute")
}

/// Measures both shapes of journals.
///
/// # Errors
/// What the store says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let events = size.of(200_000, 1_000_000);
    let head = [
        "journal",
        "events/s (target >= 5,000,000)",
        "ms",
        "processor ms",
        "floor: processor ms to read and check the CRCs",
        "floor / replay (target >= 0.25)",
    ];
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
            folds.push(journal.replay()?);
            floors.push(journal.floor()?);
        }
        let middle = |took: &[Took], of: fn(&Took) -> Duration| {
            median(&took.iter().map(|took| of(took).as_secs_f64()).collect::<Vec<_>>())
        };
        let clock = middle(&folds, |took| took.clock);
        let [fold, floor] = [&folds, &floors].map(|took| middle(took, |took| took.processor));
        let rate = against(journal.events as f64 / clock, 5e6, true);
        let ratio = against(floor / fold, 0.25, true);
        table.row([name.to_owned(), rate, number(clock * 1e3), number(fold * 1e3), number(floor * 1e3), ratio]);
    }
    in_turn(size, &mut table)?;
    Ok(vec![table])
}

/// Sessions that are recorded at once.
const SESSIONS: usize = 200;

/// One session of many that were recorded in turn: its events lie far apart.
fn in_turn(size: Size, table: &mut Table) -> Result<()> {
    let plan = Plan { shape: Shape::Calls, events: size.of(1_000, 5_000), paths: 100 };
    for (name, pack) in [
        ("one of 200, recorded in turn (target >= 3,000,000)", false),
        ("the same, full segments packed (target >= 4,000,000)", true),
    ] {
        let scratch = Scratch::new("in-turn")?;
        let sessions = open(scratch.path(), pack)?;
        journal::write_in_turn(&sessions, SESSIONS, plan)?;
        sessions.close();
        let sessions = open(scratch.path(), pack)?;
        if pack {
            wait_until_packed(scratch.path())?;
        }
        let ids = (0..11).map(|number| Ok(sessions.find(&format!("in-turn-{}", number * 17))?.id));
        let ids: Vec<SessionId> = ids.collect::<Result<_>>()?;
        let (mut clocks, mut folds, mut events) = (Vec::new(), Vec::new(), 0);
        for id in &ids {
            let session = sessions.session(*id)?;
            let took = Took::since();
            events = session.state()?.seq();
            let took = took();
            clocks.push(took.clock.as_secs_f64());
            folds.push(took.processor.as_secs_f64());
        }
        let (clock, fold) = (median(&clocks), median(&folds));
        let floor = floor_of(scratch.path())?.processor.as_secs_f64() / SESSIONS as f64;
        let rate = number(events as f64 / clock);
        table.row([
            name.to_owned(),
            rate,
            number(clock * 1e3),
            number(fold * 1e3),
            number(floor * 1e3),
            number(floor / fold),
        ]);
        if !pack {
            let reads = ids.iter().map(|id| Ok(bare_reads(scratch.path(), *id)?.clock.as_secs_f64()));
            let bare = median(&reads.collect::<Result<Vec<_>>>()?);
            let (name, none) = ("bare reads of its commits, one thread".to_owned(), String::new);
            table.row([name, number(events as f64 / bare), number(bare * 1e3), none(), none(), none()]);
        }
    }
    Ok(())
}
