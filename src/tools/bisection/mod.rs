//! Searching for the first event that makes a check fail.

pub mod algorithm;
pub(crate) mod probe;
pub(crate) mod probe_record;
pub(crate) mod search;
