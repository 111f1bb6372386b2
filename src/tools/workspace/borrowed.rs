//! Contents that only git has: they are kept when the files that have them change.

use super::plan::PlannedChange;
use crate::engine::commit::Content;
use crate::engine::event::Node;
use crate::engine::session::Session;
use crate::reducers::{Entry, VirtualFileSystem};

/// Bytes of one file that are kept.
const FILE_BYTES: u64 = 64 << 20;

/// Tells whether the files of a session's directory may be recorded by the ids of git blobs.
pub(super) fn borrows(session: &Session) -> bool {
    session.started().is_some_and(|started| started.options["gitignore"] == true)
}

/// Returns the contents that a change replaces or removes, and that are not kept yet. What is too large stays git's.
pub(super) fn replaced(session: &Session, tree: &VirtualFileSystem, change: &PlannedChange) -> Vec<Content> {
    let path = change.path();
    let after = match change {
        PlannedChange::Write(event, _) => Some(&event.node),
        PlannedChange::Delete(_) => None,
    };
    let own = tree.get(path).into_iter();
    own.chain(tree.below(path).map(|(_, entry)| entry)).filter_map(|entry| lost(session, entry, after)).collect()
}

fn lost(session: &Session, entry: &Entry, after: Option<&Node>) -> Option<Content> {
    let Node::File { content: digest, size, .. } = entry.node else { return None };
    digest.git_blob()?;
    let stays = matches!(after, Some(Node::File { content, .. }) if *content == digest);
    if stays || size > FILE_BYTES || session.keeps(&digest).is_ok_and(|keeps| keeps) {
        return None;
    }
    match session.content(&digest) {
        Ok(bytes) => Some(Content { digest, bytes }),
        Err(error) => {
            tracing::warn!(%error, "the contents of a changed file could not be kept");
            None
        }
    }
}
