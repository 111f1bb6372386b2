//! The tools of foldspace, the runner that records their calls, and operations on a recorded run. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_backends::*;

#[path = "mod.rs"]
pub mod tools;

pub use tools::{Tool, ToolCall, ToolContext, ToolError, ToolOutcome, ToolRunner, Tools};

#[cfg(test)]
#[expect(dead_code, reason = "the tests of other packages use the rest")]
#[path = "../testing.rs"]
mod testing;
