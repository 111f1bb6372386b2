//! The integration tests: one binary, a module per area.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect, and looks at files and processes itself"
)]

mod accidents;
mod asking;
mod attached;
mod attacks;
mod calls;
mod capture;
mod cli;
mod compliance;
mod engine;
mod hooks;
mod house;
mod http;
mod hub;
mod lineage;
mod mcp;
mod merge;
mod mounts;
mod mounts_random;
mod network;
mod podman_shell;
mod policy;
mod python;
mod recorded_http;
mod remote_tools;
mod requirements;
mod rewind;
mod rig;
mod rootless;
mod scale;
mod sharing;
mod skips;
mod tidy;
mod transcripts;

/// Does the work of a process that a test has started; no test itself.
#[test]
#[ignore = "the tests start it"]
fn process_entry() {
    let (work, orders) = rig::ordered();
    match work.as_str() {
        "fill_overlay" => attacks::full::fill_overlay(&orders),
        "keep_warm" => sharing::warm::keep_until_killed(),
        "merge_or_rewind" => merge::killed::merge_or_rewind(&orders),
        _ => panic!("no process does {work}"),
    }
}
