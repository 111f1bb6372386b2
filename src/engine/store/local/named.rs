//! A session's last commits with ids, to recognise retries.

use std::collections::VecDeque;

use crate::engine::{CommitId, Seq};

/// Number of remembered commits with ids.
pub(super) const REMEMBERED: usize = 1024;

/// The remembered commits, with their first and last positions, in order.
pub(super) struct NamedCommits {
    commits: VecDeque<(CommitId, Seq, Seq)>,
    /// A part of each id: comparing only the parts takes a sixth of the time.
    parts: VecDeque<u32>,
}

impl NamedCommits {
    pub(super) fn of(mut commits: VecDeque<(CommitId, Seq, Seq)>) -> Self {
        commits.drain(..commits.len().saturating_sub(REMEMBERED));
        Self { parts: commits.iter().map(|(id, ..)| part(*id)).collect(), commits }
    }

    pub(super) fn add(&mut self, id: CommitId, first: Seq, last: Seq) {
        if self.commits.len() >= REMEMBERED {
            self.commits.pop_front();
            self.parts.pop_front();
        }
        self.commits.push_back((id, first, last));
        self.parts.push_back(part(id));
    }

    /// Returns the first and the last position of the commit with the id.
    pub(super) fn find(&self, id: CommitId) -> Option<(Seq, Seq)> {
        let wanted = part(id);
        // Without an early exit, so that the compiler vectorises it.
        let has = |parts: &[u32]| parts.iter().fold(false, |found, part| found | (*part == wanted));
        let (front, back) = self.parts.as_slices();
        if !has(front) && !has(back) {
            return None;
        }
        self.commits.iter().find(|(known, ..)| *known == id).map(|(_, first, last)| (*first, *last))
    }
}

fn part(id: CommitId) -> u32 {
    let [.., a, b, c, d] = *id.as_bytes();
    u32::from_le_bytes([a, b, c, d])
}
