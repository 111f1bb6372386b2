//! Folding: a whole journal, a random position, a clone.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use foldspace::Recorded;
use foldspace::event::{Payload, SessionId, Timestamp};
use foldspace::fold::Folding;
use foldspace::reducers::{DeclaredFolding, DeclaredSlice, DeclaredSlices};
use foldspace_benches::journal::{Plan, Shape};
use foldspace_benches::loads::{clone, replay, state_at};
use serde::de::IgnoredAny;
use serde_json::json;

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

/// A declared slice over own events, beside a reader that only checks that they are JSON.
fn declared(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fold of 100,000 own events");
    let rule = json!({ "kinds": ["plan.step"], "fold": "latest_by", "key": "/id" });
    let declaration = serde_json::from_value(json!({ "name": "Plan", "rules": [rule] })).expect("a declaration");
    let slices = DeclaredSlices::default().with(DeclaredSlice::begin(declaration, 1).expect("a slice"));
    let events: Vec<Recorded> = (1..=100_000).map(step).collect();
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("latest_by", |bencher| {
        bencher.iter(|| {
            let mut fold = Box::new(DeclaredFolding::new(slices.clone()));
            events.iter().for_each(|event| fold.apply(&event.view()).expect("an event"));
            fold.finish()
        });
    });
    group.bench_function("the floor: read as JSON", |bencher| {
        let read = |event: &&Recorded| serde_json::from_slice::<IgnoredAny>(&event.event.bytes).is_ok();
        bencher.iter(|| events.iter().filter(read).count());
    });
    group.finish();
}

fn step(seq: u64) -> Recorded {
    let data = json!({ "id": seq % 1000, "status": "open", "title": format!("step {seq}") });
    let bytes = serde_json::to_vec(&data).expect("JSON").into();
    let event = Payload { kind: "plan.step".into(), version: 1, bytes };
    let session = SessionId::from_bytes([1; 16]);
    Recorded { session, seq, time: Timestamp(1), call: None, agent: "".into(), event }
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
    targets = replay, state_at, clones, declared
}
criterion_main!(benches);
