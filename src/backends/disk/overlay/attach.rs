//! Attaches mounts in the mount namespace of a running container, and detaches them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};

use crate::backends::disk::beneath::context;
use crate::backends::disk::entries::mount_id;

/// The minimum kernel for overlays. The newest feature used is the copy of a detached mount.
pub(super) const NEEDED: &str = "Linux 6.15 or newer";

#[derive(Debug)]
pub(in crate::backends::disk) struct MountPoint {
    /// A handle of the process, in case its pid is reused.
    process: OwnedFd,
    pub(super) pid: i32,
    pub(super) at: PathBuf,
    mount: u64,
}

impl MountPoint {
    /// Mounts a directory of a detached mount on top of `at`, as the process sees it.
    pub(super) fn attach(pid: i32, at: &Path, mount: BorrowedFd<'_>, directory: &str) -> io::Result<Self> {
        let clone = clone(mount, directory).map_err(context("attach the files at", &shown(at, pid)))?;
        Self::attach_whole(pid, at, &clone)
    }

    /// Mounts a whole detached mount on top of `at`, as the process sees it.
    pub(in crate::backends::disk) fn attach_whole(pid: i32, at: &Path, mount: &OwnedFd) -> io::Result<Self> {
        let failed = |error| context("attach the files at", &shown(at, pid))(error);
        let number = Pid::from_raw(pid).ok_or_else(|| failed(Errno::SRCH))?;
        let process = pidfd_open(number, PidfdFlags::empty()).map_err(failed)?;
        let id = mount_id(mount).map_err(failed)?;
        let on_top = || {
            let target = open(at)?;
            put(mount, &target, MoveMountFlags::empty())
        };
        within(process.as_fd(), on_top)?.map_err(failed)?;
        Ok(Self { process, pid, at: at.to_owned(), mount: id })
    }

    /// Checks that a detached mount could be attached, which needs a kernel of [`NEEDED`].
    pub(super) fn can_attach(mount: BorrowedFd<'_>, directory: &str) -> io::Result<()> {
        clone(mount, directory).map(drop).map_err(context("create a second mount of", directory))
    }

    /// Replaces the mount; the files below it never show. Returns false if the process has ended.
    pub(super) fn replace(&mut self, mount: BorrowedFd<'_>, directory: &str) -> io::Result<bool> {
        let failed = |error| context("replace the files at", &shown(&self.at, self.pid))(error);
        let clone = clone(mount, directory).map_err(failed)?;
        let id = mount_id(&clone).map_err(failed)?;
        let (at, old) = (&self.at, self.mount);
        let swap = || {
            let target = open(at)?;
            if mount_id(&target)? != old {
                return Err(Errno::STALE);
            }
            put(&clone, &target, MoveMountFlags::MOVE_MOUNT_BENEATH)?;
            take_off(at)?;
            if mount_id(open(at)?)? == id { Ok(()) } else { Err(Errno::STALE) }
        };
        match within(self.process.as_fd(), swap)? {
            Ok(()) => {
                self.mount = id;
                Ok(true)
            }
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns true if this process sees the mount at its place, with no other mount on top.
    pub(super) fn is_seen(&self) -> bool {
        open(&self.at).and_then(mount_id).is_ok_and(|id| id == self.mount)
    }

    pub(in crate::backends::disk) fn pid(&self) -> i32 {
        self.pid
    }

    /// Detaches the mount. Does nothing if the process has ended, or another mount has taken its place.
    pub(in crate::backends::disk) fn detach(self) -> io::Result<()> {
        let take = || if mount_id(open(&self.at)?)? == self.mount { take_off(&self.at) } else { Ok(()) };
        match within(self.process.as_fd(), take)? {
            Ok(()) | Err(Errno::SRCH | Errno::NOENT) => Ok(()),
            Err(error) => Err(context("detach the files at", &shown(&self.at, self.pid))(error)),
        }
    }
}

fn shown(at: &Path, pid: i32) -> String {
    format!("{} of process {pid}", at.display())
}

/// Creates a detached second mount of the same files.
fn clone(mount: BorrowedFd<'_>, directory: &str) -> Result<OwnedFd, Errno> {
    open_tree(mount, directory, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

fn put(mount: &OwnedFd, target: impl AsFd, flags: MoveMountFlags) -> Result<(), Errno> {
    let by_handles = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", target, c"", by_handles | flags)
}

fn take_off(at: &Path) -> Result<(), Errno> {
    unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

fn open(at: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Runs work in the mount namespace of a process, in a thread that ends with the work.
fn within<T: Send>(
    process: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, Errno> + Send,
) -> io::Result<Result<T, Errno>> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("foldspace-mount".to_owned()).spawn_scoped(scope, || {
            leave_shared_directory()?;
            move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)?;
            work()
        })?;
        thread.join().map_err(|_| io::Error::other("the mount thread panicked"))
    })
}

/// A thread can only change its mount namespace if its working directory is not shared.
#[expect(unsafe_code, reason = "the call is unsafe for other flags than this one")]
fn leave_shared_directory() -> Result<(), Errno> {
    // SAFETY: the table of open files stays shared; only root, working directory and umask are copied.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}
