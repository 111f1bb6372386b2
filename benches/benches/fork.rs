//! Children and the past: forks, rewinds and copies of earlier files, beside `cp -a`, `git worktree add`, `podman run`
//! and the disk's own sync.
//!
//! Workspaces in containers need `CONTAINER_HOST` and `FOLDSPACE_IMAGE`; without them those are not measured.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]
#![expect(clippy::print_stderr, reason = "it says what is not measured")]

use std::time::Duration;

use anyhow::Result;
use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use foldspace::WorkspaceSpec;
use foldspace::store::Durability;
use foldspace_benches::loads::children::Parent;
use foldspace_benches::loads::fork::Forks;
use foldspace_benches::loads::rewind::{Rewinds, Work};
use foldspace_benches::loads::{commands, materialise};

fn each(bencher: &mut Bencher<'_>, mut once: impl FnMut() -> Result<Duration>) {
    bencher.iter_custom(|times| (0..times).map(|_| once().expect("a measured load")).sum());
}

fn logs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fork of log and state");
    for (name, durability) in [("synced", Durability::Synced), ("buffered", Durability::Buffered)] {
        for events in [1_000, 100_000] {
            let parent = Parent::of(events, durability).expect("a session");
            parent.know().expect("its state");
            group.bench_function(format!("{events} events, {name}"), |bencher| each(bencher, || parent.fork()));
        }
    }
    let mut parent = Parent::of(10, Durability::Synced).expect("a session");
    group.bench_function("a bare write and fdatasync", |bencher| each(bencher, || parent.bare()));
    group.finish();
}

fn pasts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10,000 files of a past position");
    let mut past = materialise::Past::of(10_000).expect("a session");
    group.bench_function("materialise", |bencher| each(bencher, || past.once()));
    group.bench_function("cp -a of them", |bencher| each(bencher, || past.plain().copy()));
    group.bench_function("git worktree add of them", |bencher| each(bencher, || past.plain().worktree()));
    group.finish();
}

fn workspaces(criterion: &mut Criterion) {
    let options = match commands::options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("workspaces in containers: not measured: {error}");
            return;
        }
    };
    let mut group = criterion.benchmark_group("a workspace of 10,000 files");
    let mut warm = Forks::of(10_000, true).expect("a workspace with warm containers");
    group.bench_function("fork, ready to run, warm container", |bencher| each(bencher, || Ok(warm.once()?.ready)));
    group.bench_function("fork, first command, warm container", |bencher| each(bencher, || Ok(warm.once()?.ran)));
    drop(warm);
    let mut cold = Forks::of(10_000, false).expect("a workspace");
    group.bench_function("fork, first command, new container", |bencher| each(bencher, || Ok(cold.once()?.ran)));
    drop(cold);
    let mut rewinds = Rewinds::of(WorkspaceSpec::Podman(options), 10_000).expect("a workspace");
    group.bench_function("rewind by 100 events", |bencher| each(bencher, || rewinds.once(Work::Calls)));
    drop(rewinds);
    let theirs = commands::Theirs::start().expect("the engine's command line");
    group.bench_function("podman run", |bencher| each(bencher, || theirs.run()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = logs, pasts, workspaces
}
criterion_main!(benches);
