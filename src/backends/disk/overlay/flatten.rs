//! Merges many layers into one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, linkat};

use crate::backends::disk::beneath::open_directory;
use crate::backends::disk::copying::{copy_attributes, copy_directory, copy_file, copy_other, resemble};
use crate::backends::disk::limits::PATH_BYTES_MAX;
use crate::backends::disk::listing::{look, look_at};
use crate::backends::disk::tree::DirTree;
use crate::backends::{FileId, Observed};
use crate::engine::path::EntryPath;

/// Copies all entries of a tree into an empty directory: the journal lacks contents over the budget.
pub(super) fn flatten(tree: &DirTree, into: &OwnedFd) -> io::Result<()> {
    let mut found = Vec::new();
    let closed = tree.walk(&EntryPath::root(), &mut |path, entry| found.push((path, entry.kind)))?;
    // Entries with too long paths are never stored, but unreadable ones exist only in the layers to be removed.
    if let Some(closed) = closed.iter().find(|path| path.as_bytes().len() <= PATH_BYTES_MAX) {
        let words = format!("{} can't be read, so its layers are still needed", closed.rooted());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    let mut linked: BTreeMap<FileId, EntryPath> = BTreeMap::new();
    let mut directories = vec![(EntryPath::root(), look_at(&tree.root)?)];
    for (path, kind) in found {
        let parent = path.parent().unwrap_or_else(EntryPath::root);
        let from = open_directory(tree.root.as_fd(), parent.as_bytes(), OFlags::PATH)?;
        let to = open_directory(into.as_fd(), parent.as_bytes(), OFlags::PATH)?;
        let stat = look(&from, path.name())?;
        match kind {
            Observed::Directory { .. } => {
                copy_directory(&from, path.name(), &to)?;
                directories.push((path, stat));
            }
            Observed::File { shared, .. } => match shared.and_then(|file| linked.get(&file)) {
                Some(first) => {
                    let above = first.parent().unwrap_or_else(EntryPath::root);
                    let above = open_directory(into.as_fd(), above.as_bytes(), OFlags::PATH)?;
                    linkat(above, first.name(), &to, path.name(), AtFlags::empty())?;
                }
                None => {
                    copy_file(tree.open(&path)?, &stat, &to, path.name())?;
                    linked.extend(shared.map(|file| (file, path)));
                }
            },
            Observed::Symlink { .. } | Observed::Special(_) => copy_other(&from, &stat, &to, path.name())?,
        }
    }
    // New entries in a directory change its times.
    for (path, stat) in directories.iter().rev() {
        let from = open_directory(tree.root.as_fd(), path.as_bytes(), OFlags::RDONLY)?;
        let to = open_directory(into.as_fd(), path.as_bytes(), OFlags::RDONLY)?;
        copy_attributes(&from, &to)?;
        resemble(&to, stat)?;
    }
    Ok(())
}
