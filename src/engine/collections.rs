//! The persistent collections, named in this one place so that a twin could take theirs.

pub(crate) use im::ordmap::DiffItem;
pub(crate) use im::{OrdMap, Vector};
