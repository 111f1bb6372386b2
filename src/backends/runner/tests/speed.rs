//! Numbers to look at, not to assert: `cargo test --release --lib -- --ignored --nocapture runner_speed`.

use std::process::{Command, Stdio};

use super::connection::now;
use super::*;

fn median(what: &str, times: u32, mut run: impl FnMut()) {
    let mut taken: Vec<Duration> = (0..times)
        .map(|_| {
            let start = now();
            run();
            now() - start
        })
        .collect();
    taken.sort_unstable();
    println!("{what:<40} median {:>9.1?}, 95 % {:>9.1?}", taken[taken.len() / 2], taken[taken.len() * 95 / 100]);
}

#[test]
#[ignore = "measures"]
fn runner_speed() {
    let world = World::new();
    let content = vec![b'x'; 4096];
    world.runner.write(Path::new("file"), WriteMode::New, false, &content).unwrap();
    for _ in 0..2 {
        median("std spawn and wait, no output", 500, || {
            Command::new("/bin/true").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        });
        median("std spawn and wait, output captured", 500, || {
            Command::new("/bin/true").output().unwrap();
        });
        let command = spec(&["/bin/true"]);
        median("runner: run /bin/true", 500, || {
            run(&world.runner, &command).unwrap();
        });
        median("runner: sh -c true", 500, || {
            run(&world.runner, &shell("true")).unwrap();
        });
        median("runner: ping", 2000, || world.runner.ping().unwrap());
        median("runner: read 4 KiB", 2000, || {
            world.runner.read(Path::new("file"), 4096).unwrap();
        });
        median("runner: write 4 KiB", 2000, || {
            world.runner.write(Path::new("file"), WriteMode::Replace, false, &content).unwrap();
        });
        median("a new runner and its end", 50, || drop(Runner::spawn_on_host(world.root()).unwrap()));
    }
}
