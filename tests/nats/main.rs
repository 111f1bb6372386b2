//! The tests against a cluster of NATS servers, and of the rig that makes one and breaks it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect, and looks at files and processes itself"
)]

mod checker;
#[expect(dead_code, reason = "disks that the other test binaries mount")]
#[path = "../rig/disk.rs"]
mod disk;
mod faults;
mod hosts;
mod proofs;
mod rig;
mod senseless;
#[path = "../rig/stopped.rs"]
mod stopped;
mod stored;
#[path = "../../src/testing.rs"]
mod testing;
mod writers;

use testing::{eventually, skip};
