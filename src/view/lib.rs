//! The JSON documents that the faces of foldspace return. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_tools::*;

#[path = "mod.rs"]
pub mod view;
