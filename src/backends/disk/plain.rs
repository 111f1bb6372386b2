//! A session's files in a plain directory, and what stat said of each at the last look.

use std::io;
use std::os::fd::AsFd;

use super::dir_xattrs::Forms;
use super::file_stat::MadeStat;
use super::pending_scan::{KnownFiles, ScannedFiles};
use super::scan::scan;
use super::tree::DirTree;
use super::workspace_disk::WorkspaceDisk;
use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::path::EntryPath;

/// A plain directory. What changed there is found by looking at every entry, as git does.
#[derive(Debug)]
pub(crate) struct PlainDisk {
    tree: DirTree,
    known: KnownFiles,
    /// Changes made in place since the last look, which are not known yet.
    laid_out: Vec<(EntryPath, MadeStat)>,
}

impl PlainDisk {
    /// A disk of which nothing is known: the first `dirty` names everything.
    pub(crate) fn new(tree: DirTree) -> io::Result<Self> {
        tree.empty_aside()?;
        Ok(Self { tree, known: KnownFiles::default(), laid_out: Vec::new() })
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        self.known.learn(self.tree.root.as_fd(), made, Forms::Plain);
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
        let is_first = self.known.index.listings.is_empty();
        let outcome = scan(self.tree.root.as_fd(), &self.known.index, Forms::Plain, self.tree.hidden)?;
        let touched = self.known.scanned(outcome, ScannedFiles::Tree);
        // Others may know of entries that are gone.
        Ok(if is_first { vec![DirtyPath::Subtree(EntryPath::root())] } else { touched })
    }

    fn known(&mut self) -> &mut KnownFiles {
        &mut self.known
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        self.learn_laid_out();
        let made = self.tree.apply(changes)?;
        self.learn(&made);
        Ok(())
    }

    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        let (made, removed) = self.tree.populate(changes)?;
        self.laid_out.extend(made);
        // What has the place of something else, and maybe its inode, would be taken for that.
        if removed {
            self.learn_laid_out();
        }
        Ok(())
    }
}
