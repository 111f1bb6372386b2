//! Children of a session: forks, subagents and merges.

pub(crate) mod forker;
pub(crate) mod merge;
pub(crate) mod subagents;
