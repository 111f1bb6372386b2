//! Mounts of foldspace. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_view::*;

#[path = "mod.rs"]
pub mod fuse;
