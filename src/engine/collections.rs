//! Persistent collections, imported in this one place so that they can be replaced.

pub(crate) use im::ordmap::DiffItem;
pub(crate) use im::{OrdMap, Vector};
