//! Temporary.
#![allow(clippy::all, clippy::print_stdout)]
use foldspace_benches::{journal::{Plan, Shape}, loads};
use foldspace::Durability;
use std::time::{Instant, Duration};
fn main() -> anyhow::Result<()> {
    let what = std::env::args().nth(1).unwrap_or_default();
    let ready = || { println!("ready"); std::thread::sleep(Duration::from_millis(700)); };
    match what.as_str() {
        "writes" | "calls" => {
            let shape = if what == "writes" { Shape::Writes } else { Shape::Calls };
            let j = loads::replay::Journal::new(Plan { shape, events: 1_000_000, paths: 10_000 }, false)?;
            ready();
            for _ in 0..8 { println!("{:?} floor {:?}", j.replay()?, j.floor()?); }
        }
        "at10k" | "at1k" => {
            let mut p = loads::state_at::Past::new(100_000, if what == "at10k" { 10_000 } else { 1_000 })?;
            println!("snapshots {}", p.snapshots()?);
            ready();
            let s = Instant::now();
            for _ in 0..300 { p.look()?; }
            println!("{:?}", s.elapsed() / 300);
        }
        "tool" | "toolsync" => {
            let mut b = loads::calls::Bench::open(if what == "tool" { Durability::Buffered } else { Durability::Synced })?;
            b.write_files(1000)?;
            ready();
            let s = Instant::now();
            let n = if what == "tool" { 40_000 } else { 10_000 };
            b.write_files(n)?;
            println!("{:?}", s.elapsed() / n as u32);
        }
        "append" => {
            let s = foldspace_benches::disk::Scratch::new("p")?;
            let log = foldspace_benches::peers::Foldspace::open(s.path())?;
            ready();
            use foldspace_benches::log::*;
            for r in 0..5 { println!("{}", log.run(Load { writers: 8, in_flight: 64, from: r << 32, until: Until::Passed(Duration::from_millis(800)) })?.rate()); }
        }
        "append1" => {
            let s = foldspace_benches::disk::Scratch::new("p")?;
            let log = foldspace_benches::peers::Foldspace::open_as(s.path(), Durability::Buffered)?;
            ready();
            loads::no_wait::submit(&log, 0, 3_000_000, Duration::ZERO)?;
        }
        _ => {}
    }
    Ok(())
}
