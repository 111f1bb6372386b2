//! The recorded network of containers. Programs use this through the package `foldspace`, which documents it.

#[path = "mod.rs"]
pub mod network;
