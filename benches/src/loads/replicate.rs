//! Copying the journal to object storage while it is written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use foldspace::Timestamp;
use foldspace::event::{Clock, SystemClock};
use foldspace::store::replication::{Replication, ReplicationProgress};

use super::Size;
use crate::disk::Scratch;
use crate::log::{Log, Record};
use crate::peers::Foldspace;
use crate::sample::{median, quantile};
use crate::table::{Table, against, number};

/// Names a place in S3, in place of a directory.
pub const PLACE: &str = "FOLDSPACE_BENCH_S3";
/// Events that are appended together, each a millisecond later than the last: 5,000 a second.
const TOGETHER: u64 = 5;
const ROUNDS: u32 = 5;

/// Figures of one run.
struct Run {
    /// Microseconds of processor time of an append, and what the threads of the copy took of them.
    cost: f64,
    copying: f64,
    rate: f64,
    /// Milliseconds from the acknowledgement of each event until it was in the copy.
    lags: Vec<i64>,
}

/// Compares appends at a steady pace with and without a copy, in turn.
///
/// # Errors
/// An error of the store, or of the storage.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let time = Duration::from_secs(size.of(3, 20));
    for round in 0..size.of(1, ROUNDS) {
        without.push(run(time, None)?);
        let copy = Scratch::new("copy")?;
        let url = match std::env::var(PLACE) {
            Ok(place) => format!("{place}/{}-{round}", std::process::id()),
            Err(_) => format!("file://{}", copy.path().canonicalize()?.display()),
        };
        with.push(run(time, Some(&url))?);
    }
    let head = [
        "5,000 events/s in groups of 5",
        "events/s",
        "processor time of an append, us",
        "of it in threads of the copy",
        "that is more (target <= 5 %)",
        "lag p50 / p99 ms (target p99 <= 2,000)",
    ];
    let place = if std::env::var_os(PLACE).is_some() { "S3" } else { "a directory" };
    let mut table = Table::new(format!("replicate: a copy of the journal in {place}, every second"), &head);
    let middle = |runs: &[Run], of: fn(&Run) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
    let (bare, copied) = (middle(&without, |run| run.cost), middle(&with, |run| run.cost));
    // The rest differs from run to run by more than the copy costs.
    let copying = middle(&with, |run| run.copying);
    let rates = [&without, &with].map(|runs| number(middle(runs, |run| run.rate)));
    let [rate, rate_copied] = rates;
    table.row(["without a copy".to_owned(), rate, number(bare), "-".to_owned(), "-".to_owned(), "-".to_owned()]);
    let mut lags: Vec<i64> = with.into_iter().flat_map(|run| run.lags).collect();
    let mut lag = |part| quantile(&mut lags, part).map_or(f64::NAN, |lag| lag as f64);
    let (half, most) = (lag(0.5), lag(0.99));
    let lags = format!("{} / {}", number(half), against(most, 2_000.0, false));
    let more = against(copying / (copied - copying) * 100.0, 5.0, false);
    table.row(["with it".to_owned(), rate_copied, number(copied), number(copying), more, lags]);
    Ok(vec![table])
}

fn run(time: Duration, url: Option<&str>) -> Result<Run> {
    let scratch = Scratch::new("replicate")?;
    let store = Foldspace::open(scratch.path())?;
    // The journal exists once something was recorded.
    store.wait(store.submit(&Record::new(0, 0))?)?;
    let replication = url.map(|url| Replication::start(scratch.path(), url)).transpose()?;
    let (acknowledged, is_over) = (Mutex::new(Vec::<i64>::new()), AtomicBool::new(false));
    let clock = SystemClock::default();
    let (begun, processor) = (clock.monotonic_micros(), processor_time());
    // It is watched also without a copy, since that takes processor time.
    let progress = replication.as_ref().map(|replication| replication.progress()).unwrap_or_default();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&progress, &acknowledged, &is_over));
        let written = write(&store, time, &acknowledged);
        let cost = processor_time().saturating_sub(processor).as_secs_f64() * 1e6;
        let copying = if replication.is_some() { copying_time()?.as_secs_f64() * 1e6 } else { 0.0 };
        let seconds = (clock.monotonic_micros() - begun) as f64 / 1e6;
        is_over.store(true, Ordering::Relaxed);
        let lags = watching.join().ok().context("the watcher failed")?;
        let count = written? as f64;
        Ok(Run { cost: cost / count, copying: copying / count, rate: count / seconds, lags })
    })
}

fn write(store: &Foldspace, time: Duration, acknowledged: &Mutex<Vec<i64>>) -> Result<u64> {
    let clock = SystemClock::default();
    let mut count = 0;
    while Duration::from_micros(clock.monotonic_micros()) < time {
        let due = Duration::from_millis(count / TOGETHER);
        std::thread::sleep(due.saturating_sub(Duration::from_micros(clock.monotonic_micros())));
        let taken = (0..TOGETHER).map(|at| store.submit(&Record::new(at as u32, count + at + 1)));
        for pending in taken.collect::<Result<Vec<_>>>()? {
            store.wait(pending)?;
        }
        let now = clock.now().0;
        let mut acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        acknowledged.extend([now; TOGETHER as usize]);
        count += TOGETHER;
    }
    Ok(count)
}

/// Looks at the progress until the end, and gives the lag of each event that was copied.
fn watch(progress: &ReplicationProgress, acknowledged: &Mutex<Vec<i64>>, is_over: &AtomicBool) -> Vec<i64> {
    let clock = SystemClock::default();
    let (mut copied, mut lags) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        let Some(Timestamp(until)) = progress.now().until else { continue };
        let now = clock.now().0;
        let acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = acknowledged[copied..].iter().take_while(|at| **at < until);
        lags.extend(fresh.map(|at| now - at));
        copied = lags.len();
    }
    lags
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the processor time of the threads that copy: nothing else here has a runtime of tokio.
fn copying_time() -> Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        let name = std::fs::read_to_string(thread.join("comm"))?;
        if name.starts_with("foldspace-repli") || name.starts_with("tokio-") {
            let times = std::fs::read_to_string(thread.join("schedstat"))?;
            nanos += times.split(' ').next().context("the kernel counts no times of threads")?.parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(nanos))
}
