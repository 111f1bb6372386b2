//! The directories of mounts: checks, default paths, unmounting.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::Access;
use rustix::mount::UnmountFlags;

use super::error::FuseError;
use crate::engine::id::{Seq, SessionId};

/// The name of the file system in the list of mounts.
pub(super) const FILE_SYSTEM: &str = "foldspace";
const FUSERMOUNT: &str = "fusermount3";

/// Checks that this machine can mount. The error names what is missing.
pub(super) fn check_machine() -> Result<(), FuseError> {
    let access = rustix::fs::access("/dev/fuse", Access::READ_OK | Access::WRITE_OK);
    access.map_err(|error| FuseError::NoDevice(error.into()))?;
    if !rustix::process::geteuid().is_root() && !has_fusermount() {
        return Err(FuseError::NoFusermount);
    }
    Ok(())
}

fn has_fusermount() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(FUSERMOUNT).is_file()))
}

/// Creates a directory if it is missing, and checks that a mount on it hides nothing. Returns its path without links,
/// and true if it was created.
pub(super) fn prepare(directory: &Path, data: &Path) -> Result<(PathBuf, bool), FuseError> {
    let is_made = match std::fs::create_dir(directory) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(FuseError::io("create", directory)(error)),
    };
    let checked = check(directory, data).inspect_err(|_| discard(directory, is_made))?;
    Ok((checked, is_made))
}

#[expect(clippy::disallowed_methods, reason = "the directory belongs to a person")]
fn check(directory: &Path, data: &Path) -> Result<PathBuf, FuseError> {
    let unusable = |reason: &str| FuseError::unusable(directory, reason);
    let shown = directory.canonicalize().map_err(FuseError::io("find", directory))?;
    if mounted_at(&shown).is_some() {
        return Err(unusable("something is mounted there already"));
    }
    if data.canonicalize().is_ok_and(|data| shown.starts_with(data)) {
        return Err(unusable("it is in the data directory, which is copied as a whole"));
    }
    let mut entries = match std::fs::read_dir(&shown) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(unusable("it is not a directory")),
        Err(error) => return Err(FuseError::io("read", directory)(error)),
    };
    if entries.next().is_some() {
        return Err(unusable("it is not empty, and a mount would hide its files"));
    }
    if shown.to_str().is_none() {
        return Err(unusable("its path is not UTF-8"));
    }
    Ok(shown)
}

/// Removes the directory of a mount if it was created for it.
pub(super) fn discard(directory: &Path, is_made: bool) {
    if is_made {
        // Another mount may use it by now.
        drop(std::fs::remove_dir(directory));
    }
}

/// Returns the default directory of a mount. Only this user can enter its parent.
#[expect(clippy::disallowed_methods, reason = "the directory is not part of the store")]
pub(super) fn automatic(name: &str, session: SessionId, (at, all): (Option<Seq>, bool)) -> Result<PathBuf, FuseError> {
    let user = rustix::process::geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| Path::new(directory).is_dir());
    let above = match given {
        Some(given) => PathBuf::from(given).join("foldspace"),
        None if user.is_root() => PathBuf::from("/run/foldspace"),
        None => std::env::temp_dir().join(format!("foldspace-{}", user.as_raw())),
    };
    let mut builder = std::fs::DirBuilder::new();
    match builder.mode(0o700).create(&above) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FuseError::io("create", above)(error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(&above).map_err(FuseError::io("find", &above))?;
    if !found.is_dir() || found.uid() != user.as_raw() || found.mode() & 0o077 != 0 {
        let why = io::Error::other("other users can enter it; remove it, or set XDG_RUNTIME_DIR");
        return Err(FuseError::io("use", above)(why));
    }
    let at = at.map_or_else(|| "now".to_owned(), |seq| seq.to_string());
    Ok(above.join(format!("{name}-{}@{at}{}", session.short(), if all { "+all" } else { "" })))
}

/// A mount at a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundMount {
    /// Its device, if it is a mount of foldspace.
    pub(super) own: Option<String>,
}

/// Finds the topmost mount at a directory.
#[expect(clippy::disallowed_methods, reason = "the kernel lists the mounts in a file")]
pub(super) fn mounted_at(directory: &Path) -> Option<FoundMount> {
    let list = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    list.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, place) = (fields.next()?, unescaped(fields.nth(1)?));
        let mut kind = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (kind.next()?, kind.next()?);
        let is_own = kind.starts_with(b"fuse") && source == FILE_SYSTEM.as_bytes();
        let own = is_own.then(|| String::from_utf8_lossy(device).into_owned());
        (place == directory).then_some(FoundMount { own })
    })
}

/// Decodes the octal escapes of the list of mounts.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut left) = (Vec::new(), field);
    while let [first, rest @ ..] = left {
        left = rest;
        match (first, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                left = after;
            }
            _ => bytes.push(*first),
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Unmounts a mount of foldspace. If `lazily`, processes that use it keep their open files.
///
/// # Errors
/// [`FuseError::NotMounted`], [`FuseError::InUse`] and [`FuseError::Io`].
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), FuseError> {
    if mounted_at(directory).is_none_or(|found| found.own.is_none()) {
        return Err(FuseError::NotMounted(directory.to_owned()));
    }
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let refused = match rustix::mount::unmount(directory, flags) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => return by_fusermount(directory, lazily),
        Err(error) => io::Error::from(error),
    };
    match refused.kind() {
        io::ErrorKind::ResourceBusy => Err(FuseError::InUse(directory.to_owned())),
        _ => Err(FuseError::io("unmount", directory)(refused)),
    }
}

pub(super) fn detach(directory: &Path) -> Result<(), FuseError> {
    match unmount(directory, true) {
        Err(FuseError::NotMounted(_)) => Ok(()),
        done => done,
    }
}

#[expect(clippy::disallowed_methods, reason = "only fusermount3 may unmount for a user")]
fn by_fusermount(directory: &Path, lazily: bool) -> Result<(), FuseError> {
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(directory).stdin(Stdio::null());
    let output = command.output().map_err(|_| FuseError::NoFusermount)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(FuseError::InUse(directory.to_owned())),
        false => Err(FuseError::io("unmount", directory)(io::Error::other(said.trim().to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_escapes() {
        assert_eq!(unescaped(br"/a\040b\134c\777"), Path::new(r"/a b\c\777"));
        assert_eq!(mounted_at(Path::new("/proc")), Some(FoundMount { own: None }));
        assert_eq!(mounted_at(Path::new("/no/such/place")), None);
    }
}
