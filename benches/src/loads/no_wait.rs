//! Taking an event without waiting for the disk.

use std::time::{Duration, Instant};

use anyhow::Result;
use foldspace::store::Durability;

use super::Size;
use crate::disk::Scratch;
use crate::log::Record;
use crate::peers::Foldspace;
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// Takes so many events one after the other, and gives how long each took.
///
/// # Errors
/// What the store says.
pub fn submit(store: &Foldspace, from: u64, count: u64, pause: Duration) -> Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(usize::try_from(count)?);
    for seq in from..from + count {
        let record = Record::new(0, seq);
        let start = Instant::now();
        drop(store.take(&record)?);
        latencies.push(start.elapsed());
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
    Ok(latencies)
}

/// Measures at full speed and at a steady pace.
///
/// # Errors
/// What the store says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let head = ["pace", "events/s", "p50 us (target <= 20)", "p99 us", "p99.9 us", "max us"];
    let mut table = Table::new("append_no_wait: one writer, `Durability::Buffered`", &head);
    let scratch = Scratch::new("no-wait")?;
    let store = Foldspace::open_as(scratch.path(), Durability::Buffered)?;
    submit(&store, 0, 10_000, Duration::ZERO)?;
    let paces = [
        ("20,000 a second", size.of(10_000, 60_000), Duration::from_micros(50)),
        ("as fast as it can", size.of(50_000, 500_000), Duration::ZERO),
    ];
    for (name, count, pause) in paces {
        let start = Instant::now();
        let mut latencies = submit(&store, 1 << 32, count, pause)?;
        let rate = count as f64 / start.elapsed().as_secs_f64();
        let mut at = |part| quantile(&mut latencies, part).map_or(f64::NAN, micros);
        let (middle, high, higher, most) = (at(0.5), at(0.99), at(0.999), at(1.0));
        let middle = against(middle, 20.0, false);
        table.row([name.to_owned(), number(rate), middle, number(high), number(higher), number(most)]);
    }
    Ok(vec![table])
}
