//! The host directories that mounts may come from.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, OFlags, fstat};
use rustix::io::Errno;

use super::MountError;
use crate::backends::disk::beneath::{open_beneath, open_in};
use crate::engine::path::misleads;

/// The host directories that may be mounted, with everything below them, and single files. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedRoots(Vec<PathBuf>);

impl AllowedRoots {
    /// Allows these directories and files, and resolves the links in their paths.
    ///
    /// # Errors
    /// [`MountError::Missing`] and [`MountError::NotADirectory`] for a wrong path, and [`MountError::Io`].
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, MountError> {
        let mut roots = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let root = canonical(path)?.ok_or_else(|| MountError::Missing { path: path.to_owned() })?;
            if !root.is_dir() && !root.is_file() {
                return Err(MountError::NotADirectory { path: path.to_owned() });
            }
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Ok(Self(roots))
    }

    /// Returns the resolved paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Resolves the path of a directory at or below a root. The directory need not exist. Later changes of links do not
    /// affect the resolved path.
    ///
    /// # Errors
    /// [`MountError::Outside`]: the path leads outside of the roots, or a link leads nowhere. [`MountError::Io`].
    pub fn place_of(&self, path: &Path) -> Result<PathBuf, MountError> {
        for root in &self.0 {
            // `join` returns an absolute path unchanged.
            let place = resolved(&root.join(path))?;
            if let Some(place) = place.filter(|place| self.0.iter().any(|root| place.starts_with(root))) {
                return Ok(place);
            }
        }
        Err(MountError::Outside { path: path.to_owned(), roots: self.0.clone() })
    }

    /// Opens a directory or a regular file at or below a root.
    pub(super) fn open(&self, path: &Path) -> Result<(PathBuf, OwnedFd), MountError> {
        let (root, host) = self.locate(path)?;
        let relative = host.strip_prefix(root).unwrap_or(Path::new(""));
        // The resolved path has no links, and a link that is swapped in later is not followed.
        let open = |flags| match relative.as_os_str().is_empty() {
            true => open_in(CWD, root, flags),
            false => open_beneath(&open_in(CWD, root, OFlags::DIRECTORY)?, relative, flags),
        };
        let is_file = |handle| fstat(handle).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        let opened = match open(OFlags::DIRECTORY) {
            // A pipe or a device is not opened.
            Err(Errno::NOTDIR) if open(OFlags::PATH).is_ok_and(is_file) => open(OFlags::empty()),
            Err(Errno::NOTDIR) => return Err(MountError::NotADirectory { path: path.to_owned() }),
            opened => opened,
        };
        opened.map_err(MountError::io("open", &host)).map(|handle| (host, handle))
    }

    /// Resolves the links of a path. Returns the first root that it is at or below, and the resolved path.
    fn locate(&self, path: &Path) -> Result<(&Path, PathBuf), MountError> {
        if !is_plain(path.as_os_str().as_encoded_bytes()) {
            let path = crate::tools::builtin::files::shown(path.as_os_str().as_encoded_bytes());
            return Err(MountError::OddName { path });
        }
        let mut exists = false;
        for root in &self.0 {
            // `join` returns an absolute path unchanged, and the root for an empty path.
            let candidate = if path.as_os_str().is_empty() { None } else { canonical(&root.join(path))? };
            exists |= candidate.is_some();
            // A link may lead to a directory below another root.
            for root in &self.0 {
                if let Some(host) = candidate.as_ref().filter(|host| host.starts_with(root)) {
                    return Ok((root, host.clone()));
                }
            }
        }
        let path = path.to_owned();
        if exists || self.0.is_empty() {
            return Err(MountError::Outside { path, roots: self.0.clone() });
        }
        Err(MountError::Missing { path })
    }
}

/// Resolves the links of a path. `None` if it leads nowhere.
pub(super) fn canonical(path: &Path) -> Result<Option<PathBuf>, MountError> {
    use std::io::ErrorKind;
    match std::fs::canonicalize(path) {
        Ok(resolved) => Ok(Some(resolved)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(None),
        Err(error) => Err(MountError::io("resolve", path)(error)),
    }
}

/// Resolves links as far as the path exists. `None` if a link leads nowhere, since its target may exist later.
fn resolved(path: &Path) -> Result<Option<PathBuf>, MountError> {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        if let Some(there) = canonical(above)? {
            return Ok(Some(missing.iter().rev().fold(there, |there, name| there.join(name))));
        }
        match above.file_name() {
            Some(name) if !above.is_symlink() => missing.push(name),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Returns true if a name is UTF-8 and has only visible characters.
pub(super) fn is_plain(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(misleads))
}
