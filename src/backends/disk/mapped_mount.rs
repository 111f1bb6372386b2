//! A directory of this machine shown in a container with its owner as the container's user, by an id-mapped mount.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::beneath::open_in;
use super::overlay::MountPoint;

/// A mount that swaps two owners: files of one on the disk belong to the other in a container.
#[derive(Debug)]
pub(crate) struct MappedMount {
    /// `None` if both are the same.
    swap: Option<OwnedFd>,
    places: Vec<MountPoint>,
}

impl MappedMount {
    pub(crate) fn between(owner: (u32, u32), user: (u32, u32)) -> io::Result<Self> {
        let swap = (owner != user).then(|| user_namespace(&extents(owner.0, user.0), &extents(owner.1, user.1)));
        Ok(Self { swap: swap.transpose()?, places: Vec::new() })
    }

    /// Creates a detached mount of the directory, without the mounts below it.
    fn mount(&self, directory: impl AsFd) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = open_tree(directory, c"", flags)?;
        set_attributes(&mount, self.swap.as_ref())?;
        Ok(mount)
    }

    /// Checks that a directory can be mounted that way.
    pub(crate) fn check(&self, directory: &Path) -> io::Result<()> {
        self.mount(open_in(CWD, directory, OFlags::PATH | OFlags::DIRECTORY)?).map(drop)
    }

    pub(super) fn attach(&mut self, directory: impl AsFd, pid: i32, at: &Path) -> io::Result<()> {
        let mount = self.mount(directory)?;
        self.places.push(MountPoint::attach_whole(pid, at, &mount)?);
        Ok(())
    }

    pub(super) fn detach(&mut self, pid: i32) -> io::Result<()> {
        let (gone, left) = std::mem::take(&mut self.places).into_iter().partition(|place| place.pid() == pid);
        self.places = left;
        let gone: Vec<MountPoint> = gone;
        gone.into_iter().map(MountPoint::detach).fold(Ok(()), Result::and)
    }
}

/// Returns the lines of an id map that swaps two ids and leaves all others: first inside, first outside, count.
fn extents(one: u32, other: u32) -> String {
    let (low, high) = (one.min(other), one.max(other));
    let same = |from: u32, until: u32| (from, from, until - from);
    let all = match low == high {
        true => vec![same(0, u32::MAX)],
        false => vec![same(0, low), (low, high, 1), same(low + 1, high), (high, low, 1), same(high + 1, u32::MAX)],
    };
    let lines = all.into_iter().filter(|(.., count)| *count > 0);
    lines.map(|(inside, outside, count)| format!("{inside} {outside} {count}\n")).collect()
}

/// Creates a user namespace with these maps. The process that is needed for it ends immediately.
fn user_namespace(uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let pid = sleeper()?;
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    let open = |name: &str, flags| openat(CWD, format!("{place}/{name}"), flags | OFlags::CLOEXEC, Mode::empty());
    let made = || {
        for (name, map) in [("uid_map", uids), ("gid_map", gids)] {
            // The kernel takes a map only in a single write.
            rustix::io::write(open(name, OFlags::WRONLY)?, map.as_bytes())?;
        }
        open("ns/user", OFlags::RDONLY)
    };
    let made = made();
    kill_process(pid, Signal::KILL)?;
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok(made?)
}

/// Starts a process in a new user namespace, which waits until it is killed.
#[expect(unsafe_code, reason = "no crate makes a process without a program")]
fn sleeper() -> io::Result<Pid> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a fork; the child makes system calls alone and never returns.
    let pid = unsafe {
        match libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
            pid => pid,
        }
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| Errno::SRCH.into()),
    }
}

/// Maps the owners in a detached mount, and removes rights that a container does not need.
#[expect(unsafe_code, reason = "no crate wraps this call")]
fn set_attributes(mount: &OwnedFd, namespace: Option<&OwnedFd>) -> io::Result<()> {
    let mut attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    if let Some(namespace) = namespace {
        attributes.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attributes.userns_fd = u64::try_from(namespace.as_raw_fd()).map_err(|_| Errno::BADF)?;
    }
    let (fd, size) = (mount.as_raw_fd(), size_of_val(&attributes));
    // SAFETY: both pointers are valid during the call, and the size is that of the structure.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, &raw const attributes, size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_swap_two_ids_and_keep_the_others() {
        assert_eq!(extents(0, 65534), "0 65534 1\n1 1 65533\n65534 0 1\n65535 65535 4294901760\n");
        assert_eq!(extents(65534, 1000), extents(1000, 65534));
        assert_eq!(extents(1, 2), "0 0 1\n1 2 1\n2 1 1\n3 3 4294967292\n");
        assert_eq!(extents(7, 7), "0 0 4294967295\n");
    }
}
