//! Folding: a whole journal, a random position, a clone.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foldspace_benches::journal::{Plan, Shape};
use foldspace_benches::loads::{clone, replay, state_at};

fn replay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay of 200,000 events");
    for (name, shape) in [("writes", Shape::Writes), ("calls", Shape::Calls)] {
        let plan = Plan { shape, events: 200_000, paths: 10_000 };
        let journal = replay::Journal::new(plan, false).expect("a journal");
        group.throughput(Throughput::Elements(journal.events));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| journal.replay().expect("a fold").clock).sum());
        });
        group.bench_function(format!("{name}, the floor: read and CRC"), |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| journal.floor().expect("a read").clock).sum());
        });
    }
    group.finish();
}

fn state_at(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("state at a random position");
    for paths in [10_000, 1_000] {
        let mut past = state_at::Past::new(50_000, paths).expect("a session");
        group.bench_function(format!("{paths} files"), |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| past.look().expect("a state")).sum());
        });
    }
    group.finish();
}

fn clones(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clone of a state");
    for files in [100, 10_000, 100_000] {
        let state = clone::state(files).expect("a state");
        group.bench_function(format!("{files} files"), |bencher| bencher.iter(|| state.clone()));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = replay, state_at, clones
}
criterion_main!(benches);
