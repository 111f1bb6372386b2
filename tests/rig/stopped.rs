//! Processes that are stopped for a while.

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// Stops a process, and waits until none of its threads runs: on a busy machine some still do after `kill` has
/// returned.
pub(crate) fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    eventually("the process is stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat"))).all(|status| {
            // A thread whose file is gone has ended.
            status.map_or(true, |status| status.contains(") T "))
        })
    });
}

/// Resumes a stopped process, which may be gone.
pub(crate) fn resume(process: Pid) {
    let _ = kill_process(process, Signal::CONT);
}
