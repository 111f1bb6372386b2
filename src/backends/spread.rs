//! Directories whose subdirectories lie apart from each other on a disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// Makes a directory, and those above it, for its owner only, whose subdirectories lie apart; one that is there stays as
/// it is.
#[expect(clippy::disallowed_methods, reason = "a backend makes its own directories")]
pub(super) fn make_spread(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    spread(directory);
    Ok(())
}

/// Lets ext4 put each directory that is made in this one into a part of the disk of its own. Without a journal it passes
/// over inodes that were deleted in the last minutes one by one, so that otherwise who removes a session's files slows
/// down the others.
#[expect(clippy::disallowed_methods, reason = "a backend makes its own directories")]
pub(super) fn spread(directory: &Path) {
    let spread = || {
        let directory = File::open(directory)?;
        let flags = ioctl_getflags(&directory)?;
        ioctl_setflags(&directory, flags | IFlags::TOPDIR)?;
        io::Result::Ok(())
    };
    if let Err(error) = spread() {
        // Other file systems have no such thing.
        tracing::debug!(%error, "the sessions' files lie where the file system puts them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test looks at files by itself")]
    fn spread_directories_where_possible() {
        let place = tempfile::tempdir().unwrap();
        let made = place.path().join("made/here");
        make_spread(&made).unwrap();
        let flags = |path: &Path| ioctl_getflags(File::open(path).unwrap());
        match (flags(place.path()), rustix::fs::statfs(place.path()).unwrap().f_type) {
            (Ok(before), EXT4) => assert_eq!(flags(&made).unwrap(), before | IFlags::TOPDIR),
            (before, _) => assert_eq!(flags(&made).is_ok(), before.is_ok()),
        }
        spread(Path::new("/nowhere"));
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(make_spread(&place.path().join("file")).is_err());
    }

    /// What `statfs` calls it.
    const EXT4: i64 = 0xef53;
}
