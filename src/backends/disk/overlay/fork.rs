//! An overlay that gets the files of another one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat, renameat};

use super::TREE;
use super::copy::copy;
use super::layers::{subdirectory, write_next};
use super::manifest::{LIST, LayerName, List, NEXT_LIST, boot_id};
use super::mount::Notes;
use super::refs::{LAYERS, LayerUser, PRIVATE, failed};
use crate::backends::DirtyPath;
use crate::backends::disk::beneath::open_in;
use crate::backends::disk::entries::{make_directory, remove_all};

/// The number of the layer that it has of its own.
const COPIED: u32 = 0;

/// An overlay to be, which is none until it is given its files: at any moment it has all of them or none.
pub(super) struct ForkedOverlay<'a> {
    giver: &'a LayerUser,
    kin: LayerUser,
    top: OwnedFd,
    /// Whether it has a copy of a layer, which lies above the others.
    has_copy: bool,
}

impl<'a> ForkedOverlay<'a> {
    /// None when there is an overlay of that name.
    pub(super) fn begin(giver: &'a LayerUser, name: &str) -> io::Result<Option<Self>> {
        let kin = giver.named(name);
        let top = make_all(&kin)?;
        let is_there = accessat(&top, LIST, Access::EXISTS, AtFlags::empty()).is_ok();
        Ok((!is_there).then_some(Self { giver, kin, top, has_copy: false }))
    }

    /// Gives it a copy of a layer's files. Gives false, and nothing, where that is too much.
    pub(super) fn copy(&mut self, tree: BorrowedFd<'_>, notes: Notes) -> io::Result<bool> {
        let shown = self.kin.root().join(LAYERS);
        let layers = subdirectory(&self.top, LAYERS).map_err(failed("open", &shown))?;
        // What others use, or an interrupted process has left.
        if !make_directory(&layers, COPIED.to_string(), PRIVATE).map_err(failed("make", &shown))? {
            return Ok(false);
        }
        let copied = || {
            let layer = open_in(&layers, COPIED.to_string(), OFlags::RDONLY | OFlags::DIRECTORY)?;
            copy(tree, subdirectory(&layer, TREE)?.as_fd(), notes)
        };
        let copied = copied();
        self.has_copy = matches!(copied, Ok(true));
        if !self.has_copy {
            self.forget_copy();
        }
        copied
    }

    /// Makes these layers, as they are now, its files, below those that were copied. `touched` says what may be otherwise
    /// than the history says.
    pub(super) fn give(self, layers: &[LayerName], touched: Vec<DirtyPath>) -> io::Result<()> {
        let root = self.kin.root();
        let copied = self.has_copy.then_some(LayerName::own(COPIED));
        let theirs = layers.iter().map(|layer| layer.seen_from_outside(&self.giver.name));
        let list = List { layers: theirs.chain(copied).collect(), touched: Some(touched) };
        // First, so that whoever finds a mark that an interrupted process has made finds whose it is, too.
        let write = || write_next(&self.top, &root, &list.encode(&boot_id()?));
        let name = || renameat(&self.top, NEXT_LIST, &self.top, LIST).map_err(failed("make", &root.join(LIST)));
        let given = write().and_then(|()| self.kin.mark(&self.kin.name, &list.layers)).and_then(|()| name());
        if given.is_err() {
            self.kin.lessen(&list.layers, &[]);
            if let Err(error) = remove_all(self.top.as_fd(), NEXT_LIST.as_bytes()) {
                tracing::debug!(%error, "a list that counts for nothing stays");
            }
            if self.has_copy {
                self.forget_copy();
            }
        }
        given
    }

    fn forget_copy(&self) {
        let layers = open_in(&self.top, LAYERS, OFlags::RDONLY | OFlags::DIRECTORY);
        let removed = layers.and_then(|layers| remove_all(layers.as_fd(), COPIED.to_string().as_bytes()));
        if let Err(error) = removed {
            tracing::debug!(%error, "a layer that counts for nothing stays");
        }
    }
}

/// Makes the directory of an overlay, and those above it that are its own.
fn make_all(kin: &LayerUser) -> io::Result<OwnedFd> {
    let (home, root) = (kin.home(), kin.root());
    let mut steps: Vec<_> = root.ancestors().take_while(|path| path.starts_with(&home)).collect();
    steps.reverse();
    for step in steps {
        make_directory(CWD, step, PRIVATE).map_err(failed("make", step))?;
    }
    open_in(CWD, &root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &root))
}
