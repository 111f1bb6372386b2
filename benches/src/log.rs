//! What is measured as a log: events of several writers, acknowledged when they are on the disk.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Bytes of an event.
pub const EVENT_BYTES: usize = 200;

const TEMPLATE: &[u8] =
    br#"{"tool":"edit_file","file_path":"src/engine/session.rs","status":"ok","micros":1234,"digest":""#;

/// An event of one writer.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Who writes.
    pub writer: u32,
    /// The how manieth event of this writer.
    pub seq: u64,
    /// The event.
    pub bytes: [u8; EVENT_BYTES],
}

impl Record {
    /// An event with half of its bytes random, in hexadecimal, as a digest or an id would be.
    pub fn new(writer: u32, seq: u64) -> Self {
        let mut bytes = [b'.'; EVENT_BYTES];
        bytes[..TEMPLATE.len()].copy_from_slice(TEMPLATE);
        let mut noise = crate::sample::Noise::new(u64::from(writer) << 48 | seq);
        for hex in bytes[TEMPLATE.len()..].as_chunks_mut::<16>().0 {
            let word = noise.word();
            for (at, byte) in hex.iter_mut().enumerate() {
                *byte = b"0123456789abcdef"[(word >> (4 * at)) as usize & 15];
            }
        }
        Self { writer, seq, bytes }
    }
}

/// A log that many writers share.
pub trait Log: Sync {
    /// By what to wait for an event.
    type Ticket;

    /// Takes an event.
    ///
    /// # Errors
    /// What the engine says.
    fn submit(&self, record: &Record) -> Result<Self::Ticket>;

    /// Returns when the event is on the disk.
    ///
    /// # Errors
    /// What the engine says.
    fn wait(&self, ticket: Self::Ticket) -> Result<()>;
}

/// How a log is written to.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Threads that write.
    pub writers: u32,
    /// Events that each may have on the way at once.
    pub in_flight: usize,
    /// The number of each writer's first event.
    pub from: u64,
    /// When it is over.
    pub until: Until,
}

/// When a load is over.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After so many events of each writer.
    Count(u64),
    /// After so long.
    Passed(Duration),
}

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Events on the disk.
    pub events: u64,
    /// From the first to the last.
    pub took: Duration,
    /// From taking an event to its being on the disk; for loads with one event on the way.
    pub latencies: Vec<Duration>,
}

impl Run {
    /// Events per second.
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }
}

/// A log of any kind that can be put under load.
pub trait Loaded {
    /// Puts it under load.
    ///
    /// # Errors
    /// What the engine says.
    fn run(&self, load: Load) -> Result<Run>;
}

impl<L: Log> Loaded for L {
    fn run(&self, load: Load) -> Result<Run> {
        let start = Instant::now();
        let runs = std::thread::scope(|scope| {
            let writers = (0..load.writers).map(|writer| scope.spawn(move || write(self, writer, load)));
            let writers: Vec<_> = writers.collect();
            writers.into_iter().map(|w| w.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?).collect()
        });
        let runs: Vec<Run> = {
            let runs: Result<Vec<Run>> = runs;
            runs?
        };
        let mut whole = Run { took: start.elapsed(), ..Run::default() };
        for run in runs {
            whole.events += run.events;
            whole.latencies.extend(run.latencies);
        }
        Ok(whole)
    }
}

fn write<L: Log>(log: &L, writer: u32, load: Load) -> Result<Run> {
    let start = Instant::now();
    let mut run = Run::default();
    let mut flying = std::collections::VecDeque::new();
    loop {
        let over = match load.until {
            Until::Count(count) => run.events == count,
            Until::Passed(limit) => start.elapsed() >= limit,
        };
        if over {
            break;
        }
        let record = Record::new(writer, load.from + run.events);
        let begun = Instant::now();
        flying.push_back(log.submit(&record)?);
        if flying.len() >= load.in_flight
            && let Some(oldest) = flying.pop_front()
        {
            log.wait(oldest)?;
        }
        if load.in_flight == 1 {
            run.latencies.push(begun.elapsed());
        }
        run.events += 1;
    }
    flying.into_iter().try_for_each(|ticket| log.wait(ticket))?;
    Ok(run)
}
