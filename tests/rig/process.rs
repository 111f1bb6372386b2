//! Processes of this test binary, which tests start to kill them.

use std::ffi::OsStr;
use std::process::Command;

const WORK: &str = "FOLDSPACE_TEST_PROCESS";
const ORDERS: &str = "FOLDSPACE_TEST_ORDERS";

/// Prepares a process that does a named work of `process_entry` in `main.rs`.
pub(crate) fn process(work: &str, orders: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process_entry", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(WORK, work).env(ORDERS, orders);
    command
}

/// Returns the work that this process was started for, and its orders.
pub(crate) fn ordered() -> (String, String) {
    let told = |name| std::env::var(name).expect("only the tests start this");
    (told(WORK), told(ORDERS))
}
