//! Opens entries below a directory, and never outside of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The number of path bytes passed to the kernel at once; its limit is 4,096.
const PIECE_MAX: usize = 3000;
/// The number of times that the kernel may fail because of concurrent renames, before the path is walked step by step.
const RACES_MAX: usize = 8;

/// Opens `name` directly in a directory. It does not follow links or wait for pipes.
pub fn open_in(directory: impl AsFd, name: impl rustix::path::Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(directory, name, guarded(flags), Mode::empty())
}

/// Opens a directory below another, or that directory itself if `path` is empty. No step follows a link.
pub(super) fn open_directory(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY;
    if path.is_empty() {
        return open_in(top, ".", flags);
    }
    let mut rest = path;
    let mut at: Option<OwnedFd> = None;
    while rest.len() > PIECE_MAX {
        let cut = rest[..PIECE_MAX].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let from = at.as_ref().map_or(top, AsFd::as_fd);
        at = Some(piece(from, &rest[..cut], OFlags::PATH | OFlags::DIRECTORY)?);
        rest = &rest[cut + 1..];
    }
    piece(at.as_ref().map_or(top, AsFd::as_fd), rest, flags)
}

/// Returns true if an error means that the path does not exist: no entry, or a parent is a link or not a directory.
pub(super) fn leads_nowhere(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
}

pub(super) fn context(what: &str, path: &str) -> impl FnOnce(Errno) -> io::Error + use<> {
    let words = format!("cannot {what} {path}");
    move |error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{words}: {error}"))
    }
}

pub(super) fn failed(what: &str, path: &Path) -> impl FnOnce(Errno) -> io::Error + use<> {
    context(what, &path.display().to_string())
}

/// Adds safe flags. An `O_PATH` handle takes fewer.
fn guarded(flags: OFlags) -> OFlags {
    let waits = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    flags | waits | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn piece(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RACES_MAX {
        match openat2(from, path, guarded(flags), Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            // An older kernel, or a system call filter without openat2.
            Err(Errno::NOSYS | Errno::PERM) => break,
            other => return other,
        }
    }
    steps(from, path, flags)
}

/// Opens a path below a directory, each step from the handle of the one before; no step follows a link.
pub fn open_beneath(top: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    match relative.as_os_str().as_bytes() {
        b"" => open_in(top, ".", flags),
        path => steps(top.as_fd(), path, flags),
    }
}

/// Emulates `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`, on every kernel.
fn steps(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut segments = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(segment) = segments.next() {
        let flags = if segments.peek().is_some() { OFlags::PATH | OFlags::DIRECTORY } else { flags };
        if segment == b".." {
            return Err(Errno::XDEV);
        }
        at = Some(open_in(at.as_ref().map_or(from, AsFd::as_fd), segment, flags)?);
    }
    at.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the tests make the host's files")]
    fn beneath_refuses_steps_that_lead_out() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(host.join("top/a/b")).unwrap();
        symlink("..", host.join("top/up")).unwrap();
        symlink("a", host.join("top/same")).unwrap();
        let top = open_in(rustix::fs::CWD, host.join("top").as_path(), OFlags::DIRECTORY).unwrap();
        type Open = fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>;
        for open in [piece as Open, steps, open_directory] {
            let open = |path: &str| open(top.as_fd(), path.as_bytes(), OFlags::DIRECTORY).map(drop);
            assert_eq!(open("a/b"), Ok(()));
            assert_eq!(open("../top"), Err(Errno::XDEV));
            for link in ["up", "up/top", "same", "same/b"] {
                assert!(open(link).is_err_and(leads_nowhere), "{link}");
            }
            assert_eq!(open("a/none"), Err(Errno::NOENT));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the tests make the host's files")]
    fn open_beneath_leads_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(host.join("top/a/b")).unwrap();
        std::fs::write(host.join("top/a/b/file"), "in").unwrap();
        std::fs::write(host.join("secret"), "out").unwrap();
        symlink("../secret", host.join("top/last")).unwrap();
        symlink("..", host.join("top/up")).unwrap();
        symlink("a", host.join("top/same")).unwrap();
        let top = open_in(rustix::fs::CWD, host.join("top").as_path(), OFlags::DIRECTORY).unwrap();
        let open = |path: &str| open_beneath(&top, Path::new(path), OFlags::empty()).map(drop);
        assert_eq!(open("a/b/file"), Ok(()));
        assert_eq!(open(""), Ok(()));
        assert_eq!(open("last"), Err(Errno::LOOP));
        assert_eq!(open("../secret"), Err(Errno::XDEV));
        assert_eq!(open("a/.."), Err(Errno::XDEV));
        assert_eq!(open("up/secret"), Err(Errno::NOTDIR));
        assert_eq!(open("same/b/file"), Err(Errno::NOTDIR));
        assert_eq!(open("a/none"), Err(Errno::NOENT));
    }

    #[test]
    fn beneath_opens_paths_over_kernel_limit() {
        let directory = tempfile::tempdir().unwrap();
        let top = open_in(rustix::fs::CWD, directory.path(), OFlags::DIRECTORY).unwrap();
        let name = "n".repeat(200);
        let mut at = open_in(&top, ".", OFlags::DIRECTORY).unwrap();
        for _ in 0..50 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = open_in(&at, name.as_str(), OFlags::DIRECTORY).unwrap();
        }
        let path = vec![name; 50].join("/");
        let found = open_directory(top.as_fd(), path.as_bytes(), OFlags::empty()).unwrap();
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&found), inode(&at));
    }
}
