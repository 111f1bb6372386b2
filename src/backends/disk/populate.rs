//! Populates a directory that no one else uses meanwhile: in place, and not all or none.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, renameat};
use rustix::io::Errno;

use super::entries::{kind_of, vanished};
use super::file_stat::MadeStat;
use super::listing::look;
use super::making::{MakingError, ParentDir, bits_for, set_mode, times};
use super::remove::remove_all;
use super::tree::DirTree;
use crate::backends::{BackendError, FileChange};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;

impl DirTree {
    /// Makes the changes in order, each in its place. Tells also whether something was removed.
    pub(crate) fn populate(&self, changes: &[FileChange]) -> Result<(Vec<(EntryPath, MadeStat)>, bool), BackendError> {
        let (mut parent, mut removed) = (ParentDir::default(), false);
        let mut made = Vec::with_capacity(changes.len());
        for change in changes {
            let failed = |failure: MakingError| BackendError { backend: self.backend, reason: failure.words() };
            let done = self.populate_one(change, &mut parent, &mut removed).map_err(failed)?;
            made.push((change.path().clone(), done));
            made.extend(change.linked().map(|to| (to.clone(), done)));
        }
        Ok((made, removed))
    }

    fn populate_one(
        &self,
        change: &FileChange,
        parent: &mut ParentDir,
        removed: &mut bool,
    ) -> Result<MadeStat, MakingError> {
        change.check(self)?;
        if !matches!(change, FileChange::Delete { .. }) {
            parent.lead_to(self, change.path(), |_| ())?;
        }
        self.put(change, parent, removed).map_err(|error| change.failed(error))
    }

    fn put(&self, change: &FileChange, parent: &mut ParentDir, removed: &mut bool) -> Result<MadeStat, Errno> {
        match change {
            FileChange::Write { path, node, bytes, modified } => {
                let (above, name) = (parent.handle()?, path.name());
                let make = || self.make((above, name), (node, bytes), None, times(*modified));
                match make() {
                    Err(Errno::EXIST) => {}
                    made => return made,
                }
                let stat = look(above, name)?;
                if let (Node::Directory { mode }, FileType::Directory) = (node, kind_of(&stat)) {
                    set_mode(above, name, bits_for(*mode, FileType::Directory, Some(&stat)))?;
                    return Ok(MadeStat::Directory);
                }
                *removed = true;
                remove_all(above, name)?;
                make()
            }
            FileChange::Mode { path, mode } => {
                let stat = look(parent.handle()?, path.name())?;
                set_mode(parent.handle()?, path.name(), bits_for(*mode, kind_of(&stat), Some(&stat)))?;
                Ok(MadeStat::as_it_is(&stat))
            }
            FileChange::Link { path, to } => {
                let (made, has_replaced) = self.populate_link(parent.handle()?, path, to)?;
                *removed |= has_replaced;
                Ok(made)
            }
            FileChange::Delete { path } => {
                *removed = true;
                match self.parent(path) {
                    // It may be the directory that is open.
                    Ok(above) => {
                        parent.forget();
                        remove_all(above.as_fd(), path.name())?;
                    }
                    Err(error) if super::beneath::leads_nowhere(error) => {}
                    Err(error) => return Err(error),
                }
                Ok(MadeStat::Nothing)
            }
        }
    }

    /// Makes a path a name of the file at another one. Returns also true if it replaced something.
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
            // Over a file that is there, ext4 would wait for the contents to be written.
            remove_all(above, path.name())?;
            renameat(&self.aside, aside.as_str(), above, path.name())?;
        }
        let stat = vanished(look(above, path.name()))?;
        Ok((stat.map_or(MadeStat::Nothing, |stat| MadeStat::as_it_is(&stat)), is_made))
    }
}
