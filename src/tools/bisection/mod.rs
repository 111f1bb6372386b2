//! Searches for the first event after which a check fails.

pub(crate) mod algorithm;
pub(crate) mod probe;
pub(crate) mod probe_record;
pub(crate) mod search;
