//! Removes an entry and everything below it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, unlinkat};
use rustix::io::Errno;

use super::beneath::{context, open_directory, open_in};
use super::entries::{kind_of, set_bits, vanished};
use super::file_stat::FileStat;
use super::listing::{Lister, look_at};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// The permissions that a directory's owner needs to empty it.
const OWNERS: u32 = 0o700;

/// Removes the entry at a path, with everything below it; a missing entry is not an error.
pub fn remove_path(path: &Path) -> io::Result<()> {
    let failed = context("remove", &path.display().to_string());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(failed(Errno::INVAL)) };
    // `.` opens the directory itself if the parent is a link.
    let removed = match open_in(CWD, parent.join("."), OFlags::PATH | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error),
        Ok(parent) => remove_all(parent.as_fd(), name.as_bytes()),
    };
    removed.map_err(failed)
}

/// Removes an entry and everything below it, at any depth with two handles. Changes the mode of shut directories.
pub(super) fn remove_all(directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    let mut lister = Lister::new();
    let mut handle = open_shut(directory, name)?;
    let mut here = Emptying::begin(name, &handle, &mut lister)?;
    let mut above: Vec<Emptying> = Vec::new();
    loop {
        if let Some(child) = here.left.pop() {
            let Some(found) = vanished(open_shut(handle.as_fd(), child.to_bytes()))? else { continue };
            let below = Emptying::begin(child.to_bytes(), &found, &mut lister)?;
            above.push(std::mem::replace(&mut here, below));
            handle = found;
        } else if let Some(parent) = above.pop() {
            let mut up = open_in(&handle, c"..", OFlags::PATH | OFlags::DIRECTORY)?;
            if !FileStat::of(&look_at(&up)?).is_same_entry(&parent.stamp) {
                // The directory was moved, so its parent has changed.
                let names: Vec<&[u8]> = above.iter().chain([&parent]).map(|level| level.name.as_slice()).collect();
                up = open_directory(directory, &names.join(&b'/'), OFlags::PATH)?;
            }
            vanished(unlinkat(&up, here.name.as_slice(), AtFlags::REMOVEDIR))?;
            (handle, here) = (up, parent);
        } else {
            return vanished(unlinkat(directory, name, AtFlags::REMOVEDIR)).map(drop);
        }
    }
}

fn open_shut(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match open_in(parent, name, DIRECTORY) {
        Err(Errno::ACCESS) => {
            let shut = open_in(parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
            set_bits(&shut, OWNERS)?;
            open_in(parent, name, DIRECTORY)
        }
        other => other,
    }
}

struct Emptying {
    name: Vec<u8>,
    stamp: FileStat,
    left: Vec<CString>,
}

impl Emptying {
    fn begin(name: &[u8], handle: &OwnedFd, lister: &mut Lister) -> Result<Self, Errno> {
        let stat = look_at(handle)?;
        // If it belongs to another user, emptying it reports the error.
        if u32::from(stat.stx_mode) & OWNERS != OWNERS
            && let Err(error) = fchmod(handle, Mode::from_raw_mode(OWNERS))
        {
            tracing::debug!(%error, "failed to open a directory for emptying");
        }
        let mut names = Vec::new();
        lister.each(handle.as_fd(), |name, stat| {
            names.push((name.to_owned(), kind_of(stat) == FileType::Directory));
            Ok(())
        })?;
        let mut left = Vec::new();
        for (name, is_directory) in names {
            if is_directory {
                left.push(name);
            } else {
                vanished(unlinkat(handle, name.as_c_str(), AtFlags::empty()))?;
            }
        }
        Ok(Self { name: name.to_vec(), stamp: FileStat::of(&look_at(handle)?), left })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the test creates files directly")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn remove_path_shut_directories_as_their_owner_removes_all() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        for (at, mode) in [("none/in", 0o000), ("read/in", 0o400), ("enter/in", 0o100), ("write/in", 0o200)] {
            fs::create_dir_all(top.join(at)).unwrap();
            fs::write(top.join(at).join("file"), "").unwrap();
            fs::set_permissions(top.join(at), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(top.join(at).parent().unwrap(), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&top, fs::Permissions::from_mode(0o500)).unwrap();
        // Runs as the owner of the files without further rights, in this thread only.
        std::thread::spawn(move || {
            let mut own = capabilities(None).unwrap();
            own.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, own).unwrap();
            assert!(fs::read_dir(top.join("none")).is_err());
            remove_path(&top).unwrap();
            assert!(!top.exists());
            remove_path(&top).unwrap();
            remove_path(&top.join("below/nothing")).unwrap();
        })
        .join()
        .unwrap();
    }
}
