//! Population of a workspace with a session's files.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::hard_links::links_at;
use super::plan::content_of;
use crate::backends::{BackendError, ChangeDetector, FileChange, Workspace};
use crate::engine::event::{DeleteEntry, Node};
use crate::engine::lock::lock;
use crate::engine::path::{EntryPath, MAX_SEGMENT_BYTES};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::reducers::{Entry, VirtualFileSystem, can_be_made};
use crate::tools::error::WorkspaceError;

/// Limits of a piece: bytes of files read before they are written, and entries.
const PIECE: (u64, usize) = (8 << 20, 512);
/// Pieces that wait to be written, besides one being read and one being written. A larger file is its own piece.
const PIECES_WAITING: usize = 2;
const FEW: usize = 32;
/// Maximum bytes of a link's target.
const TARGET_MAX: usize = 4095;

/// Writes all files to a workspace. Returns the files that are left out because their contents are lost.
pub(crate) fn fill(
    session: &Session,
    tree: &VirtualFileSystem,
    workspace: &dyn Workspace,
) -> Result<Vec<EntryPath>, WorkspaceError> {
    let links = links_at(tree, tree.iter().filter(|(path, _)| has_short_names(path)).map(|(path, _)| path));
    // In the order of their last changes, so that build tools see which files are newer.
    let mut entries: Vec<_> = tree.iter().collect();
    entries.sort_by_key(|(_, entry)| (!entry.is_directory(), entry.updated_at));
    write_all(session, (entries, links), |piece| workspace.populate(piece))
}

/// Passes entries to `put`, parents first, while it reads later entries, then the hard links between them. Leaves out
/// files without stored contents, and returns the files with lost contents.
pub(crate) fn write_all(
    session: &Session,
    (entries, links): (Vec<(&EntryPath, &Entry)>, Vec<FileChange>),
    put: impl Fn(&[FileChange]) -> Result<(), BackendError>,
) -> Result<Vec<EntryPath>, WorkspaceError> {
    let lost = Mutex::new(Vec::new());
    let load = |&(path, entry): &(&EntryPath, &Entry)| match written(session, path, entry) {
        Err(SessionError::Store(StoreError::NoContent(_))) => {
            lock(&lost).push(path.clone());
            Ok(None)
        }
        loaded => loaded.map(Some),
    };
    let entries = entries.into_iter().filter(|(path, entry)| is_makeable(path, entry)).collect::<Vec<_>>();
    let mut loaded = entries.chunks(PIECE.1).flat_map(|entries| {
        session.read_ahead(entries.iter().filter_map(|(_, entry)| entry.node.content()));
        pieces(PIECE, entries.iter(), load)
    });
    let put_loaded = |piece: LoadedPiece| Ok::<_, WorkspaceError>(put(&piece?)?);
    if entries.len() <= FEW {
        loaded.try_for_each(put_loaded)?;
        drop(loaded);
    } else {
        std::thread::scope(|scope| {
            let (give, take): (Sender<LoadedPiece>, Receiver<LoadedPiece>) = bounded(PIECES_WAITING);
            // The receiver may have stopped after an error.
            scope.spawn(move || loaded.try_for_each(|piece| give.send(piece)).is_ok());
            take.into_iter().try_for_each(put_loaded)
        })?;
    }
    links.chunks(PIECE.1).try_for_each(&put)?;
    Ok(lost.into_inner().unwrap_or_else(PoisonError::into_inner))
}

type LoadedPiece = Result<Vec<FileChange>, SessionError>;

/// Loads changes in pieces up to a limit of bytes and entries.
pub(super) fn pieces<T>(
    (bytes_max, entries_max): (u64, usize),
    mut items: impl Iterator<Item = T>,
    load: impl Fn(T) -> Result<Option<FileChange>, SessionError>,
) -> impl Iterator<Item = LoadedPiece> {
    std::iter::from_fn(move || {
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && piece.len() < entries_max
            && let Some(item) = items.next()
        {
            match load(item) {
                Ok(Some(change)) => piece.push(change),
                Ok(None) => continue,
                Err(error) => return Some(Err(error)),
            }
            if let Some(FileChange::Write { bytes: written, .. }) = piece.last() {
                bytes += written.len() as u64;
            }
        }
        (!piece.is_empty()).then_some(Ok(piece))
    })
}

/// Lists the entries that can't be restored.
pub(crate) fn not_kept(tree: &VirtualFileSystem) -> impl Iterator<Item = &EntryPath> {
    tree.iter().filter(|(path, entry)| !is_makeable(path, entry)).map(|(path, _)| path)
}

/// Returns true if a disk can hold an entry. A transcript may contain names that no disk allows.
fn is_makeable(path: &EntryPath, entry: &Entry) -> bool {
    let fits = match &entry.node {
        Node::Symlink { target } => (1..=TARGET_MAX).contains(&target.len()),
        _ => true,
    };
    fits && has_short_names(path) && can_be_made(&entry.node)
}

fn has_short_names(path: &EntryPath) -> bool {
    path.segments().all(|name| name.len() <= MAX_SEGMENT_BYTES)
}

fn written(session: &Session, path: &EntryPath, entry: &Entry) -> Result<FileChange, SessionError> {
    let bytes = content_of(&entry.node, |digest| session.content(digest))?;
    Ok(FileChange::Write { path: path.clone(), node: entry.node.clone(), bytes, modified: None })
}

/// Lists the entries that population left out and that are not on the disk.
pub(crate) fn not_filled(
    disk: &dyn ChangeDetector,
    tree: &VirtualFileSystem,
) -> Result<Vec<DeleteEntry>, BackendError> {
    let mut gone = Vec::new();
    for path in not_kept(tree) {
        if disk.observe(path)?.is_none() {
            gone.push(DeleteEntry { path: path.clone() });
        }
    }
    Ok(gone)
}
