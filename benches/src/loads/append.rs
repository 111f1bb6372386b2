//! Events of 200 bytes, acknowledged when they are on the disk: foldspace, the limit, and the peers.

use std::time::Duration;

use anyhow::Result;

use super::Size;
use crate::disk::Scratch;
use crate::log::{Load, Loaded, Run, Until};
use crate::peers;
use crate::sample::{median, micros, quantile};
use crate::table::{Table, number};

/// Writers, and events that each has on the way.
pub const CASES: [(&str, u32, usize); 3] =
    [("1 writer", 1, 1), ("8 writers, 1 in flight each", 8, 1), ("8 writers, 64 in flight each", 8, 64)];

/// How much slower than the limit it may be.
const TARGET: f64 = 1.3;

struct Engine {
    name: &'static str,
    log: Box<dyn Loaded>,
    rates: Vec<f64>,
    middles: Vec<f64>,
    /// Removed after the engine is closed.
    _scratch: Scratch,
}

/// Measures all engines in turn, several times over.
///
/// # Errors
/// What an engine says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    CASES.iter().map(|case| table(size, *case)).collect()
}

fn table(size: Size, (name, writers, in_flight): (&str, u32, usize)) -> Result<Table> {
    let mut engines = Vec::new();
    for (name, open) in peers::ALL {
        let scratch = Scratch::new("append")?;
        let log = open(scratch.path())?;
        engines.push(Engine { name, log, rates: Vec::new(), middles: Vec::new(), _scratch: scratch });
    }
    let passed = Duration::from_millis(size.of(150, 400));
    for round in 0..size.of(3, 7) {
        for engine in &mut engines {
            let until = Until::Passed(if round == 0 { passed / 2 } else { passed });
            let run = engine.log.run(Load { writers, in_flight, from: round << 32, until })?;
            // The first round only warms up.
            if round > 0 {
                engine.take(run);
            }
        }
    }
    let head = ["engine", "events/s", "p50 us", "ratio to the limit"];
    let mut table = Table::new(format!("append, {name} (target: foldspace within {TARGET}x of the limit)"), &head);
    for engine in &engines {
        let ratios: Vec<f64> = engine.rates.iter().zip(&engines[0].rates).map(|(rate, limit)| rate / limit).collect();
        let middle = number(median(&engine.middles));
        table.row([engine.name.to_owned(), number(median(&engine.rates)), middle, number(median(&ratios))]);
    }
    Ok(table)
}

impl Engine {
    fn take(&mut self, mut run: Run) {
        self.rates.push(run.rate());
        let middle = quantile(&mut run.latencies, 0.5);
        self.middles.push(middle.map_or(f64::NAN, micros));
    }
}
