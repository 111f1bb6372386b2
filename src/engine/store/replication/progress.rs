//! The observable state of a replication.

use std::sync::Mutex;

use super::manifest::CopiedSegment;
use crate::engine::{Timestamp, lock};

/// The progress of a replication.
#[derive(Debug, Default)]
pub struct ReplicationProgress {
    state: Mutex<CopiedTo>,
}

/// The state of a copy, as its writer knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedTo {
    /// Last segment of the copy; 0 before the first one.
    pub segment: u32,
    /// End of the copy in the segment's file, in bytes.
    pub offset: u64,
    /// Time of the copy: everything recorded earlier is in it.
    pub until: Option<Timestamp>,
    /// Bytes of the journal that are not copied yet.
    pub behind: u64,
    /// Git directories that the store borrows contents from; contents that only git has are not copied.
    pub git_repositories: Vec<String>,
    /// The reason why the last attempt failed.
    pub problem: Option<String>,
    /// True if the replication stopped for good.
    pub is_stopped: bool,
}

impl ReplicationProgress {
    /// Returns the current state.
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

    /// Records a failed attempt. Returns true if the problem differs from the last one.
    pub(super) fn failed(&self, problem: String, is_stopped: bool) -> bool {
        let mut state = lock(&self.state);
        state.is_stopped = is_stopped;
        let is_new = state.problem.as_ref() != Some(&problem);
        state.problem = Some(problem);
        is_new
    }
}
