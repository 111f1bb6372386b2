//! The git worktree that a session's directory is in.

use serde::{Deserialize, Serialize};

use crate::engine::event::GitMoved;
use crate::engine::{Digest, OnRewind, Recorded, Registry, Seq, Slice, ValueError};

/// The commit, branch and index of a worktree as last seen. A rewind keeps it, because it does not change git.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitWorktree {
    /// The position of the record; 0 if it was never recorded.
    pub seq: Seq,
    /// The id of the checked-out commit; empty before the first one.
    pub head: String,
    /// The name of the branch; empty for none.
    pub branch: String,
    /// The digest of the index's list of files.
    pub index: Option<Digest>,
}

impl Slice for GitWorktree {
    const NAME: &'static str = "GitWorktree";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry.event::<GitMoved>()?.slice::<GitWorktree>()?.reducer(|_: GitWorktree, recorded: &Recorded<GitMoved>| {
        let GitMoved { head, branch, index } = recorded.event.clone();
        GitWorktree { seq: recorded.seq, head, branch, index: Some(index) }
    })
}
