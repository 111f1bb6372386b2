//! Making one layer out of many.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, linkat, mknodat};
use rustix::io::Errno;

use super::mount::Notes;
use crate::backends::Observed;
use crate::backends::disk::beneath::{leads_nowhere, open_directory, open_in};
use crate::backends::disk::copying::{copy_directory, copy_file, copy_other, resemble};
use crate::backends::disk::entries::kind_of;
use crate::backends::disk::file_stat::FileStat;
use crate::backends::disk::listing::{Lister, look, look_at};
use crate::backends::disk::{DirTree, LOOK_BYTES_MAX, PATH_BYTES_MAX, too_much};
use crate::engine::path::EntryPath;

/// Whether layers could be put together name by name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// They could.
    Done,
    /// One of them shows a directory of another path in the layers below it.
    Redirected,
}

/// Puts layers, the topmost first, together in an empty directory. Files are linked, not copied.
///
/// The result hides of the base, the only layer below, what the given ones hid. Where a directory shows nothing of the
/// base there are no marks of deletion either: the kernel expects none there, and would list them.
pub(super) fn merge(layers: &[OwnedFd], base: &OwnedFd, into: &OwnedFd, notes: Notes) -> io::Result<Merged> {
    let mut left = vec![SquashJob { path: Vec::new(), sources: (0..layers.len()).collect(), hides: true }];
    let mut lister = Lister::new();
    let (mut links, mut bytes) = (Links::default(), 0);
    while let Some(job) = left.pop() {
        let target = open_directory(into.as_fd(), &job.path, OFlags::RDONLY)?;
        let mut sources = Vec::new();
        for at in job.sources {
            match open_directory(layers[at].as_fd(), &job.path, OFlags::RDONLY) {
                Ok(directory) => sources.push((at, directory)),
                // A layer in which nothing was changed has not even its top.
                Err(Errno::NOENT) if job.path.is_empty() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let names = gather(&sources, notes, &mut lister)?;
        for (name, found) in names {
            match found {
                MergedDir::Redirected => return Ok(Merged::Redirected),
                MergedDir::Leaf(source) if job.hides || !is_mark(&sources[source].1, &name)? => {
                    links.link(&sources[source].1, &name, &target)?;
                }
                MergedDir::Leaf(_) => {}
                MergedDir::Directory { sources: below, opaque, .. } => {
                    let top = below.first().copied().unwrap_or_default();
                    let made = copy_directory(&sources[top].1, &name, &target)?;
                    if opaque {
                        fsetxattr(&made, notes.opaque(), b"y", XattrFlags::empty())?;
                    }
                    let path = if job.path.is_empty() { name } else { [&job.path[..], &name].join(&b'/') };
                    let sources = below.iter().map(|source| sources[*source].0).collect();
                    bytes += path.len();
                    if bytes > LOOK_BYTES_MAX {
                        return Err(too_much(&path));
                    }
                    if path.len() > PATH_BYTES_MAX {
                        // What is below it is in no history, and so is not kept for ever.
                        continue;
                    }
                    let hides = job.hides && !opaque && is_directory(base, &path)?;
                    left.push(SquashJob { path, sources, hides });
                }
            }
        }
        let top = sources.first().map_or(base, |(_, top)| top);
        resemble(&target, &look_at(top)?)?;
    }
    Ok(Merged::Done)
}

/// Copies all that a tree shows into an empty directory, which from then on hides all layers below.
pub(super) fn flatten(tree: &DirTree, into: &OwnedFd, notes: Notes) -> io::Result<()> {
    fsetxattr(into, notes.opaque(), b"y", XattrFlags::empty())?;
    let mut found = Vec::new();
    let closed = tree.walk(&EntryPath::root(), &mut |path, seen| found.push((path, seen.kind)))?;
    // What is too deep is not kept, but what may not be read is in the layers that would be removed.
    if let Some(closed) = closed.iter().find(|path| path.as_bytes().len() <= PATH_BYTES_MAX) {
        let words = format!("{} can't be read, so the layers that it is in are needed", closed.rooted());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    for (path, kind) in found {
        let parent = path.parent().unwrap_or_else(EntryPath::root);
        let from = open_directory(tree.root.as_fd(), parent.as_bytes(), OFlags::PATH)?;
        let to = open_directory(into.as_fd(), parent.as_bytes(), OFlags::PATH)?;
        let stat = look(&from, path.name())?;
        match kind {
            Observed::Directory => drop(copy_directory(&from, path.name(), &to)?),
            Observed::File { .. } => copy_file(tree.open(&path)?, &stat, &to, path.name())?,
            Observed::Symlink { .. } | Observed::Special(_) => copy_other(&from, &stat, &to, path.name())?,
        }
    }
    Ok(())
}

struct SquashJob {
    path: Vec<u8>,
    /// Numbers of layers, the topmost first.
    sources: Vec<usize>,
    /// Whether entries of the base show through here.
    hides: bool,
}

/// What several directories of one path show together.
enum MergedDir {
    /// A file, a link, or the mark of something deleted, in the directory of this index.
    Leaf(usize),
    /// A directory in some of them. It is complete when nothing further below can show through.
    Directory {
        sources: Vec<usize>,
        complete: bool,
        opaque: bool,
    },
    Redirected,
}

fn gather(
    sources: &[(usize, OwnedFd)],
    notes: Notes,
    lister: &mut Lister,
) -> Result<BTreeMap<Vec<u8>, MergedDir>, Errno> {
    let mut names: BTreeMap<Vec<u8>, MergedDir> = BTreeMap::new();
    for (at, (_, directory)) in sources.iter().enumerate() {
        lister.each(directory.as_fd(), |name, stat| {
            let is_directory = kind_of(stat) == FileType::Directory;
            let before = names.get_mut(name.to_bytes());
            if matches!(
                before,
                Some(MergedDir::Leaf(_) | MergedDir::Redirected | MergedDir::Directory { complete: true, .. })
            ) {
                return Ok(());
            }
            let mark = if is_directory { Mark::of(directory.as_fd(), name, notes)? } else { Mark::None };
            match (before, mark) {
                (_, Mark::Redirected) => drop(names.insert(name.to_bytes().to_vec(), MergedDir::Redirected)),
                (None, _) if !is_directory => drop(names.insert(name.to_bytes().to_vec(), MergedDir::Leaf(at))),
                (None, mark) => {
                    let opaque = mark == Mark::Opaque;
                    let found = MergedDir::Directory { sources: vec![at], complete: opaque, opaque };
                    names.insert(name.to_bytes().to_vec(), found);
                }
                (Some(MergedDir::Directory { sources, complete, opaque }), mark) => {
                    if is_directory {
                        sources.push(at);
                    }
                    if !is_directory || mark == Mark::Opaque {
                        (*complete, *opaque) = (true, true);
                    }
                }
                (Some(_), _) => {}
            }
            Ok(())
        })?;
    }
    Ok(names)
}

#[derive(PartialEq, Eq)]
enum Mark {
    None,
    Opaque,
    Redirected,
}

impl Mark {
    fn of(parent: BorrowedFd<'_>, name: &std::ffi::CStr, notes: Notes) -> Result<Self, Errno> {
        let directory = open_in(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut value = [0; 8];
        match fgetxattr(&directory, notes.redirect(), &mut value) {
            Ok(_) | Err(Errno::RANGE) => return Ok(Self::Redirected),
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return Err(error),
        }
        match fgetxattr(&directory, notes.opaque(), &mut value) {
            Ok(1) if value[0] == b'y' => Ok(Self::Opaque),
            // Entries may be marked as deleted by attributes, which links would keep, but nothing here does that.
            Ok(_) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(Self::None),
            Err(error) => Err(error),
        }
    }
}

fn is_directory(top: &OwnedFd, path: &[u8]) -> Result<bool, Errno> {
    match open_directory(top.as_fd(), path, OFlags::PATH) {
        Ok(_) => Ok(true),
        Err(error) if leads_nowhere(error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an entry of a layer marks one of that name below as deleted.
fn is_mark(directory: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    look(directory, name).map(|stat| FileStat::of(&stat).is_mark())
}

/// Files that have as many links as their file system allows, with the copies that take the rest.
#[derive(Default)]
struct Links {
    copies: BTreeMap<(u64, u64), OwnedFd>,
}

impl Links {
    fn link(&mut self, from: &OwnedFd, name: &[u8], to: &OwnedFd) -> io::Result<()> {
        match linkat(from, name, to, name, AtFlags::empty()) {
            // All marks of deletion are links to one.
            Err(Errno::MLINK) if is_mark(from, name)? => {
                Ok(mknodat(to, name, FileType::CharacterDevice, Mode::empty(), 0)?)
            }
            Err(Errno::MLINK) => self.link_to_copy(from, name, to),
            other => Ok(other?),
        }
    }

    fn link_to_copy(&mut self, from: &OwnedFd, name: &[u8], to: &OwnedFd) -> io::Result<()> {
        let stat = look(from, name)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(Errno::MLINK.into());
        }
        let file = (u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor), stat.stx_ino);
        if let Some(copy) = self.copies.get(&file) {
            let itself = format!("/proc/self/fd/{}", copy.as_raw_fd());
            match linkat(CWD, itself, to, name, AtFlags::SYMLINK_FOLLOW) {
                Err(Errno::MLINK) => {}
                other => return Ok(other?),
            }
        }
        copy_file(File::from(open_in(from, name, OFlags::RDONLY)?), &stat, to, name)?;
        self.copies.insert(file, open_in(to, name, OFlags::PATH)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::openat;

    use super::*;

    #[test]
    fn squash_copies_file_at_link_limit_once() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |at: &std::path::Path| open_in(CWD, at, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        let (from, to) = (open(from.path()), open(to.path()));
        let file = openat(&from, "0", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(&file, b"text").unwrap();
        // ext4 has 65,000; where there is no limit there is nothing to be copied.
        let next = |number: u32| linkat(&from, "0", &from, number.to_string(), AtFlags::empty());
        let limit = (1..70_000).find(|number| next(*number) == Err(Errno::MLINK));
        let mut links = Links::default();
        let inode = |name: &str| look(&to, name).map(|stat| (stat.stx_ino, stat.stx_size)).unwrap();
        for name in ["1", "2", "3"] {
            links.link(&from, name.as_bytes(), &to).unwrap();
            assert_eq!(inode(name).1, 4);
        }
        assert_eq!(links.copies.len(), usize::from(limit.is_some()));
        assert!(inode("1") == inode("2") && inode("2") == inode("3"));
        assert_eq!(limit.is_none(), inode("1").0 == look(&from, "0").unwrap().stx_ino);
    }
}
