//! Children of a session: forks, subagents and merges.

mod fork_base;
pub(crate) mod forker;
pub(crate) mod merge;
pub(crate) mod subagents;
