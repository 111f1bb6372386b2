//! Copies of a session's files, at any position, to a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use tar::EntryType;

use super::hard_links::{apart, pairs, relink};
use super::populate::{fill, not_kept};
use crate::backends::{FileChange, HostOptions, HostWorkspace, Workspace};
use crate::engine::event::{FileMode, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::engine::store::StoreError;
use crate::reducers::{Entry, VirtualFileSystem, can_be_made};
use crate::tools::error::WorkspaceError;

/// Maximum bytes of a link's target in a tar header; a longer target needs a PAX header.
const LINK_MAX: usize = 100;
/// Permission bits of a pipe; its own are not recorded.
const PIPE_MODE: u32 = 0o600;

/// Summary of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Number of entries, directories included.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that could not be written: files without stored contents, sockets and devices, and paths with a name of
    /// more than 255 bytes.
    pub left: Vec<EntryPath>,
    /// Hard links that became separate files: the file system can't link them.
    pub apart: Vec<EntryPath>,
}

/// Writes the files of a state into a directory that is empty or does not exist.
///
/// # Errors
/// [`WorkspaceError::NotEmpty`], and errors of the session and the disk. The directory is then emptied as far as
/// possible.
pub fn materialise(session: &Session, state: &State, directory: &Path) -> Result<Materialised, WorkspaceError> {
    let workspace = HostWorkspace::open(directory, &HostOptions::default())?;
    if !workspace.is_blank() {
        return Err(WorkspaceError::NotEmpty(directory.to_owned()));
    }
    let tree = without_set_id(VirtualFileSystem::of(state));
    let mut left = fill(session, &tree, &workspace).inspect_err(|_| clear(&tree, &workspace))?;
    left.extend(not_kept(&tree).cloned());
    left.sort();
    let links = pairs(&tree).into_iter().filter(|link| left.binary_search(&link.path).is_err());
    let apart = apart(&workspace, links.collect::<Vec<_>>().iter())?;
    let written = tree.iter().filter(|(path, _)| left.binary_search(path).is_err());
    let bytes = written.map(|(_, entry)| entry.size()).sum();
    Ok(Materialised { entries: (tree.len() - left.len()) as u64, bytes, left, apart })
}

/// Clears the set-user-ID and set-group-ID bits of files: the copies may belong to another user.
fn without_set_id(files: VirtualFileSystem) -> VirtualFileSystem {
    let is_set = |node: &Node| !node.is_directory() && node.mode().is_some_and(|mode| mode != mode.without_set_id());
    let mut safe = files.clone();
    let found = || files.iter().filter(|(_, entry)| is_set(&entry.node));
    for (path, Entry { node, updated_at, .. }) in found() {
        let mode = node.mode().unwrap_or(FileMode::FILE).without_set_id();
        let (path, node) = (path.clone(), node.with_mode(mode));
        safe.write(&WriteFile { path, mode: WriteMode::Overwrite, node }, *updated_at);
    }
    relink(&mut safe, &files, found().map(|(path, _)| path));
    safe
}

/// Removes the written entries; external entries stay.
fn clear(tree: &VirtualFileSystem, workspace: &dyn Workspace) {
    let top: BTreeSet<&[u8]> = tree.iter().filter_map(|(path, _)| path.segments().next()).collect();
    for name in top {
        let cleared = EntryPath::root().join(name).map(|path| workspace.populate(&[FileChange::Delete { path }]));
        if let Ok(Err(error)) = cleared {
            tracing::warn!(%error, "failed to remove entries that were written before an error");
        }
    }
}

/// Writes the files of a state as a tar archive; equal states produce equal bytes. Returns the entries left out:
/// files without stored contents, sockets and devices. Holds the contents of one file in memory at a time.
///
/// # Errors
/// Failures of the session and of `out`.
pub fn write_tar(session: &Session, state: &State, below: &EntryPath, out: impl Write) -> io::Result<Vec<EntryPath>> {
    let tree = without_set_id(VirtualFileSystem::of(state));
    let (mut archive, mut left) = (tar::Builder::new(out), Vec::new());
    let mut linked: BTreeMap<&EntryPath, &EntryPath> = BTreeMap::new();
    for (path, entry) in tree.below(below) {
        if !can_be_made(&entry.node) {
            left.push(path.clone());
            continue;
        }
        let place = Path::new(OsStr::from_bytes(path.relative_to(below).unwrap_or_default()));
        let mut header = tar::Header::new_gnu();
        header.set_mtime(u64::try_from(entry.updated_at.0 / 1000).unwrap_or(0));
        let (kind, mode, bytes) = match &entry.node {
            Node::File { mode, .. } if let Some(to) = tree.first_name(path).and_then(|first| linked.get(first)) => {
                header.set_entry_type(EntryType::Link);
                header.set_mode(mode.bits());
                header.set_size(0);
                let to = OsStr::from_bytes(to.relative_to(below).unwrap_or_default());
                archive.append_link(&mut header, place, to)?;
                continue;
            }
            Node::Directory { mode } => (EntryType::Directory, mode.bits(), Bytes::new()),
            Node::File { content, mode, .. } => {
                let bytes = match session.content(content) {
                    Err(SessionError::Store(StoreError::NoContent(_))) => {
                        left.push(path.clone());
                        continue;
                    }
                    read => read.map_err(io::Error::other)?,
                };
                linked.extend(tree.first_name(path).map(|first| (first, path)));
                (EntryType::Regular, mode.bits(), bytes)
            }
            Node::Symlink { target } => {
                match target.len() <= LINK_MAX {
                    true => header.set_link_name_literal(target)?,
                    false => archive.append_pax_extensions([("linkpath", &target[..])])?,
                }
                (EntryType::Symlink, 0o777, Bytes::new())
            }
            Node::Special { .. } => (EntryType::Fifo, PIPE_MODE, Bytes::new()),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, place, &bytes[..])?;
    }
    archive.into_inner()?.flush()?;
    Ok(left)
}
