//! Populates a directory that nothing else uses: in place, and not all or none.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Timestamps, renameat};
use rustix::io::Errno;

use super::entries::{kind_of, vanished};
use super::file_stat::MadeStat;
use super::listing::look;
use super::making::{MakingError, ParentDir, set_mode, times};
use super::remove::remove_all;
use super::shut_dirs::{ShutDirs, opened};
use super::tree::DirTree;
use crate::backends::{BackendError, FileChange};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;

impl DirTree {
    /// Makes the changes in order, each in place. Also returns true if something was removed.
    pub(crate) fn populate(&self, changes: &[FileChange]) -> Result<(Vec<(EntryPath, MadeStat)>, bool), BackendError> {
        let mut batch =
            PopulateBatch { tree: self, parent: ParentDir::default(), shut: ShutDirs::default(), removed: false };
        let mut made = Vec::with_capacity(changes.len());
        let done = changes.iter().try_for_each(|change| {
            let done = batch.make(change)?;
            made.push((change.path().clone(), done));
            made.extend(change.linked().map(|to| (to.clone(), done)));
            Ok(())
        });
        let shut = batch.shut.shut(self);
        let failed = |failure: MakingError| BackendError { backend: self.backend, reason: failure.words() };
        done.and(shut).map_err(failed)?;
        Ok((made, batch.removed))
    }
}

struct PopulateBatch<'a> {
    tree: &'a DirTree,
    parent: ParentDir,
    shut: ShutDirs,
    /// True if something was removed.
    removed: bool,
}

impl PopulateBatch<'_> {
    /// Makes a change. Directories that block it because their owner may not enter or write them are opened.
    fn make(&mut self, change: &FileChange) -> Result<MadeStat, MakingError> {
        change.check(self.tree)?;
        match self.attempt(change) {
            Err(failure) if failure.is_denied() && !self.shut.open_for(self.tree, change).is_empty() => {
                self.attempt(change)
            }
            made => made,
        }
    }

    fn attempt(&mut self, change: &FileChange) -> Result<MadeStat, MakingError> {
        if !matches!(change, FileChange::Delete { .. }) {
            self.parent.lead_to(self.tree, change.path(), |_| ())?;
        }
        self.put(change).map_err(|error| change.failed(error))
    }

    fn put(&mut self, change: &FileChange) -> Result<MadeStat, Errno> {
        match change {
            FileChange::Write { path, node, bytes, modified } => {
                let made = self.write(path, (node, bytes), times(*modified))?;
                self.shut.made(self.tree, path, node)?;
                Ok(made)
            }
            FileChange::Mode { path, mode } => {
                let stat = look(self.parent.handle()?, path.name())?;
                set_mode(self.parent.handle()?, path.name(), mode.bits())?;
                self.shut.forget(path);
                Ok(MadeStat::as_it_is(&stat))
            }
            FileChange::Link { path, to } => {
                let (made, has_replaced) = self.tree.populate_link(self.parent.handle()?, path, to)?;
                self.removed |= has_replaced;
                Ok(made)
            }
            FileChange::Delete { path } => {
                self.removed = true;
                match self.tree.parent(path) {
                    // It may be the directory that is open.
                    Ok(above) => {
                        self.parent.forget();
                        remove_all(above.as_fd(), path.name())?;
                        self.shut.forget_below(path);
                    }
                    Err(error) if super::beneath::leads_nowhere(error) => {}
                    Err(error) => return Err(error),
                }
                Ok(MadeStat::Nothing)
            }
        }
    }

    fn write(&mut self, path: &EntryPath, (node, bytes): (&Node, &[u8]), times: Timestamps) -> Result<MadeStat, Errno> {
        let (above, name) = (self.parent.handle()?, path.name());
        let opened = opened(node);
        let make = || self.tree.make((above, name), (opened.as_ref().unwrap_or(node), bytes), times.clone());
        match make() {
            Err(Errno::EXIST) => {}
            made => return made,
        }
        let stat = look(above, name)?;
        if let (Node::Directory { mode }, FileType::Directory) = (node, kind_of(&stat)) {
            set_mode(above, name, mode.bits())?;
            return Ok(MadeStat::Directory);
        }
        self.removed = true;
        remove_all(above, name)?;
        self.shut.forget_below(path);
        make()
    }
}

impl DirTree {
    /// Makes a path another name of an existing file. Also returns true if it replaced something.
    fn populate_link(
        &self,
        above: BorrowedFd<'_>,
        path: &EntryPath,
        to: &EntryPath,
    ) -> Result<(MadeStat, bool), Errno> {
        let present = vanished(look(above, path.name()))?;
        let aside = self.next_aside();
        let is_made = self.link((path, to), present.as_ref(), (self.aside.as_fd(), aside.as_bytes()))?;
        if is_made {
            // A rename over an existing file makes ext4 wait until the contents are written.
            remove_all(above, path.name())?;
            renameat(&self.aside, aside.as_str(), above, path.name())?;
        }
        let stat = vanished(look(above, path.name()))?;
        Ok((stat.map_or(MadeStat::Nothing, |stat| MadeStat::as_it_is(&stat)), is_made))
    }
}
