//! Calls that are repeated after their server was killed.

use rustix::process::{Signal, kill_process};

use super::serve::ServeProcess;
use crate::rig::{Program, eventually, told};

#[test]
fn call_that_was_killed_is_not_run_again() {
    let program = Program::new().through_owner();
    let serve = || ServeProcess::begin(&program, &[], |_| ());
    let server = serve();
    program.printed(&["new", "box", "--backend", "host"]);
    let exec =
        |id: &'static str, command: &'static str| ["exec", "box", "-y", "--call-id", id, "--", "sh", "-c", command];
    let done = program.output(&exec("done", "echo out; echo err >&2; echo once >> count; exit 3"));
    assert_eq!((done.status.code(), &*done.stdout), (Some(3), &b"out\n"[..]), "{}", told(&done));
    let running = program.spawn(&exec("cut", "echo twice >> count; sleep 600"));
    let events = |kind: &str| program.json_lines(&["log", "box"]).iter().filter(|event| event["kind"] == kind).count();
    eventually("the command runs", || events("CommandDecided") == 2);
    kill_process(server.pid(), Signal::KILL).unwrap();
    drop((running, server));
    let _server = serve();
    let again = program.output(&exec("done", "echo out; echo err >&2; echo once >> count; exit 3"));
    assert_eq!((again.status.code(), &*again.stdout, &*again.stderr), (Some(3), &b"out\n"[..], &b"err\n"[..]));
    let cut = program.output(&exec("cut", "echo twice >> count; sleep 600"));
    assert!(told(&cut).contains("the process that ran the call ended before it did"), "{}", told(&cut));
    assert_eq!(events("CallStarted"), 2, "none was made again");
    let count = program.output(&["exec", "box", "-y", "--", "cat", "count"]);
    assert_eq!(&*count.stdout, b"once\ntwice\n");
}
