//! The layers of all overlays of one place. A layer below another one in a manifest never changes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, XattrFlags, flock, fsetxattr, openat, renameat};
use rustix::io::Errno;

use super::manifest::{LayerId, is_layer_id, layer_id};
use super::mount::Notes;
use super::step::step;
use crate::backends::disk::beneath::{failed, open_in};
use crate::backends::disk::entries::{PRIVATE, make_directory, make_private, vanished};
use crate::backends::disk::listing::names;
use crate::backends::disk::remove::remove_all;

/// The directory of a layer with the session's files.
pub(super) const TREE: &str = "tree";
/// The directory for staging. It is never attached.
pub(super) const ASIDE: &str = "aside";
/// Locked shared while new layers are in no manifest yet, and exclusively while such layers are removed.
const LOCK: &str = "lock";
/// The prefix of a layer that is being removed.
const REMOVED: &str = ".";

#[derive(Debug)]
pub(super) struct LayerPool {
    path: PathBuf,
    directory: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Layer {
    pub(super) id: LayerId,
    pub(super) directory: OwnedFd,
}

impl LayerPool {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        make_private(path)?;
        let directory = open_in(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", path))?;
        Ok(Self { path: path.to_owned(), directory })
    }

    pub(super) fn path_of(&self, id: &LayerId) -> PathBuf {
        self.path.join(id)
    }

    pub(super) fn layer(&self, id: &LayerId) -> io::Result<Option<OwnedFd>> {
        let layer = vanished(open_in(&self.directory, id.as_str(), OFlags::RDONLY | OFlags::DIRECTORY));
        layer.map_err(failed("open", &self.path_of(id)))
    }

    /// Prevents the removal of layers that are in no manifest, while the file is open.
    pub(super) fn keep(&self) -> io::Result<File> {
        self.lock(FlockOperation::LockShared)
    }

    fn lock(&self, how: FlockOperation) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(failed("open", &self.path.join(LOCK)))?;
        flock(&file, how).map_err(failed("lock", &self.path.join(LOCK)))?;
        Ok(file.into())
    }

    /// Creates an empty layer for `name`, which used the numbers before `from`. Hold [`Self::keep`] until a commit.
    pub(super) fn add(&self, name: &str, from: u32, notes: Notes) -> io::Result<Layer> {
        let mut number = from;
        step()?;
        let id = loop {
            let id = layer_id(name, number);
            // Other overlays may share a layer of a removed overlay with this name.
            if make_directory(&self.directory, id.as_str(), PRIVATE).map_err(failed("create", &self.path_of(&id)))? {
                break id;
            }
            number += 1;
        };
        let made = || {
            step()?;
            let directory = open_in(&self.directory, id.as_str(), OFlags::RDONLY | OFlags::DIRECTORY)?;
            // Hides the lower layers' staged entries, which are obsolete and need not be copied up.
            let aside = subdirectory(&directory, ASIDE)?;
            fsetxattr(&aside, notes.opaque(), b"y", XattrFlags::empty())?;
            Ok(directory)
        };
        let directory = made().map_err(failed("create", &self.path_of(&id)))?;
        Ok(Layer { id, directory })
    }

    /// Removes a layer that only its maker may have used. If that fails, [`LayerPool::collect`] removes it.
    pub(super) fn discard(&self, id: &LayerId) {
        if let Err(error) = step().and_then(|()| remove_all(self.directory.as_fd(), id.as_bytes())) {
            tracing::warn!(%error, id, "failed to remove a layer; garbage collection tries again");
        }
    }

    /// Removes layers that are not in `named`: only the given ones, or all for `None`.
    pub(super) fn collect(
        &self,
        layers: Option<&[LayerId]>,
        named: impl FnOnce() -> io::Result<BTreeSet<LayerId>>,
    ) -> io::Result<()> {
        let alone = self.lock(FlockOperation::LockExclusive)?;
        let named = named()?;
        let present = names(&self.directory).map_err(failed("read", &self.path))?;
        let mut removed = Vec::new();
        for name in present.iter().filter_map(|name| name.to_str().ok()) {
            let is_asked = layers.is_none_or(|layers| layers.iter().any(|id| id == name));
            if is_asked && is_layer_id(name) && !named.contains(name) {
                let gone = format!("{REMOVED}{name}");
                step()?;
                let rename = || renameat(&self.directory, name, &self.directory, gone.as_str());
                let renamed = match rename() {
                    // A killed process has left a half-removed layer.
                    Err(Errno::EXIST | Errno::NOTEMPTY) => {
                        remove_all(self.directory.as_fd(), gone.as_bytes()).and_then(|()| rename())
                    }
                    other => other,
                };
                renamed.map_err(failed("remove", &self.path.join(name)))?;
                removed.push(gone);
            } else if layers.is_none() && name.starts_with(REMOVED) {
                removed.push(name.to_owned());
            }
        }
        // Removing the files takes too long to hold the lock.
        drop(alone);
        let remove = |name: &String| step().and_then(|()| remove_all(self.directory.as_fd(), name.as_bytes()));
        removed.iter().try_for_each(|name| remove(name).map_err(failed("remove", &self.path.join(name))))
    }
}

pub(super) fn subdirectory(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    make_directory(directory, name, PRIVATE)?;
    open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)
}
