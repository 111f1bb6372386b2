//! Population of a workspace with a session's files.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::backends::{BackendError, FileChange, Workspace};
use crate::engine::event::{DeleteEntry, Node};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Entry, VirtualFileSystem, can_be_made};
use crate::tools::error::WorkspaceError;

/// Limits of a piece: bytes of files read before they are written, and entries.
const PIECE_BYTES: u64 = 8 << 20;
const PIECE_ENTRIES: usize = 512;
/// Pieces that wait to be written, besides one being read and one being written. A larger file is its own piece.
const PIECES_WAITING: usize = 2;
const FEW: usize = 32;

pub(crate) fn fill(
    session: &Session,
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
) -> Result<(), WorkspaceError> {
    write_all(session, tree.iter().collect(), |piece| workspace.populate(piece))
}

/// Passes entries to `put`, parents first, while reading later ones. Files that were never kept are left out.
pub(crate) fn write_all(
    session: &Session,
    entries: Vec<(&EntryPath, &Entry)>,
    put: impl Fn(&[FileChange]) -> Result<(), BackendError>,
) -> Result<(), WorkspaceError> {
    if entries.len() <= FEW {
        return pieces(session, &entries).try_for_each(|piece| Ok(put(&piece?)?));
    }
    std::thread::scope(|scope| {
        let (give, take): (Sender<LoadedPiece>, Receiver<LoadedPiece>) = bounded(PIECES_WAITING);
        // The receiver may have stopped after an error.
        scope.spawn(move || pieces(session, &entries).try_for_each(|piece| give.send(piece)).is_ok());
        take.into_iter().try_for_each(|piece| Ok(put(&piece?)?))
    })
}

type LoadedPiece = Result<Vec<FileChange>, SessionError>;

fn pieces<'a>(session: &Session, entries: &'a [(&'a EntryPath, &'a Entry)]) -> impl Iterator<Item = LoadedPiece> {
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

/// Tells whether an entry can be restored from the history.
pub(crate) fn can_be_written(entry: &Entry) -> bool {
    can_be_made(&entry.node)
}

/// Lists the entries that can't be restored.
pub(crate) fn not_kept(tree: &VirtualFileSystem) -> impl Iterator<Item = &EntryPath> {
    tree.iter().filter(|(_, entry)| !can_be_written(entry)).map(|(path, _)| path)
}

fn written(session: &Session, path: &EntryPath, entry: &Entry) -> Result<FileChange, SessionError> {
    let bytes = match &entry.node {
        Node::File { content, .. } => session.content(content)?,
        _ => Bytes::new(),
    };
    Ok(FileChange::Write { path: path.clone(), node: entry.node.clone(), bytes, modified: Some(entry.updated_at) })
}

/// Lists the entries that population left out and that are not on the disk.
pub(crate) fn not_filled(
    workspace: &dyn Workspace,
    tree: &VirtualFileSystem,
) -> Result<Vec<DeleteEntry>, BackendError> {
    let Some(disk) = workspace.capture() else { return Ok(Vec::new()) };
    let mut gone = Vec::new();
    for path in not_kept(tree) {
        if disk.observe(path)?.is_none() {
            gone.push(DeleteEntry { path: path.clone() });
        }
    }
    Ok(gone)
}
