//! Forks of a workspace in a container, beside `cp -a` of its files and `podman run`.
//!
//! All of it needs `CONTAINER_HOST` and `FOLDSPACE_IMAGE`; without them nothing is measured.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]
#![expect(clippy::print_stderr, reason = "it says what is not measured")]

use std::time::Duration;

use anyhow::Result;
use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use foldspace_benches::loads::commands;
use foldspace_benches::loads::fork::Forks;

fn each(bencher: &mut Bencher<'_>, mut once: impl FnMut() -> Result<Duration>) {
    bencher.iter_custom(|times| (0..times).map(|_| once().expect("a measured fork")).sum());
}

fn forks(criterion: &mut Criterion) {
    if let Err(error) = commands::options() {
        eprintln!("forks of workspaces: not measured: {error}");
        return;
    }
    let mut group = criterion.benchmark_group("fork of a workspace of 10,000 files");
    let mut warm = Forks::of(10_000, true).expect("a workspace with warm containers");
    group.bench_function("ready to run a command, warm container", |bencher| {
        each(bencher, || Ok(warm.once()?.ready));
    });
    group.bench_function("first command, warm container", |bencher| each(bencher, || Ok(warm.once()?.ran)));
    drop(warm);
    let mut cold = Forks::of(10_000, false).expect("a workspace");
    group.bench_function("first command, new container", |bencher| each(bencher, || Ok(cold.once()?.ran)));
    group.bench_function("cp -a of the files", |bencher| each(bencher, || cold.copy()));
    drop(cold);
    let theirs = commands::Theirs::start().expect("the engine's command line");
    group.bench_function("podman run", |bencher| each(bencher, || theirs.run()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = forks
}
criterion_main!(benches);
