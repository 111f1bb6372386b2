//! Commands and capture, beside the host's own spawn and the engine's command line.
//!
//! What needs a container needs `CONTAINER_HOST` and `FOLDSPACE_IMAGE`; without them only the host is measured.

#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]
#![expect(clippy::print_stderr, reason = "it says what is not measured")]

use std::time::Duration;

use anyhow::Result;
use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use foldspace_benches::loads::{capture, commands};
use foldspace_benches::sample::Noise;

fn each(bencher: &mut Bencher<'_>, mut once: impl FnMut() -> Result<Duration>) {
    bencher.iter_custom(|times| (0..times).map(|_| once().expect("a measured call")).sum());
}

fn has_engine(what: &str) -> bool {
    let engine = commands::options();
    if let Err(error) = &engine {
        eprintln!("{what}: not measured: {error}");
    }
    engine.is_ok()
}

fn command(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a command: /bin/true");
    group.bench_function("host posix_spawn and wait, the limit", |bencher| each(bencher, commands::spawn_truth));
    let host = commands::Bench::host().expect("a host workspace");
    group.bench_function("shell_execute on the host backend", |bencher| each(bencher, || host.truth()));
    if has_engine("commands in a container") {
        let container = commands::Bench::container().expect("a container");
        group.bench_function("shell_execute in a container", |bencher| each(bencher, || container.truth()));
        drop(container);
        let theirs = commands::Theirs::start().expect("the engine's command line");
        group.bench_function("podman exec", |bencher| each(bencher, || theirs.exec()));
    }
    group.finish();
}

fn first(criterion: &mut Criterion) {
    if !has_engine("the first command of a session") {
        return;
    }
    let mut group = criterion.benchmark_group("the first command of a session");
    let theirs = commands::Theirs::start().expect("the engine's command line");
    group.bench_function("podman run", |bencher| each(bencher, || theirs.run()));
    group.bench_function("shell_execute, container and all", |bencher| each(bencher, commands::first));
    group.finish();
}

fn files(criterion: &mut Criterion) {
    if !has_engine("files in a container's workspace") {
        return;
    }
    let mut group = criterion.benchmark_group("a file of 4 KiB in a container's workspace");
    let container = commands::Bench::container().expect("a container");
    let (mut noise, mut number) = (Noise::new(1), 0);
    group.bench_function("write_file", |bencher| {
        each(bencher, || {
            number += 1;
            container.write(number, &mut noise)
        });
    });
    group.bench_function("read_file", |bencher| each(bencher, || container.read(1)));
    group.finish();
}

fn looks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("finding what has changed");
    let plain = capture::plain(10_000).expect("a directory");
    group.bench_function("nothing of 10,000 files, stat index", |bencher| each(bencher, || plain.nothing()));
    drop(plain);
    if has_engine("finding what has changed in an overlay") {
        let small = capture::overlay(10_000).expect("an overlay");
        group.bench_function("nothing of 10,000 files, overlay", |bencher| each(bencher, || small.nothing()));
        drop(small);
        let mut large = capture::overlay(100_000).expect("an overlay");
        group.bench_function("2 of 100,000 files, overlay", |bencher| each(bencher, || large.two()));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(2));
    targets = command, first, files, looks
}
criterion_main!(benches);
