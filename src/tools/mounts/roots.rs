//! The host directories below which mounts are allowed.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::MountError;
use crate::backends::disk::beneath::{open_beneath, open_in};
use crate::engine::path::misleads;

/// The host directories that may be mounted, with everything below them. None at first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedRoots(Vec<PathBuf>);

impl AllowedRoots {
    /// Allows these directories. Links in their paths are resolved now.
    ///
    /// # Errors
    /// [`MountError::Missing`], [`MountError::NotADirectory`] and [`MountError::Io`].
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, MountError> {
        let mut roots = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let root = canonical(path)?.ok_or_else(|| MountError::Missing { path: path.to_owned() })?;
            if !root.is_dir() {
                return Err(MountError::NotADirectory { path: path.to_owned() });
            }
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Ok(Self(roots))
    }

    /// The directories, resolved.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Resolves the path of a directory that exists or may be made, at or below a root. The recorded path leads there
    /// whatever a link on the way becomes later.
    ///
    /// # Errors
    /// [`MountError::Outside`] and [`MountError::Io`].
    pub fn place_of(&self, path: &Path) -> Result<PathBuf, MountError> {
        for root in &self.0 {
            // An absolute path stays as it is.
            let place = resolved(&root.join(path))?;
            if let Some(place) = place.filter(|place| self.0.iter().any(|root| place.starts_with(root))) {
                return Ok(place);
            }
        }
        Err(MountError::Outside { path: path.to_owned(), roots: self.0.clone() })
    }

    pub(super) fn open(&self, path: &Path) -> Result<(PathBuf, OwnedFd), MountError> {
        let (root, host) = self.locate(path)?;
        let relative = host.strip_prefix(root).unwrap_or(Path::new(""));
        let top = open_in(CWD, root, OFlags::DIRECTORY).map_err(MountError::io("open", root))?;
        // The path has no links now. One that is swapped in from here on is not followed.
        match open_beneath(&top, relative, OFlags::DIRECTORY) {
            Ok(handle) => Ok((host, handle)),
            Err(Errno::NOTDIR) => Err(MountError::NotADirectory { path: path.to_owned() }),
            Err(error) => Err(MountError::io("open", &host)(error)),
        }
    }

    /// The first root that the path, links resolved, is at or below; and the resolved path.
    fn locate(&self, path: &Path) -> Result<(&Path, PathBuf), MountError> {
        if !is_plain(path.as_os_str().as_encoded_bytes()) {
            let path = crate::tools::builtin::files::shown(path.as_os_str().as_encoded_bytes());
            return Err(MountError::OddName { path });
        }
        let mut exists = false;
        for root in &self.0 {
            // An absolute path stays as it is; an empty one is no directory.
            let candidate = if path.as_os_str().is_empty() { None } else { canonical(&root.join(path))? };
            exists |= candidate.is_some();
            // The root that the path was found below need not be the one that it leads to.
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

/// The path with its links resolved; none when it leads nowhere.
pub(super) fn canonical(path: &Path) -> Result<Option<PathBuf>, MountError> {
    use std::io::ErrorKind;
    match std::fs::canonicalize(path) {
        Ok(resolved) => Ok(Some(resolved)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(None),
        Err(error) => Err(MountError::io("resolve", path)(error)),
    }
}

/// Resolves links as far as the path exists; none where a link leads nowhere, since it may lead somewhere later.
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

/// Tells whether a name is UTF-8 and has only characters that can be seen.
pub(super) fn is_plain(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(misleads))
}
