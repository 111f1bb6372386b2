//! The MCP server of foldspace. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_hub::*;

#[path = "mod.rs"]
pub mod mcp;
