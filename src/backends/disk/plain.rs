//! A session's files in a plain directory, and what stat said of each at the last look.

use std::io;
use std::os::fd::AsFd;

use super::dir_xattrs::Forms;
use super::file_stat::MadeStat;
use super::index::{StatIndex, with_paths};
use super::pending_scan::{PendingScan, ScannedFiles};
use super::scan::{ScanOutcome, scan};
use super::tree::DirTree;
use super::workspace_disk::WorkspaceDisk;
use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::path::EntryPath;

/// A plain directory. What changed there is found by looking at every entry, as git does.
#[derive(Debug)]
pub(crate) struct PlainDisk {
    tree: DirTree,
    known: StatIndex,
    pending: Option<PendingScan>,
    /// Changes made in place since the last look, which are not known yet.
    laid_out: Vec<(EntryPath, MadeStat)>,
}

impl PlainDisk {
    /// A disk of which nothing is known: the first `dirty` names everything.
    pub(crate) fn new(tree: DirTree) -> io::Result<Self> {
        tree.empty_aside()?;
        Ok(Self { tree, known: StatIndex::default(), pending: None, laid_out: Vec::new() })
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        for index in std::iter::once(&mut self.known).chain(self.pending.as_mut().map(PendingScan::index_mut)) {
            if let Err(error) = index.learn(self.tree.root.as_fd(), made, Forms::Plain) {
                tracing::debug!(%error, "what was made will be looked at again");
            }
        }
    }

    fn learn_laid_out(&mut self) {
        let laid_out = std::mem::take(&mut self.laid_out);
        if !laid_out.is_empty() {
            self.learn(&laid_out);
        }
    }

    fn check_anchor(&self) -> Result<(), BackendError> {
        let failed = |error: io::Error| BackendError { backend: self.tree.backend, reason: error.to_string() };
        self.tree.check_anchor().map_err(failed)
    }
}

impl WorkspaceDisk for PlainDisk {
    fn tree(&self) -> io::Result<&DirTree> {
        Ok(&self.tree)
    }

    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>> {
        self.tree.check_anchor()?;
        self.tree.open_root()?;
        self.learn_laid_out();
        let is_first = self.known.listings.is_empty();
        let ScanOutcome { index, touched, started } =
            scan(self.tree.root.as_fd(), &self.known, Forms::Plain, self.tree.hidden)?;
        self.pending = Some(PendingScan::new(index, ScannedFiles::Tree, started));
        // Others may know of entries that are gone.
        Ok(if is_first { vec![DirtyPath::Subtree(EntryPath::root())] } else { touched })
    }

    fn pending(&mut self) -> Option<&mut PendingScan> {
        self.pending.as_mut()
    }

    fn mark_clean(&mut self) -> io::Result<()> {
        if let Some(pending) = self.pending.take() {
            self.known = pending.index;
        }
        Ok(())
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        self.learn_laid_out();
        let made = self.tree.apply(changes)?;
        self.learn(&with_paths(changes, made));
        Ok(())
    }

    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        let (made, removed) = self.tree.populate(changes)?;
        self.laid_out.extend(with_paths(changes, made));
        // What has the place of something else, and maybe its inode, would be taken for that.
        if removed {
            self.learn_laid_out();
        }
        Ok(())
    }
}
