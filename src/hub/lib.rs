//! The operations of foldspace over all sessions of a store. Programs use this through the package `foldspace`, which documents it.

#[cfg(feature = "mount")]
pub use foldspace_fuse::fuse;
#[cfg(feature = "sql")]
pub use foldspace_sql::sql;
pub use foldspace_view::*;

#[path = "mod.rs"]
pub mod hub;

pub use hub::Hub;
