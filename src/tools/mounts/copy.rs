//! One host directory, read into memory.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::roots::{AllowedRoots, canonical};
use super::spec::Globs;
use super::{MountError, MountSpec};
use crate::backends::disk::beneath::{open_beneath, open_in};
use crate::engine::clock::Timestamp;
use crate::engine::commit::MAX_COMMIT_EVENTS;
use crate::engine::event::Node;
use crate::engine::path::EntryPath;

/// Directories in directories; each holds a handle open.
const DEPTH_MAX: usize = 128;
const OWNER_EXECUTES: u32 = 0o100;

pub(super) struct CopiedTree {
    pub(super) spec: MountSpec,
    pub(super) host: PathBuf,
    pub(super) mount_path: EntryPath,
    pub(super) entries: Vec<CopiedEntry>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

pub(super) struct CopiedEntry {
    pub(super) path: EntryPath,
    pub(super) node: Node,
    pub(super) bytes: Bytes,
    pub(super) modified: Option<Timestamp>,
}

pub(super) fn copy(spec: &MountSpec, roots: &AllowedRoots) -> Result<CopiedTree, MountError> {
    let globs = spec.globs()?;
    let (host, top) = roots.open(&spec.host_path)?;
    let mount_path = spec.mount_path.clone().unwrap_or_else(EntryPath::root);
    let copied = CopiedTree { spec: spec.clone(), host, mount_path, entries: Vec::new(), files: 0, bytes: 0 };
    let handle = open_beneath(&top, Path::new(""), OFlags::DIRECTORY).map_err(MountError::io("open", &copied.host))?;
    let mut walk = MountWalk { copied, globs, top, above: Vec::new() };
    walk.directory(&handle, Path::new(""))?;
    let mut copied = walk.copied;
    if copied.entries.is_empty() && !copied.mount_path.is_root() {
        copied.push(Path::new(""), Node::Directory, Bytes::new(), None)?;
    }
    Ok(copied)
}

struct MountWalk {
    copied: CopiedTree,
    globs: Globs,
    top: OwnedFd,
    /// Device and inode of the directories on the way, so that no link leads in a circle.
    above: Vec<(u64, u64)>,
}

impl MountWalk {
    fn directory(&mut self, handle: &OwnedFd, relative: &Path) -> Result<(), MountError> {
        let shown = self.copied.host.join(relative);
        if self.above.len() == DEPTH_MAX {
            return Err(MountError::TooDeep { path: shown, limit: DEPTH_MAX });
        }
        let names = names(handle).map_err(MountError::io("read", &shown))?;
        if names.is_empty() && self.globs.include(relative) && relative != Path::new("") {
            self.copied.push(relative, Node::Directory, Bytes::new(), None)?;
        }
        self.above.push(identity(handle).map_err(MountError::io("read", &shown))?);
        for name in names {
            let relative = relative.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
            if !self.globs.exclude(&relative) {
                self.entry(handle, name, &relative)?;
            }
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, parent: &OwnedFd, name: CString, relative: &Path) -> Result<(), MountError> {
        let kind = match statat(parent, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            // It was removed while the directory was read.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(MountError::io("look at", &self.copied.host.join(relative))(error)),
        };
        let included = self.globs.include(relative);
        let open = |flags| {
            open_in(parent, name.as_c_str(), flags).map_err(MountError::io("open", &self.copied.host.join(relative)))
        };
        match kind {
            FileType::Directory => {
                let handle = open(OFlags::DIRECTORY)?;
                self.directory(&handle, relative)
            }
            FileType::RegularFile if included => {
                let handle = open(OFlags::empty())?;
                self.copied.file(handle, relative)
            }
            FileType::Symlink if self.copied.spec.follow_symlinks => self.follow(parent, name, relative),
            FileType::Symlink if included => self.copied.link(parent, name, relative),
            // Sockets, pipes and devices have no contents to copy.
            _ => Ok(()),
        }
    }

    /// Copies what a link leads to. One that leads nowhere, or back up, stays a link.
    fn follow(&mut self, parent: &OwnedFd, name: CString, relative: &Path) -> Result<(), MountError> {
        let link = self.copied.host.join(relative);
        let included = self.globs.include(relative);
        let Some(target) = canonical(&link)? else {
            return if included { self.copied.link(parent, name, relative) } else { Ok(()) };
        };
        let Ok(inside) = target.strip_prefix(&self.copied.host) else {
            return Err(MountError::LinkLeaves { path: link, target });
        };
        let path_only = open_beneath(&self.top, inside, OFlags::PATH).map_err(MountError::io("open", &link))?;
        let kind = fstat(&path_only).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let reopen = |flags| open_beneath(&self.top, inside, flags).map_err(MountError::io("open", &link));
        match kind.map_err(MountError::io("look at", &link))? {
            FileType::Directory => {
                let handle = reopen(OFlags::DIRECTORY)?;
                let identity = identity(&handle).map_err(MountError::io("look at", &link))?;
                match self.above.contains(&identity) {
                    false => self.directory(&handle, relative),
                    true if included => self.copied.link(parent, name, relative),
                    true => Ok(()),
                }
            }
            FileType::RegularFile if included => {
                let handle = reopen(OFlags::empty())?;
                self.copied.file(handle, relative)
            }
            _ => Ok(()),
        }
    }
}

impl CopiedTree {
    fn file(&mut self, handle: OwnedFd, relative: &Path) -> Result<(), MountError> {
        let shown = self.host.join(relative);
        let stat = fstat(&handle).map_err(MountError::io("look at", &shown))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let left = self.spec.max_bytes.map(|limit| limit.saturating_sub(self.bytes));
        let expected = u64::try_from(stat.st_size).unwrap_or(0);
        self.check_budget(left, expected)?;
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(usize::MAX));
        reserved.map_err(std::io::Error::other).map_err(MountError::io("read", &shown))?;
        // A file may grow while it is read; one byte over the budget tells.
        let mut reader = File::from(handle).take(left.map_or(u64::MAX, |left| left.saturating_add(1)));
        reader.read_to_end(&mut bytes).map_err(MountError::io("read", &shown))?;
        self.check_budget(left, bytes.len() as u64)?;
        self.files += 1;
        self.bytes += bytes.len() as u64;
        let node = Node::file(&bytes, stat.st_mode & OWNER_EXECUTES != 0);
        let millis = stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000);
        self.push(relative, node, Bytes::from(bytes), Some(Timestamp(millis)))
    }

    fn check_budget(&self, left: Option<u64>, size: u64) -> Result<(), MountError> {
        match (left, self.spec.max_bytes) {
            (Some(left), Some(limit)) if size > left => {
                let at_least = self.bytes.saturating_add(size);
                Err(MountError::TooLarge { path: self.host.clone(), limit, at_least })
            }
            _ => Ok(()),
        }
    }

    fn link(&mut self, parent: &OwnedFd, name: CString, relative: &Path) -> Result<(), MountError> {
        match readlinkat(parent, name.as_c_str(), Vec::new()) {
            Ok(target) => self.push(relative, Node::Symlink { target: target.into_bytes() }, Bytes::new(), None),
            Err(error) => Err(MountError::io("read the link", &self.host.join(relative))(error)),
        }
    }

    fn push(
        &mut self,
        relative: &Path,
        node: Node,
        bytes: Bytes,
        modified: Option<Timestamp>,
    ) -> Result<(), MountError> {
        let limit = u64::from(MAX_COMMIT_EVENTS);
        let actual = self.entries.len() as u64 + 1;
        if actual > limit {
            return Err(MountError::TooMany { path: self.host.clone(), what: "entries", actual, limit });
        }
        let relative = relative.as_os_str().as_bytes();
        let not_ascii = || MountError::NotAscii { path: crate::tools::builtin::files::shown(relative) };
        let path = self.mount_path.join(relative).map_err(|_| not_ascii())?;
        if !path.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return Err(MountError::NotAscii { path: path.to_string() });
        }
        self.entries.push(CopiedEntry { path, node, bytes, modified });
        Ok(())
    }
}

fn names(handle: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(handle)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn identity(handle: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(handle).map(|stat| (stat.st_dev, stat.st_ino))
}
