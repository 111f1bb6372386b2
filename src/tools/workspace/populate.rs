//! A session's files, written into a workspace.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::backends::{BackendError, FileChange, Workspace};
use crate::engine::event::{DeleteEntry, Node};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::tools::error::WorkspaceError;

/// Bytes of files that are read before they are written, and at most so many entries.
const PIECE_BYTES: u64 = 8 << 20;
const PIECE_ENTRIES: usize = 512;
/// Pieces that wait to be written. With the one that is being read and the one that is being written, that is what a
/// fill takes of memory, a file that is larger than a piece aside.
const PIECES_WAITING: usize = 2;
/// Entries that are not worth a thread.
const FEW: usize = 32;

/// Writes all files of a session into a workspace that has none. What was never kept stays away.
pub(crate) fn fill(
    session: &Session,
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
) -> Result<(), WorkspaceError> {
    write_all(session, tree.iter().collect(), |piece| workspace.lay_out(piece))
}

/// Gives entries to `put`, parents first, while those that follow are read. What was never kept stays away.
pub(crate) fn write_all(
    session: &Session,
    entries: Vec<(&EntryPath, &Entry)>,
    put: impl Fn(&[FileChange]) -> Result<(), BackendError>,
) -> Result<(), WorkspaceError> {
    if entries.len() <= FEW {
        return pieces(session, &entries).try_for_each(|piece| Ok(put(&piece?)?));
    }
    std::thread::scope(|scope| {
        let (give, take): (Sender<Piece>, Receiver<Piece>) = bounded(PIECES_WAITING);
        // Whoever writes may have given up.
        scope.spawn(move || pieces(session, &entries).try_for_each(|piece| give.send(piece)).is_ok());
        take.into_iter().try_for_each(|piece| Ok(put(&piece?)?))
    })
}

type Piece = Result<Vec<FileChange>, SessionError>;

fn pieces<'a>(session: &Session, entries: &'a [(&'a EntryPath, &'a Entry)]) -> impl Iterator<Item = Piece> {
    let mut left = entries.iter().filter(|(_, entry)| can_be_written(entry)).peekable();
    std::iter::from_fn(move || {
        left.peek()?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while bytes < PIECE_BYTES
            && piece.len() < PIECE_ENTRIES
            && let Some((path, entry)) = left.next()
        {
            bytes += entry.size();
            match written(session, path, entry) {
                Ok(change) => piece.push(change),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(piece))
    })
}

/// Whether an entry can be made again from the history.
pub(crate) fn can_be_written(entry: &Entry) -> bool {
    !matches!(entry.node, Node::File { incomplete: true, .. } | Node::Special { .. })
}

fn written(session: &Session, path: &EntryPath, entry: &Entry) -> Result<FileChange, SessionError> {
    let bytes = match &entry.node {
        Node::File { content, .. } => session.content(content)?,
        Node::Symlink { .. } | Node::Directory | Node::Special { .. } => Bytes::new(),
    };
    Ok(FileChange::Write { path: path.clone(), node: entry.node.clone(), bytes, modified: Some(entry.updated_at) })
}

/// What stayed away when a disk was filled, and so is gone.
pub(crate) fn not_filled(
    workspace: &dyn Workspace,
    tree: &VirtualFileSystem,
) -> Result<Vec<DeleteEntry>, BackendError> {
    let Some(disk) = workspace.capture() else { return Ok(Vec::new()) };
    let mut gone = Vec::new();
    for (path, _) in tree.iter().filter(|(_, entry)| !can_be_written(entry)) {
        if disk.observe(path)?.is_none() {
            gone.push(DeleteEntry { path: path.clone() });
        }
    }
    Ok(gone)
}
