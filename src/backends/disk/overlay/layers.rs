//! The layers of an overlay in their directory: `layers/0` is its first, `work/N` is the kernel's own. Lower ones may be
//! those that another overlay has sealed.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    CWD, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags, fchmod, fchown, fsetxattr, openat, renameat, renameat_with,
};
use rustix::io::Errno;

use super::manifest::{LIST, LayerName, List, NEXT_LIST, boot_id};
use super::mount::{Layers, Notes, mount};
use super::refs::{LAYERS, LayerUser, PRIVATE, failed};
use super::squash::{Merged, flatten, merge};
use super::{ASIDE, OverlayOptions, TREE};
use crate::backends::DirtyPath;
use crate::backends::disk::DirTree;
use crate::backends::disk::beneath::{open_directory, open_in};
use crate::backends::disk::copying::resemble;
use crate::backends::disk::entries::{make_directory, remove_all};
use crate::backends::disk::listing::{look_at, names};

const WORK: &str = "work";
/// A layer that is being made.
const UNFINISHED: &str = "unfinished";

/// The lower layers of an overlay.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    directories: Arc<Directories>,
    /// The lowest layer first.
    pub(super) lower: Vec<LayerName>,
    next: u32,
    pub(super) notes: Notes,
}

#[derive(Debug)]
struct Directories {
    kin: LayerUser,
    root: PathBuf,
    top: OwnedFd,
    layers: OwnedFd,
    work: OwnedFd,
}

/// One layer's directory.
#[derive(Debug)]
pub(super) struct Layer {
    number: u32,
    pub(super) directory: OwnedFd,
}

impl Stack {
    /// Begins anew in a directory, which is made where it is not there yet. Of what was there, layers stay that others
    /// use.
    pub(super) fn create(kin: &LayerUser) -> io::Result<Self> {
        let root = kin.root();
        make_directory(CWD, &root, PRIVATE).map_err(failed("make", &root))?;
        let top = open_in(CWD, &root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &root))?;
        let used = kin.revive(&top)?;
        let before = kin.listed()?;
        for name in [LIST, NEXT_LIST, WORK] {
            remove_all(top.as_fd(), name.as_bytes()).map_err(failed("remove", &root.join(name)))?;
        }
        kin.lessen(&before, &[]);
        let mut stack = Self::of(kin, top)?;
        let layers = stack.directories.layers.as_fd();
        for name in names(&stack.directories.layers).map_err(failed("read", &root.join(LAYERS)))? {
            if !number(&name).is_some_and(|number| used.contains(&number)) {
                remove_all(layers, name.to_bytes()).map_err(failed("empty", &root.join(LAYERS)))?;
            }
        }
        stack.next = used.last().map_or(0, |last| last + 1);
        Ok(stack)
    }

    /// What an earlier process has left in a directory since the machine was started, or another overlay has shared
    /// with this one; none if that is nothing whole. With it what may be otherwise than the history says, where that is
    /// known.
    ///
    /// What is no part of it, and what the kernel kept for its mounts, is removed.
    pub(super) fn open(kin: &LayerUser) -> io::Result<Option<(Self, Option<Vec<DirtyPath>>)>> {
        let root = &kin.root();
        let top = match open_in(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("open", root))?,
        };
        let Some(list) = List::in_directory(&top, root)? else { return Ok(None) };
        let mut stack = Self::of(kin, top)?;
        let present = stack.present().map_err(failed("read", &root.join(LAYERS)))?;
        stack.next = present.last().map_or(0, |last| last + 1);
        stack.lower = stack.with_files(&list.layers)?.unwrap_or_default();
        if stack.lower.is_empty() || stack.lower.first() != list.layers.first() {
            tracing::warn!(root = %root.display(), "a layer is gone, so the files are made again");
            return Ok(None);
        }
        let listed = present.into_iter().map(LayerName::own);
        stack.remove(&listed.filter(|name| !stack.lower.contains(name)).collect::<Vec<_>>());
        stack.empty_work();
        Ok(Some((stack, list.touched)))
    }

    /// Those of the layers that have any of the session's files: in an upper one nothing may have been changed. None
    /// when a layer is gone.
    fn with_files(&self, listed: &[LayerName]) -> io::Result<Option<Vec<LayerName>>> {
        let mut kept = Vec::new();
        for name in listed {
            let place = self.directories.kin.place_of(name);
            let layer = match self.layer(name) {
                Err(Errno::NOENT) => return Ok(None),
                other => other.map_err(failed("open", &place))?,
            };
            match open_in(&layer, TREE, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(_) => kept.push(name.clone()),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("open", &place)(error)),
            }
        }
        Ok(Some(kept))
    }

    /// Notes that these layers, and an upper one above them, are the files from now on. What it did not name before
    /// means nothing until then, and what it does not name any more means nothing from then on.
    pub(super) fn commit(&self, upper: &Layer) -> io::Result<()> {
        let Directories { root, top, .. } = &*self.directories;
        let layers = self.lower.iter().cloned().chain([LayerName::own(upper.number)]).collect();
        let list = List { layers, touched: None }.encode(&boot_id()?);
        write_next(top, root, &list)?;
        replace_list(top).map_err(failed("replace", &root.join(LIST)))
    }

    fn of(kin: &LayerUser, top: OwnedFd) -> io::Result<Self> {
        let root = kin.root();
        // An overlay of which another one has made the list has neither.
        let open = |name: &str| subdirectory(&top, name).map_err(failed("open", &root.join(name)));
        let (layers, work) = (open(LAYERS)?, open(WORK)?);
        let notes = Notes::on(work.as_fd());
        let directories = Directories { kin: kin.clone(), root, top, layers, work };
        Ok(Self { directories: Arc::new(directories), lower: Vec::new(), next: 0, notes })
    }

    /// The numbers of all layers that lie there, the lowest first.
    fn present(&self) -> Result<Vec<u32>, Errno> {
        let mut numbers: Vec<u32> = names(&self.directories.layers)?.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes what the kernel kept for mounts of earlier processes, and a layer that was not finished.
    fn empty_work(&self) {
        let work = &self.directories.work;
        let remove = |name: &CString| remove_all(work.as_fd(), name.to_bytes());
        if let Err(error) = names(work).and_then(|names| names.iter().try_for_each(remove)) {
            tracing::debug!(%error, root = %self.directories.root.display(), "old working directories stay");
        }
    }

    /// Makes an empty layer, which belongs to no stack yet.
    pub(super) fn add(&mut self) -> io::Result<Layer> {
        let name = self.next.to_string();
        let shown = |of: &str| self.directories.root.join(of).join(&name);
        for (directory, of) in [(&self.directories.work, WORK), (&self.directories.layers, LAYERS)] {
            remove_all(directory.as_fd(), name.as_bytes()).map_err(failed("remove", &shown(of)))?;
            make_directory(directory, name.as_str(), PRIVATE).map_err(failed("make", &shown(of)))?;
        }
        let directory = self.layer(&LayerName::own(self.next)).map_err(failed("open", &shown(LAYERS)))?;
        let layer = Layer { number: self.next, directory };
        // What is aside in the layers below is over: nobody has to look there, or copy the directory up.
        let aside = subdirectory(&layer.directory, ASIDE).map_err(failed("make", &shown(LAYERS)))?;
        fsetxattr(&aside, self.notes.opaque(), b"y", XattrFlags::empty()).map_err(failed("mark", &shown(LAYERS)))?;
        self.next += 1;
        Ok(layer)
    }

    /// Puts a layer on top.
    pub(super) fn push(&mut self, layer: &Layer) {
        self.lower.push(LayerName::own(layer.number));
    }

    /// This stack with one more layer on top.
    pub(super) fn with(&self, layer: &Layer) -> Self {
        let mut stack = self.clone();
        stack.push(layer);
        stack
    }

    fn layer(&self, name: &LayerName) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match &name.owner {
            None => open_directory(self.directories.layers.as_fd(), name.number.to_string().as_bytes(), flags),
            Some(_) => open_in(CWD, self.directories.kin.place_of(name), flags),
        }
    }

    /// The directories of layers, the topmost first.
    fn directories(&self, names: &[LayerName]) -> io::Result<Vec<OwnedFd>> {
        let open = |name: &LayerName| {
            self.layer(name).map_err(|error| failed("open", &self.directories.kin.place_of(name))(error))
        };
        names.iter().rev().map(open).collect()
    }

    /// Mounts all layers below an upper one.
    pub(super) fn mount(&self, upper: &Layer) -> io::Result<OwnedFd> {
        let lower = self.directories(&self.lower)?;
        let lower: Vec<BorrowedFd<'_>> = lower.iter().map(AsFd::as_fd).collect();
        let work = open_directory(self.directories.work.as_fd(), upper.number.to_string().as_bytes(), OFlags::RDONLY)
            .map_err(failed("open", &self.directories.root.join(WORK)))?;
        let layers = Layers { lower: &lower, upper: upper.directory.as_fd(), work: work.as_fd() };
        mount(&layers, self.notes)
    }

    /// Makes one layer of all but the lowest when they are many; or of all, where that is not possible.
    ///
    /// `tree` shows what they show. Gives those that are not needed any more.
    pub(super) fn squash_if_many(&mut self, many: usize, tree: &DirTree) -> io::Result<Vec<LayerName>> {
        if !self.is_many(many) {
            return Ok(Vec::new());
        }
        let work = self.directories.work.as_fd();
        let fresh = || -> io::Result<OwnedFd> {
            remove_all(work, UNFINISHED.as_bytes())?;
            make_directory(work, UNFINISHED, PRIVATE)?;
            Ok(open_in(work, UNFINISHED, OFlags::RDONLY | OFlags::DIRECTORY)?)
        };
        let (base, above) = self.lower.split_at(1);
        let base = self.trees(base)?.pop().ok_or(Errno::NOENT)?;
        let made = fresh()?;
        let kept = match merge(&self.trees(above)?, &base, &subdirectory(&made, TREE)?, self.notes)? {
            Merged::Done => 1,
            Merged::Redirected => {
                let made = fresh()?;
                let top = subdirectory(&made, TREE)?;
                flatten(tree, &top, self.notes)?;
                resemble(&top, &look_at(&tree.root)?)?;
                resemble(&subdirectory(&made, ASIDE)?, &look_at(&tree.aside)?)?;
                0
            }
        };
        let number = self.next;
        renameat(work, UNFINISHED, &self.directories.layers, number.to_string())?;
        self.next += 1;
        let replaced = self.lower.split_off(kept);
        self.lower.push(LayerName::own(number));
        Ok(replaced)
    }

    /// The directories of the session's files in layers, the topmost first; only of those that have one.
    fn trees(&self, names: &[LayerName]) -> io::Result<Vec<OwnedFd>> {
        let mut trees = Vec::new();
        for layer in self.directories(names)? {
            match open_in(&layer, TREE, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(tree) => trees.push(tree),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(trees)
    }

    /// Whether the layers are so many that they should be made one.
    pub(super) fn is_many(&self, many: usize) -> bool {
        self.lower.len() > many.max(2)
    }

    /// Removes layers that no mount of this overlay uses and that its list does not name, but for those that others
    /// use. What can't be removed is a waste of space.
    pub(super) fn remove(&self, names: &[LayerName]) {
        let Directories { kin, layers, .. } = &*self.directories;
        kin.lessen(names, &self.lower);
        let own = || names.iter().filter(|name| name.owner.is_none()).map(|name| name.number);
        if own().next().is_none() {
            return;
        }
        // Nobody begins to use one that is not in the list.
        let used = kin.used().unwrap_or_else(|error| {
            tracing::warn!(%error, root = %self.directories.root.display(), "layers stay that may not be needed");
            own().collect::<BTreeSet<_>>()
        });
        own().filter(|number| !used.contains(number)).for_each(|number| self.remove_from(layers, number));
    }

    /// Removes the layers that were made since an earlier state of this stack.
    pub(super) fn abandon(&self, earlier: &Self) {
        self.remove(&(earlier.next..=self.next).map(LayerName::own).collect::<Vec<_>>());
    }

    /// Removes what the kernel kept for an upper layer that is one no more.
    pub(super) fn retire(&self, layer: &Layer) {
        self.remove_from(&self.directories.work, layer.number);
    }

    fn remove_from(&self, directory: &OwnedFd, number: u32) {
        if let Err(error) = remove_all(directory.as_fd(), number.to_string().as_bytes()) {
            tracing::warn!(%error, number, root = %self.directories.root.display(), "a layer could not be removed");
        }
    }
}

impl Layer {
    /// The lowest layer as a plain directory, before anything is mounted.
    pub(super) fn base_tree(&self, options: &OverlayOptions) -> io::Result<DirTree> {
        let top = subdirectory(&self.directory, TREE)?;
        fchmod(&top, Mode::from_raw_mode(0o755))?;
        if let Some((user, group)) = options.owner {
            fchown(&top, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        let aside = (subdirectory(&self.directory, ASIDE)?, self.aside_place(options));
        Ok(DirTree::new(options.backend, top, aside, options.owner))
    }

    /// Where what is aside lies while this is the upper layer.
    pub(super) fn aside_place(&self, options: &OverlayOptions) -> PathBuf {
        options.kin.root().join(LAYERS).join(self.number.to_string()).join(ASIDE)
    }
}

fn number(name: &CString) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// Writes the list that is to replace the one that is there.
pub(super) fn write_next(top: &OwnedFd, root: &Path, list: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(top, NEXT_LIST, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make", &root.join(NEXT_LIST)))?;
    let mut file = File::from(file);
    file.write_all(list)?;
    file.set_len(u64::try_from(list.len()).unwrap_or(u64::MAX))
}

/// Puts the next list in the place of the one that is there, which becomes the next: to remove a file takes longer.
fn replace_list(top: &OwnedFd) -> Result<(), Errno> {
    match renameat_with(top, NEXT_LIST, top, LIST, RenameFlags::EXCHANGE) {
        // There is none yet, or the file system can't.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => renameat(top, NEXT_LIST, top, LIST),
        other => other,
    }
}

/// A directory in another one, made where there is none.
pub(super) fn subdirectory(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    make_directory(directory, name, PRIVATE)?;
    open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)
}
