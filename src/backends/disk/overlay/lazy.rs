//! An overlay that is laid out when something is first done in it.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use super::fork::ForkedOverlay;
use super::manifest::List;
use super::{OverlayDisk, OverlayOptions, SealError};
use crate::backends::disk::{DirTree, FileStat, TreeEntry, WorkspaceDisk};
use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::path::EntryPath;

/// An overlay; one that another has shared its files with has nothing of its own, neither a directory nor a mount, until
/// something is done in it.
#[derive(Debug)]
pub(crate) struct LazyOverlay {
    options: OverlayOptions,
    /// What was shared, while there is nothing else.
    shared: Option<LazyInner>,
    /// There from the beginning where nothing is `shared`.
    disk: OnceLock<OverlayDisk>,
}

#[derive(Debug)]
struct LazyInner {
    list: List,
    /// What may be otherwise than the history says, as far as nobody has settled it.
    touched: Vec<DirtyPath>,
    /// Whether somebody has looked since.
    seen: bool,
}

impl LazyOverlay {
    /// As [`OverlayDisk::create`], of an empty one.
    pub(crate) fn create(options: OverlayOptions) -> Result<Self, BackendError> {
        Ok(Self::of(options.clone(), OverlayDisk::create(options, |_| Ok(()))?))
    }

    /// As [`OverlayDisk::open`].
    pub(crate) fn open(options: OverlayOptions) -> io::Result<Option<Self>> {
        let Some(list) = List::shared_with(&options.kin)? else {
            return Ok(OverlayDisk::open(options.clone())?.map(|disk| Self::of(options, disk)));
        };
        let touched = list.touched.clone().unwrap_or_default();
        let shared = Some(LazyInner { list, touched, seen: false });
        Ok(Some(Self { options, shared, disk: OnceLock::new() }))
    }

    fn of(options: OverlayOptions, disk: OverlayDisk) -> Self {
        Self { options, shared: None, disk: OnceLock::from(disk) }
    }

    fn disk(&self) -> io::Result<&OverlayDisk> {
        if let Some(disk) = self.disk.get() {
            return Ok(disk);
        }
        let words = "the layers that it shares are gone; open the session again";
        let disk = OverlayDisk::open(self.options.clone())?.ok_or_else(|| io::Error::other(words))?;
        Ok(self.disk.get_or_init(|| disk))
    }

    fn disk_mut(&mut self) -> io::Result<&mut OverlayDisk> {
        self.disk()?;
        self.shared = None;
        self.disk.get_mut().ok_or_else(|| io::Error::other("the overlay is not there"))
    }

    fn laid_out(&mut self) -> Result<&mut OverlayDisk, BackendError> {
        let backend = self.options.backend;
        self.disk_mut().map_err(|error| BackendError { backend, reason: error.to_string() })
    }

    /// What was shared, as long as nothing else is there.
    fn shared(&mut self) -> Option<&mut LazyInner> {
        self.shared.as_mut().filter(|_| self.disk.get().is_none())
    }

    /// As [`OverlayDisk::attach`].
    pub(crate) fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        self.disk_mut()?.attach(pid, at)
    }

    /// As [`OverlayDisk::detach`].
    pub(crate) fn detach(&mut self, pid: i32) -> io::Result<()> {
        self.disk.get_mut().map_or(Ok(()), |disk| disk.detach(pid))
    }

    /// As [`OverlayDisk::seal_if_large`].
    pub(crate) fn seal_if_large(&mut self) -> Result<bool, SealError> {
        self.disk.get_mut().map_or(Ok(false), OverlayDisk::seal_if_large)
    }

    /// As [`OverlayDisk::share`].
    pub(crate) fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let kin = self.options.kin.clone();
        let Some(shared) = self.shared() else { return self.disk_mut()?.share(name) };
        let Some(heir) = ForkedOverlay::begin(&kin, name)? else { return Ok(false) };
        heir.give(&shared.list.layers, shared.touched.clone())?;
        Ok(true)
    }
}

impl WorkspaceDisk for LazyOverlay {
    fn tree(&self) -> io::Result<&DirTree> {
        self.disk()?.tree()
    }

    fn touched(&mut self) -> io::Result<Vec<DirtyPath>> {
        match self.shared() {
            Some(shared) => {
                shared.seen = true;
                Ok(shared.touched.clone())
            }
            None => self.disk_mut()?.touched(),
        }
    }

    fn found(&mut self, path: &EntryPath, found: Option<&FileStat>) {
        if let Some(disk) = self.disk.get_mut() {
            disk.found(path, found);
        }
    }

    fn found_below(&mut self, path: &EntryPath, found: &[(EntryPath, TreeEntry)], closed: &[EntryPath]) {
        if let Some(disk) = self.disk.get_mut() {
            disk.found_below(path, found, closed);
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        match self.shared() {
            Some(shared) => {
                if std::mem::take(&mut shared.seen) {
                    shared.touched.clear();
                }
                Ok(())
            }
            None => self.disk_mut()?.settle(),
        }
    }

    fn adopt(&mut self) -> io::Result<()> {
        match self.shared() {
            Some(shared) => {
                shared.touched.clear();
                Ok(())
            }
            None => self.disk_mut()?.adopt(),
        }
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.laid_out()?.apply(changes)
    }

    fn lay_out(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.laid_out()?.lay_out(changes)
    }
}
