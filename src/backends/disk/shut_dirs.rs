//! Directories that their owner may not enter or write: a batch opens them temporarily.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::beneath::{leads_nowhere, open_in};
use super::entries::{kind_of, set_bits};
use super::file_stat::FileStat;
use super::listing::look_at;
use super::making::MakingError;
use super::tree::DirTree;
use crate::backends::FileChange;
use crate::engine::event::{FileMode, Node};
use crate::engine::path::EntryPath;

/// The owner's bits of an opened directory.
const OPEN: u32 = 0o700;
/// The bits that its owner needs to change it.
const CHANGING: u32 = 0o300;

/// Directories that a batch has opened, with the bits to set at its end.
#[derive(Debug, Default)]
pub(super) struct ShutDirs(BTreeMap<EntryPath, (FileStat, u32)>);

impl ShutDirs {
    /// Opens the parent directories of a change's entries, and the entries themselves: a directory can be moved only if
    /// it may be changed. Returns the opened directories, parents first, with their previous bits.
    pub(super) fn open_for(&mut self, tree: &DirTree, change: &FileChange) -> Vec<(EntryPath, u32)> {
        let above = |path: &EntryPath| successors(Some(path.clone()), EntryPath::parent).collect::<Vec<_>>();
        let paths: BTreeSet<EntryPath> = change.paths().flat_map(above).collect();
        paths.into_iter().filter_map(|path| Some((path.clone(), self.open(tree, &path)?))).collect()
    }

    /// Opens a directory that its owner may not change. Returns its previous bits.
    pub(super) fn open(&mut self, tree: &DirTree, path: &EntryPath) -> Option<u32> {
        let open = || {
            let handle = tree.handle(path)?;
            let stat = look_at(&handle)?;
            let bits = u32::from(stat.stx_mode) & 0o7777;
            if kind_of(&stat) != FileType::Directory || bits & CHANGING == CHANGING {
                return Ok(None);
            }
            set_bits(&handle, bits | OPEN)?;
            Ok(Some((FileStat::of(&stat), bits)))
        };
        // It may be another user's. The caller reports the error of its own operation.
        let opened = open().inspect_err(|error: &Errno| tracing::debug!(%error, "failed to open a directory"));
        let (stamp, bits) = opened.ok()??;
        self.0.insert(path.clone(), (stamp, bits));
        Some(bits)
    }

    /// Forgets a directory that keeps its current bits, or is gone.
    pub(super) fn forget(&mut self, path: &EntryPath) {
        self.0.remove(path);
    }

    /// Forgets the entry at a path, and everything below it.
    pub(super) fn forget_below(&mut self, path: &EntryPath) {
        self.0.retain(|shut, _| shut != path && !shut.is_below(path));
    }

    /// Records a made entry: a directory may be open until its final bits are set.
    pub(super) fn made(&mut self, tree: &DirTree, path: &EntryPath, node: &Node) -> Result<(), Errno> {
        if let Some(bits) = shut_bits(node) {
            let stamp = FileStat::of(&look_at(tree.handle(path)?)?);
            self.0.insert(path.clone(), (stamp, bits));
        } else {
            self.forget(path);
        }
        Ok(())
    }

    /// Sets the bits of the directories that still exist, the deepest first.
    pub(super) fn shut(&mut self, tree: &DirTree) -> Result<(), MakingError> {
        while let Some((path, (stamp, bits))) = self.0.pop_last() {
            let shut = tree.handle(&path).and_then(|handle| {
                let is_same = FileStat::of(&look_at(&handle)?).is_same_entry(&stamp);
                if is_same { set_bits(&handle, bits) } else { Ok(()) }
            });
            match shut {
                Err(error) if !leads_nowhere(error) => return Err(MakingError::at("change the mode of", &path)(error)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the node to make instead of a directory that its owner could not change.
pub(super) fn opened(node: &Node) -> Option<Node> {
    shut_bits(node).map(|bits| Node::Directory { mode: FileMode::of(bits | OPEN) })
}

fn shut_bits(node: &Node) -> Option<u32> {
    match node {
        Node::Directory { mode } => Some(mode.bits()).filter(|bits| bits & CHANGING != CHANGING),
        _ => None,
    }
}

impl DirTree {
    /// Opens an `O_PATH` handle of an entry. The root's is available even if its owner may not enter it.
    pub(super) fn handle(&self, path: &EntryPath) -> Result<OwnedFd, Errno> {
        if path.is_root() {
            return rustix::io::fcntl_dupfd_cloexec(self.root.as_fd(), 0);
        }
        open_in(self.parent(path)?, path.name(), OFlags::PATH)
    }
}
