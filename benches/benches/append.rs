//! Recording events and calls. Ratios between engines are in the `report` program, which runs them in turn.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foldspace::store::Durability;
use foldspace_benches::disk::Scratch;
use foldspace_benches::loads::append::CASES;
use foldspace_benches::loads::{calls, no_wait};
use foldspace_benches::log::{Load, Until};
use foldspace_benches::peers::{self, Foldspace};

fn append(criterion: &mut Criterion) {
    for (case, writers, in_flight) in CASES {
        let mut group = criterion.benchmark_group(format!("append, {case}"));
        group.throughput(Throughput::Elements(1));
        for (name, open) in peers::ALL {
            let scratch = Scratch::new("append").expect("a directory");
            let log = open(scratch.path()).expect("an engine");
            let mut round = 0;
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|events| {
                    round += 1;
                    // Every writer writes whole events: a few more than asked for, which is put right.
                    let each = events.div_ceil(u64::from(writers));
                    let load = Load { writers, in_flight, from: round << 32, until: Until::Count(each) };
                    let run = log.run(load).expect("a run");
                    run.took.mul_f64(events as f64 / run.events as f64)
                });
            });
        }
        group.finish();
    }
}

fn append_no_wait(criterion: &mut Criterion) {
    let scratch = Scratch::new("no-wait").expect("a directory");
    let store = Foldspace::open_as(scratch.path(), Durability::Buffered).expect("a store");
    criterion.bench_function("append without waiting", |bencher| {
        bencher.iter_custom(|events| no_wait::submit(&store, 0, events, Duration::ZERO).expect("events").iter().sum());
    });
}

fn tool_calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write_file of 1 KiB");
    for (name, durability) in [("buffered", Durability::Buffered), ("synced", Durability::Synced)] {
        let mut calls = calls::Bench::open(durability).expect("a session");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| calls.write_files(count).expect("calls").iter().sum());
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = append, append_no_wait, tool_calls
}
criterion_main!(benches);
