//! Signed checkpoints of histories. Programs use them through the package `foldspace`, which documents them.

pub use foldspace_engine::*;

#[path = "mod.rs"]
pub mod seal;
