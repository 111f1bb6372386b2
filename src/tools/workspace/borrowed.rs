//! Contents that only git has: they are stored when their files change.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::plan::PlannedChange;
use crate::engine::commit::Content;
use crate::engine::event::Node;
use crate::engine::id::Digest;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Entry, VirtualFileSystem};

/// Maximum size of a file to store, in bytes.
const FILE_BYTES: u64 = 64 << 20;
/// Maximum size of contents in memory at once, in bytes.
const PIECE_BYTES: usize = 16 << 20;
/// Bytes of one copy step, which may block other users of git and the store.
const COPY_BYTES: usize = 2 << 20;

/// Returns true if the files of a session's directory may be recorded by the ids of git blobs.
pub(super) fn borrows(session: &Session) -> bool {
    session.started().is_some_and(|started| started.options["gitignore"] == true)
}

/// Returns the contents that a change replaces or removes, and that only git has. Too large contents are left to git.
pub(super) fn replaced(session: &Session, tree: &VirtualFileSystem, change: &PlannedChange) -> Vec<Content> {
    let path = change.path();
    let after = match change {
        PlannedChange::Write(event) => Some(&event.node),
        PlannedChange::Delete(_) => None,
        PlannedChange::Link(_) => return Vec::new(),
    };
    let own = tree.get(path).into_iter();
    own.chain(tree.below(path).map(|(_, entry)| entry)).filter_map(|entry| lost(session, entry, after)).collect()
}

/// Stores the contents of files with blobs that git's index no longer lists, before git prunes them.
///
/// `listed` is sorted.
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

/// Copies of contents that only git has, made in steps.
#[doc(hidden)]
pub struct OwnCopies {
    session: Session,
    /// Sizes and digests of the contents to copy, smallest last.
    left: Vec<(u64, Digest)>,
    pub progress: CopyProgress,
}

/// Progress of the copies, counted in contents, which files may share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Copied contents.
    pub copied: u64,
    /// Bytes of the copied contents.
    pub bytes: u64,
    /// Contents still to copy.
    pub left: u64,
    /// Contents that are not copied: over 64 MiB, beyond the limit, or lost by git.
    pub not_copied: u64,
}

impl OwnCopies {
    /// Lists the contents to copy, up to `limit` bytes including earlier copies.
    pub fn of(session: &Session, limit: u64) -> Result<Self, SessionError> {
        let files = VirtualFileSystem::of(&session.state()?);
        let borrowed = files.iter().filter_map(|(_, entry)| match entry.node {
            Node::File { content, size, .. } if content.git_blob().is_some() => Some((size, content)),
            _ => None,
        });
        let (mut progress, mut left) = (CopyProgress::default(), Vec::new());
        for (size, digest) in borrowed.collect::<BTreeSet<_>>() {
            if session.keeps(&digest)? {
                (progress.copied, progress.bytes) = (progress.copied + 1, progress.bytes + size);
            } else {
                left.push((size, digest));
            }
        }
        let (mut fitting, mut bytes) = (0, progress.bytes);
        while let Some((size, _)) = left.get(fitting).filter(|(size, _)| *size <= FILE_BYTES && bytes + size <= limit) {
            (fitting, bytes) = (fitting + 1, bytes + size);
        }
        progress.not_copied = (left.len() - fitting) as u64;
        left.truncate(fitting);
        left.reverse();
        progress.left = fitting as u64;
        Ok(Self { session: session.clone(), left, progress })
    }

    /// Copies some contents. Returns false once all are copied.
    pub fn copy_some(&mut self) -> Result<bool, SessionError> {
        let (mut commit, mut bytes) = (self.session.commit(), 0);
        while bytes < COPY_BYTES
            && let Some((size, digest)) = self.left.pop()
        {
            match self.session.content(&digest) {
                Ok(content) => {
                    bytes += content.len();
                    commit.keep(Content { digest, bytes: content });
                    self.progress.copied += 1;
                    self.progress.bytes += size;
                }
                Err(error) => {
                    tracing::info!(%error, "failed to copy a content that only git has");
                    self.progress.not_copied += 1;
                }
            }
        }
        self.progress.left = self.left.len() as u64;
        if bytes > 0 {
            self.session.submit(commit)?.wait()?;
        }
        Ok(!self.left.is_empty())
    }
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
            tracing::warn!(%error, "failed to store the former contents of a changed file");
            None
        }
    }
}
