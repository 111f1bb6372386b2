//! The state of a replication, for those who ask.

use std::sync::Mutex;

use super::manifest::CopiedSegment;
use crate::engine::{Timestamp, lock};

/// Progress of a replication.
#[derive(Debug, Default)]
pub struct ReplicationProgress {
    state: Mutex<CopiedTo>,
}

/// State of a copy, as its writer knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedTo {
    /// Segment in which the copy ends; 0 before there is one.
    pub segment: u32,
    /// Byte of the segment's file at which it ends.
    pub offset: u64,
    /// Moment up to which everything that was recorded is in the copy.
    pub until: Option<Timestamp>,
    /// Bytes of the journal that were found and are not copied yet.
    pub behind: u64,
    /// Git directories from which the store reads contents: those that only git has are not copied.
    pub git_repositories: Vec<String>,
    /// Reason why the last try failed.
    pub problem: Option<String>,
    /// Set if it will not be tried again.
    pub is_stopped: bool,
}

impl ReplicationProgress {
    /// Returns the state now.
    pub fn now(&self) -> CopiedTo {
        lock(&self.state).clone()
    }

    pub(super) fn found(&self, bytes: u64) {
        lock(&self.state).behind += bytes;
    }

    pub(super) fn begin(&self) {
        lock(&self.state).behind = 0;
    }

    pub(super) fn copied(&self, last: &CopiedSegment, git_repositories: &[String], until: Timestamp) {
        let (segment, offset, git_repositories) = (last.number, last.bytes(), git_repositories.to_vec());
        let until = Some(until);
        *lock(&self.state) = CopiedTo { segment, offset, until, git_repositories, ..CopiedTo::default() };
    }

    /// Notes a failed try; returns true if it is another problem than before.
    pub(super) fn failed(&self, problem: String, is_stopped: bool) -> bool {
        let mut state = lock(&self.state);
        state.is_stopped = is_stopped;
        let is_new = state.problem.as_ref() != Some(&problem);
        state.problem = Some(problem);
        is_new
    }
}
