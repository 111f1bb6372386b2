//! The layers of an overlay in their directory: `layers/0` is the lowest, `work/N` is the kernel's own.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, XattrFlags, fchmod, fchown, fsetxattr, openat, renameat};
use rustix::io::Errno;

use super::mount::{Layers, Notes, mount};
use super::squash::{Merged, flatten, merge, resemble};
use super::{ASIDE, OverlayOptions, TREE};
use crate::backends::disk::Tree;
use crate::backends::disk::beneath::{context, open_directory, open_in};
use crate::backends::disk::entries::{make_directory, remove_all};
use crate::backends::disk::listing::{look_at, names};

const LAYERS: &str = "layers";
const WORK: &str = "work";
/// Says which layers make up the files, and since which start of the machine they are whole: that start's identity,
/// then their numbers, the lowest first, a line each. Whatever else lies beside them is nobody's.
const LIST: &str = "list";
/// The list that is to replace it.
const NEXT_LIST: &str = "list.next";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A layer that is being made.
const UNFINISHED: &str = "unfinished";
/// Nobody else on the machine gets to the files this way.
const PRIVATE: u32 = 0o700;

/// The lower layers of an overlay.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    directories: Arc<Directories>,
    /// Numbers, the lowest layer first.
    lower: Vec<u32>,
    next: u32,
    pub(super) notes: Notes,
}

#[derive(Debug)]
struct Directories {
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
    /// Begins anew in a directory, which is made where it is not there yet.
    pub(super) fn create(root: &Path) -> io::Result<Self> {
        make_directory(CWD, root, PRIVATE).map_err(failed("make", root))?;
        let top = open_in(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", root))?;
        for name in [LIST, LAYERS, WORK] {
            remove_all(top.as_fd(), name.as_bytes()).map_err(failed("remove", &root.join(name)))?;
        }
        for name in [LAYERS, WORK] {
            make_directory(&top, name, PRIVATE).map_err(failed("make", &root.join(name)))?;
        }
        Self::of(root, top)
    }

    /// What an earlier process has left in a directory since the machine was started; none if that is nothing whole.
    ///
    /// What is no part of it, and what the kernel kept for its mounts, is removed.
    pub(super) fn open(root: &Path) -> io::Result<Option<Self>> {
        let top = match open_in(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("open", root))?,
        };
        let mut list = Vec::new();
        match open_in(&top, LIST, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => File::from(other.map_err(failed("open", &root.join(LIST)))?).read_to_end(&mut list)?,
        };
        let Some(listed) = listed(&list, &boot_id()?) else { return Ok(None) };
        let mut stack = Self::of(root, top)?;
        let present = stack.present().map_err(failed("read", &root.join(LAYERS)))?;
        let is_whole = listed.iter().all(|number| present.contains(number));
        stack.next = present.last().map_or(0, |last| last + 1);
        stack.lower = if is_whole { stack.with_files(&listed)? } else { Vec::new() };
        if stack.lower.is_empty() || stack.lower.first() != listed.first() {
            tracing::warn!(root = %root.display(), "a layer is gone, so the files are made again");
            return Ok(None);
        }
        stack.remove(&present.into_iter().filter(|number| !stack.lower.contains(number)).collect::<Vec<_>>());
        stack.empty_work();
        Ok(Some(stack))
    }

    /// Those of the layers that have any of the session's files: in an upper one nothing may have been changed.
    fn with_files(&self, listed: &[u32]) -> io::Result<Vec<u32>> {
        let mut kept = Vec::new();
        for number in listed {
            match self.layer(*number, &format!("{number}/{TREE}")) {
                Ok(_) => kept.push(*number),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("open", &self.directories.root.join(LAYERS))(error)),
            }
        }
        Ok(kept)
    }

    /// Notes that these layers, and an upper one above them, are the files from now on. What it did not name before
    /// means nothing until then, and what it does not name any more means nothing from then on.
    pub(super) fn commit(&self, upper: &Layer) -> io::Result<()> {
        let Directories { root, top, .. } = &*self.directories;
        let mut text = boot_id()?;
        for number in self.lower.iter().chain([&upper.number]) {
            text.extend_from_slice(format!("{number}\n").as_bytes());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(top, NEXT_LIST, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make", &root.join(LIST)))?;
        File::from(file).write_all(&text)?;
        renameat(top, NEXT_LIST, top, LIST).map_err(failed("replace", &root.join(LIST)))
    }

    fn of(root: &Path, top: OwnedFd) -> io::Result<Self> {
        let open = |name: &str| {
            open_in(&top, name, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &root.join(name)))
        };
        let (layers, work) = (open(LAYERS)?, open(WORK)?);
        let notes = Notes::on(work.as_fd());
        let directories = Directories { root: root.to_owned(), top, layers, work };
        Ok(Self { directories: Arc::new(directories), lower: Vec::new(), next: 0, notes })
    }

    /// The numbers of all layers that lie there, the lowest first.
    fn present(&self) -> Result<Vec<u32>, Errno> {
        let mut numbers: Vec<u32> =
            names(&self.directories.layers)?.iter().filter_map(|name| name.to_str().ok()?.parse().ok()).collect();
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
        let number = self.next;
        let name = number.to_string();
        let shown = |of: &str| self.directories.root.join(of).join(&name);
        for (directory, of) in [(&self.directories.work, WORK), (&self.directories.layers, LAYERS)] {
            remove_all(directory.as_fd(), name.as_bytes()).map_err(failed("remove", &shown(of)))?;
            make_directory(directory, name.as_str(), PRIVATE).map_err(failed("make", &shown(of)))?;
        }
        let layer = self.layer(number, &name).map_err(failed("open", &shown(LAYERS)))?;
        // What is aside in the layers below is over: nobody has to look there, or copy the directory up.
        let aside = subdirectory(&layer.directory, ASIDE).map_err(failed("make", &shown(LAYERS)))?;
        fsetxattr(&aside, self.notes.opaque(), b"y", XattrFlags::empty()).map_err(failed("mark", &shown(LAYERS)))?;
        self.next += 1;
        Ok(layer)
    }

    /// Puts a layer on top.
    pub(super) fn push(&mut self, layer: &Layer) {
        self.lower.push(layer.number);
    }

    /// This stack with one more layer on top.
    pub(super) fn with(&self, layer: &Layer) -> Self {
        let mut stack = self.clone();
        stack.push(layer);
        stack
    }

    fn layer(&self, number: u32, path: &str) -> Result<Layer, Errno> {
        let directory = open_directory(self.directories.layers.as_fd(), path.as_bytes(), OFlags::RDONLY)?;
        Ok(Layer { number, directory })
    }

    /// The directories of layers, the topmost first.
    fn directories(&self, numbers: &[u32]) -> io::Result<Vec<OwnedFd>> {
        let open = |number: &u32| {
            let shown = || self.directories.root.join(LAYERS).join(number.to_string());
            let layer = self.layer(*number, &number.to_string()).map_err(|error| failed("open", &shown())(error))?;
            Ok(layer.directory)
        };
        numbers.iter().rev().map(open).collect()
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
    /// `tree` shows what they show. Gives the numbers of those that are not needed any more.
    pub(super) fn squash_if_many(&mut self, many: usize, tree: &Tree) -> io::Result<Vec<u32>> {
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
        self.lower.push(number);
        Ok(replaced)
    }

    /// The directories of the session's files in layers, the topmost first; only of those that have one.
    fn trees(&self, numbers: &[u32]) -> io::Result<Vec<OwnedFd>> {
        let mut trees = Vec::new();
        for layer in self.directories(numbers)? {
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

    /// Removes layers that no mount uses and that the list does not name. What can't be removed is a waste of space.
    pub(super) fn remove(&self, numbers: &[u32]) {
        for number in numbers {
            self.remove_from(&self.directories.layers, *number);
        }
    }

    /// Removes the layers that were made since an earlier state of this stack.
    pub(super) fn abandon(&self, earlier: &Self) {
        self.remove(&(earlier.next..=self.next).collect::<Vec<_>>());
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
    pub(super) fn base_tree(&self, options: &OverlayOptions) -> io::Result<Tree> {
        let top = subdirectory(&self.directory, TREE)?;
        fchmod(&top, Mode::from_raw_mode(0o755))?;
        if let Some((user, group)) = options.owner {
            fchown(&top, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        }
        let aside = (subdirectory(&self.directory, ASIDE)?, self.aside_place(options));
        Ok(Tree::new(options.backend, top, aside, options.owner))
    }

    /// Where what is aside lies while this is the upper layer.
    pub(super) fn aside_place(&self, options: &OverlayOptions) -> PathBuf {
        options.root.join(LAYERS).join(self.number.to_string()).join(ASIDE)
    }
}

/// The numbers in a list that was written since the machine was started.
fn listed(list: &[u8], boot: &[u8]) -> Option<Vec<u32>> {
    let numbers = std::str::from_utf8(list.strip_prefix(boot)?).ok()?;
    numbers.lines().map(|line| line.parse().ok()).collect()
}

fn subdirectory(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    make_directory(directory, name, PRIVATE)?;
    open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn boot_id() -> io::Result<Vec<u8>> {
    let mut id = Vec::new();
    let file = open_in(CWD, BOOT_ID, OFlags::RDONLY).map_err(context("open", BOOT_ID))?;
    File::from(file).read_to_end(&mut id)?;
    Ok(id)
}

fn failed(what: &str, path: &Path) -> impl FnOnce(Errno) -> io::Error {
    context(what, &path.display().to_string())
}
