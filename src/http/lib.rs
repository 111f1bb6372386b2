//! The HTTP API and the page of foldspace. Programs use this through the package `foldspace`, which documents it.

pub use foldspace_hub::*;

#[path = "mod.rs"]
pub mod http;
