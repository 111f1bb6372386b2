//! A mounted overlay that only this process can access.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::manifest::{LayerId, Manifest, own_number};
use super::mount::{Layers, Notes, mount};
use super::overlay_dir::{OverlayDir, WORK};
use super::pool::{ASIDE, Layer, LayerPool, TREE, subdirectory};
use crate::backends::disk::beneath::{failed, open_in};
use crate::backends::disk::entries::{PRIVATE, make_directory, vanished};
use crate::backends::disk::remove::remove_all;
use crate::backends::disk::tree::DirTree;

#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) tree: DirTree,
    pub(super) mount: OwnedFd,
    pub(super) upper: Layer,
    pub(super) notes: Notes,
    work: OwnedFd,
    changed: OnceLock<OwnedFd>,
}

impl Mounted {
    /// Puts an empty layer on top of these, the lowest first, mounts them all and commits them to the manifest.
    pub(super) fn new(
        dir: &OverlayDir,
        lower: &[LayerId],
        backend: &'static str,
        owner: Option<(u32, u32)>,
    ) -> io::Result<Self> {
        let pool = dir.pool()?;
        let _kept = pool.keep()?;
        let work = subdirectory(&dir.make()?, WORK).map_err(failed("create", &dir.root().join(WORK)))?;
        let notes = Notes::on(work.as_fd());
        let last = lower.iter().filter_map(|id| own_number(id, dir.name())).max();
        let upper = pool.add(dir.name(), last.map_or(0, |last| last + 1), notes)?;
        let id = upper.id.clone();
        let mounted = mount_layers(dir, &pool, lower, &upper, &work, notes).and_then(|mount| {
            let open = |name| open_in(&mount, name, OFlags::RDONLY | OFlags::DIRECTORY);
            let tree = DirTree::new(backend, open(TREE)?, (open(ASIDE)?, pool.path_of(&id).join(ASIDE)), owner);
            let tree = tree.above(rustix::io::fcntl_dupfd_cloexec(&upper.directory, 0)?, TREE);
            tree.empty_aside()?;
            let layers = lower.iter().chain([&id]).cloned().collect();
            dir.commit(&Manifest { layers, dirty: None })?;
            Ok(Self { tree, mount, upper, notes, work, changed: OnceLock::new() })
        });
        mounted.inspect_err(|_| pool.discard(&id))
    }

    /// Opens the files of the upper layer; `None` before the first change.
    pub(super) fn changed(&self) -> Result<Option<BorrowedFd<'_>>, Errno> {
        if let Some(directory) = self.changed.get() {
            return Ok(Some(directory.as_fd()));
        }
        let made = vanished(open_in(&self.upper.directory, TREE, OFlags::RDONLY | OFlags::DIRECTORY))?;
        Ok(made.map(|directory| self.changed.get_or_init(|| directory).as_fd()))
    }

    /// Releases the mount, and removes the kernel's working directory.
    pub(super) fn unmount(self) {
        let Self { tree, mount, upper, work, changed, .. } = self;
        drop((tree, mount, changed));
        if let Err(error) = remove_all(work.as_fd(), upper.id.as_bytes()) {
            tracing::debug!(%error, id = upper.id, "failed to remove an old working directory");
        }
    }
}

fn mount_layers(
    dir: &OverlayDir,
    pool: &LayerPool,
    lower: &[LayerId],
    upper: &Layer,
    work: &OwnedFd,
    notes: Notes,
) -> io::Result<OwnedFd> {
    let shown = dir.root().join(WORK).join(&upper.id);
    remove_all(work.as_fd(), upper.id.as_bytes()).map_err(failed("remove", &shown))?;
    make_directory(work, upper.id.as_str(), PRIVATE).map_err(failed("create", &shown))?;
    let work = open_in(work, upper.id.as_str(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &shown))?;
    let mut opened = Vec::new();
    for id in lower.iter().rev() {
        let gone = || io::Error::other("the layers that it shares are gone; reopen the session");
        opened.push(pool.layer(id)?.ok_or_else(gone)?);
    }
    let lower: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
    mount(&Layers { lower: &lower, upper: upper.directory.as_fd(), work: work.as_fd() }, notes)
}
