//! Reading a host directory, or a single file, into memory.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::roots::{AllowedRoots, canonical, is_plain};
use super::spec::Globs;
use super::{MountError, MountSpec};
use crate::backends::disk::beneath::{open_beneath, open_in};
use crate::engine::clock::Timestamp;
use crate::engine::commit::MAX_COMMIT_EVENTS;
use crate::engine::event::{FileMode, Node};
use crate::engine::path::EntryPath;
use crate::engine::store::is_data_directory;

/// The limit for the nesting of directories, because each level holds a handle open.
const DEPTH_MAX: usize = 128;
/// The mode bits that a copy retains, without set-id bits.
const RIGHTS: u32 = 0o777;

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
    if host.ancestors().any(is_data_directory) {
        return Err(MountError::DataDirectory { path: host });
    }
    let stat = fstat(&top).map_err(MountError::io("stat", &host))?;
    let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
    let name = host.file_name().filter(|_| is_file).unwrap_or_default().as_bytes();
    let mount_path = spec.mount_path.clone().map_or_else(|| EntryPath::root().join(name), Ok);
    let mount_path = mount_path.map_err(|_| MountError::OddName { path: host.display().to_string() })?;
    let mut copied = CopiedTree { spec: spec.clone(), host, mount_path, entries: Vec::new(), files: 0, bytes: 0 };
    if is_file {
        return match spec.include_glob.iter().chain(&spec.exclude_glob).next() {
            None => copied.file(top, Path::new("")).map(|()| copied),
            Some(glob) => {
                let why = "a single file is mounted, which has no globs".to_owned();
                Err(MountError::Glob { path: copied.host, glob: glob.clone(), why })
            }
        };
    }
    let handle = open_beneath(&top, Path::new(""), OFlags::DIRECTORY).map_err(MountError::io("open", &copied.host))?;
    let identity = identity(&handle).map_err(MountError::io("stat", &copied.host))?;
    let mut walk = MountWalk { copied, globs, top: &top, above: Vec::new() };
    walk.directory(&handle, identity, Path::new(""))?;
    let mut copied = walk.copied;
    if copied.entries.is_empty() && !copied.mount_path.is_root() {
        copied.push(Path::new(""), Node::DIRECTORY, Bytes::new(), None)?;
    }
    Ok(copied)
}

struct MountWalk<'a> {
    copied: CopiedTree,
    globs: Globs,
    top: &'a OwnedFd,
    /// The device and inode of each directory above, to detect cycles of links.
    above: Vec<(u64, u64)>,
}

impl MountWalk<'_> {
    fn directory(&mut self, handle: &OwnedFd, identity: (u64, u64), relative: &Path) -> Result<(), MountError> {
        let shown = self.copied.host.join(relative);
        if self.above.len() == DEPTH_MAX {
            return Err(MountError::TooDeep { path: shown, limit: DEPTH_MAX });
        }
        // A store grows while it is copied, also by this copy.
        if is_data_directory(&shown) {
            return Ok(());
        }
        let names = names(handle).map_err(MountError::io("read", &shown))?;
        if names.is_empty() && self.globs.include(relative) && relative != Path::new("") {
            self.copied.push(relative, Node::DIRECTORY, Bytes::new(), None)?;
        }
        self.above.push(identity);
        for name in names {
            let relative = relative.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
            if !self.globs.exclude(&relative) {
                self.entry(handle, &name, &relative)?;
            }
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, parent: &OwnedFd, name: &CStr, relative: &Path) -> Result<(), MountError> {
        let shown = self.copied.host.join(relative);
        let kind = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            // The entry was removed while the directory was read.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(MountError::io("stat", &shown)(error)),
        };
        if kind != FileType::Symlink || !self.copied.spec.follow_symlinks {
            return self.take(kind, |flags| open_in(parent, name, flags), (parent, name), relative);
        }
        // A link that leads nowhere stays a link.
        let Some(target) = canonical(&shown)? else { return self.link((parent, name), relative) };
        let Ok(inside) = target.strip_prefix(&self.copied.host) else {
            return Err(MountError::LinkLeaves { path: shown, target });
        };
        let top = self.top;
        let path_only = open_beneath(top, inside, OFlags::PATH).map_err(MountError::io("open", &shown))?;
        let stat = fstat(&path_only).map_err(MountError::io("stat", &shown))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        self.take(kind, |flags| open_beneath(top, inside, flags), (parent, name), relative)
    }

    /// Copies an entry, or the target of a link. A link to a directory above stays a link.
    fn take(
        &mut self,
        kind: FileType,
        open: impl FnOnce(OFlags) -> Result<OwnedFd, Errno>,
        link: (&OwnedFd, &CStr),
        relative: &Path,
    ) -> Result<(), MountError> {
        let shown = self.copied.host.join(relative);
        match kind {
            FileType::Directory => {
                let handle = open(OFlags::DIRECTORY).map_err(MountError::io("open", &shown))?;
                let identity = identity(&handle).map_err(MountError::io("stat", &shown))?;
                match self.above.contains(&identity) {
                    false => self.directory(&handle, identity, relative),
                    true => self.link(link, relative),
                }
            }
            FileType::RegularFile if self.globs.include(relative) => {
                let handle = open(OFlags::empty()).map_err(MountError::io("open", &shown))?;
                self.copied.file(handle, relative)
            }
            FileType::Symlink => self.link(link, relative),
            // Sockets, pipes and devices have no contents to copy.
            _ => Ok(()),
        }
    }

    fn link(&mut self, (parent, name): (&OwnedFd, &CStr), relative: &Path) -> Result<(), MountError> {
        if !self.globs.include(relative) {
            return Ok(());
        }
        let target = readlinkat(parent, name, Vec::new());
        let target = target.map_err(MountError::io("read the link", &self.copied.host.join(relative)))?;
        self.copied.push(relative, Node::Symlink { target: target.into_bytes() }, Bytes::new(), None)
    }
}

impl CopiedTree {
    fn file(&mut self, handle: OwnedFd, relative: &Path) -> Result<(), MountError> {
        let shown = self.host.join(relative);
        let stat = fstat(&handle).map_err(MountError::io("stat", &shown))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let left = self.spec.max_bytes.map(|limit| limit.saturating_sub(self.bytes));
        let expected = u64::try_from(stat.st_size).unwrap_or(0);
        self.check_budget(left, expected)?;
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(usize::MAX));
        reserved.map_err(std::io::Error::other).map_err(MountError::io("read", &shown))?;
        // A file may grow while it is read. One byte over the budget shows that.
        let mut reader = File::from(handle).take(left.map_or(u64::MAX, |left| left.saturating_add(1)));
        reader.read_to_end(&mut bytes).map_err(MountError::io("read", &shown))?;
        self.check_budget(left, bytes.len() as u64)?;
        self.files += 1;
        self.bytes += bytes.len() as u64;
        let node = Node::file_with(&bytes, FileMode::of(stat.st_mode & RIGHTS));
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
        let odd_name = || MountError::OddName { path: crate::tools::builtin::files::shown(relative) };
        let path = self.mount_path.join(relative).map_err(|_| odd_name())?;
        if !is_plain(path.as_bytes()) {
            return Err(MountError::OddName { path: path.to_string() });
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
