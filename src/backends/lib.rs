//! The workspaces and shells of foldspace. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_engine::*;
pub use foldspace_network::network;

#[path = "mod.rs"]
pub mod backends;

pub use backends::{HostWorkspace, MemoryWorkspace, PodmanSandbox, Workspace, WorkspaceSpec};

#[cfg(test)]
#[expect(dead_code, reason = "the tests of other packages use the rest")]
#[path = "../testing.rs"]
mod testing;
