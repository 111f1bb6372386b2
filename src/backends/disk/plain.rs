//! A session's files in a plain directory, and what stat said of each at the last look.

use std::io;
use std::os::fd::AsFd;

use super::file_stat::{FileStat, MadeStat};
use super::index::{StatIndex, with_paths};
use super::overlay::dir_xattrs::Forms;
use super::scan::{ScanOutcome, scan};
use super::seen::{ScannedEntry, UnsettledScan, Unsure};
use super::{DirTree, DirtyPath, TreeEntry, WorkspaceDisk};
use crate::backends::{BackendError, FileChange};
use crate::engine::path::EntryPath;

/// A plain directory. What changed there is found by looking at every entry, as git does.
#[derive(Debug)]
pub(crate) struct PlainDisk {
    tree: DirTree,
    known: StatIndex,
    seen: Option<UnsettledScan>,
    unsure: Unsure,
    /// What was laid out since the last look, and is not known yet.
    laid_out: Vec<(EntryPath, MadeStat)>,
}

impl PlainDisk {
    /// A disk of which nothing is known: the first `touched` names everything.
    ///
    /// # Errors
    /// When what an interrupted process left aside can't be removed.
    pub(crate) fn new(tree: DirTree) -> io::Result<Self> {
        tree.empty_aside()?;
        Ok(Self { tree, known: StatIndex::default(), seen: None, unsure: Unsure::default(), laid_out: Vec::new() })
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        for index in std::iter::once(&mut self.known).chain(self.seen.as_mut().map(UnsettledScan::index_mut)) {
            match index.learn(self.tree.root.as_fd(), made, Forms::Plain) {
                Ok(missing) => self.unsure.add(missing.into_iter().map(DirtyPath::Entry)),
                Err(error) => tracing::debug!(%error, "what was made will be looked at again"),
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

    fn touched(&mut self) -> io::Result<Vec<DirtyPath>> {
        self.tree.check_anchor()?;
        self.tree.open_root()?;
        self.learn_laid_out();
        let is_first = self.known.listings.is_empty();
        let ScanOutcome { mut index, mut touched } =
            scan(self.tree.root.as_fd(), &self.known, Forms::Plain, self.tree.hidden)?;
        if is_first {
            index.listings.iter_mut().for_each(|listing| listing.walked = true);
        }
        self.seen = Some(UnsettledScan::new(index, ScannedEntry::Tree));
        self.unsure.name(&mut touched);
        // Others may know of entries that are gone.
        Ok(if is_first { vec![DirtyPath::Subtree(EntryPath::root())] } else { touched })
    }

    fn found(&mut self, path: &EntryPath, found: Option<&FileStat>) {
        let differing = self.seen.as_mut().and_then(|seen| seen.differs(path, found, || false));
        self.unsure.add(differing);
    }

    fn found_below(&mut self, path: &EntryPath, found: &[(EntryPath, TreeEntry)], closed: &[EntryPath]) {
        let differing = self.seen.as_mut().map(|seen| seen.differ_below(path, found, closed));
        self.unsure.add(differing.unwrap_or_default());
    }

    fn settle(&mut self) -> io::Result<()> {
        if let Some(seen) = self.seen.take() {
            self.known = seen.index;
            self.unsure.settle();
        }
        Ok(())
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.touched()?;
        if let Some(seen) = &mut self.seen {
            seen.index_mut().trust();
        }
        self.settle()
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        self.learn_laid_out();
        let made = self.tree.apply(changes)?;
        self.learn(&with_paths(changes, made));
        Ok(())
    }

    fn lay_out(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        let (made, removed) = self.tree.lay_out(changes)?;
        self.laid_out.extend(with_paths(changes, made));
        // What has the place of something else, and maybe its inode, would be taken for that.
        if removed {
            self.learn_laid_out();
        }
        Ok(())
    }
}
