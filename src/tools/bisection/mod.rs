//! Searches for the first event at which something is wrong.

pub(crate) mod algorithm;
pub(crate) mod probe;
pub(crate) mod probe_record;
pub(crate) mod search;
