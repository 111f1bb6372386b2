//! Tool calls over MCP's pipes and over HTTP, beside a message to another process and back. It needs the program:
//! `cargo build --release` first, or `FOLDSPACE_PROGRAM`.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::time::Duration;

use anyhow::Result;
use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use foldspace_benches::loads::faces::{Echo, Pipes, Sockets};

fn each(bencher: &mut Bencher<'_>, mut once: impl FnMut() -> Result<Duration>) {
    bencher.iter_custom(|times| (0..times).map(|_| once().expect("a measured call")).sum());
}

fn pipes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a call over pipes");
    let mut pipes = Pipes::start().expect("the program");
    group.bench_function("MCP read_file", |bencher| each(bencher, || pipes.read()));
    group.bench_function("a message to cat and back, the limit", |bencher| each(bencher, || pipes.limit()));
    group.finish();
}

fn sockets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a call over TCP");
    let mut sockets = Sockets::start().expect("the program");
    group.bench_function("HTTP read_file", |bencher| each(bencher, || sockets.read()));
    group.bench_function("HTTP write_file", |bencher| each(bencher, || sockets.write()));
    let mut echo = Echo::start(1_280).expect("a port");
    group.bench_function("bytes to a thread and back, the limit", |bencher| each(bencher, || echo.exchange()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = pipes, sockets
}
criterion_main!(benches);
