//! Opening what is below a directory, and nothing else.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

pub(super) use crate::backends::disk::beneath::open_in;
use crate::backends::disk::beneath::steps;

/// Opens a path below a directory step by step, each from the handle of the one before. No step
/// follows a link, so that one which is swapped in meanwhile is an error and leads nowhere.
pub(super) fn open_beneath(top: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    match relative.as_os_str().as_bytes() {
        b"" => open_in(top, ".", flags),
        path => steps(top.as_fd(), path, flags),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the tests make the host's files")]
    fn mount_source_refuses_steps_that_lead_out() {
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
}
