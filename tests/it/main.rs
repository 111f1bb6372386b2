//! The integration tests: one binary, a module per area.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect, and looks at files and processes itself"
)]

mod asking;
mod attacks;
mod calls;
mod capture;
mod cli;
mod compliance;
mod engine;
mod golden;
mod house;
mod http;
mod hub;
mod lineage;
mod mcp;
mod merge;
mod podman_shell;
mod policy;
mod rewind;
mod rig;
mod rootless;
mod sharing;
mod store;
mod tidy;
