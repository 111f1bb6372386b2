//! Contents that only git has: they are kept when the files that have them change.

use super::plan::PlannedChange;
use crate::engine::commit::Content;
use crate::engine::event::Node;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Entry, VirtualFileSystem};

/// Bytes of one file that are kept.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of contents that are in memory together.
const PIECE_BYTES: usize = 16 << 20;

/// Tells whether the files of a session's directory may be recorded by the ids of git blobs.
pub(super) fn borrows(session: &Session) -> bool {
    session.started().is_some_and(|started| started.options["gitignore"] == true)
}

/// Returns the contents that a change replaces or removes, and that are not kept yet. What is too large stays git's.
pub(super) fn replaced(session: &Session, tree: &VirtualFileSystem, change: &PlannedChange) -> Vec<Content> {
    let path = change.path();
    let after = match change {
        PlannedChange::Write(event) => Some(&event.node),
        PlannedChange::Delete(_) => None,
    };
    let own = tree.get(path).into_iter();
    own.chain(tree.below(path).map(|(_, entry)| entry)).filter_map(|entry| lost(session, entry, after)).collect()
}

/// Keeps the contents of files whose blobs git's index lists no longer, before git prunes them.
///
/// `listed` is in order.
pub(crate) fn keep_unlisted(session: &Session, listed: &[[u8; 20]]) -> Result<(), SessionError> {
    let files = VirtualFileSystem::of(&session.state()?);
    let is_unlisted = |entry: &&Entry| {
        let Node::File { content, .. } = entry.node else { return false };
        content.git_blob().is_some_and(|id| listed.binary_search(&id).is_err())
    };
    let entries = files.iter().map(|(_, entry)| entry).filter(is_unlisted);
    let mut contents = entries.filter_map(|entry| lost(session, entry, None)).peekable();
    while contents.peek().is_some() {
        let (mut commit, mut bytes) = (session.commit(), 0);
        while let Some(content) = contents.next_if(|_| bytes < PIECE_BYTES) {
            bytes += content.bytes.len();
            commit.keep(content);
        }
        session.submit(commit)?.wait()?;
    }
    Ok(())
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
