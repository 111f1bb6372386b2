//! The specification of a mount.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::MountError;
use crate::engine::event::MountHydrated;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;

/// A host directory, or a single file, to copy into a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    /// The directory or file on the host. A relative path is searched below each allowed root in turn.
    pub host_path: PathBuf,
    /// The directory in the workspace for the entries, by default the root; for a file its path, by default its name.
    #[serde(default)]
    pub mount_path: Option<EntryPath>,
    /// The globs of the files to copy; empty for all files. A glob without a slash matches names at any depth, a glob
    /// with a slash matches the path below the directory ([`PathGlob`]).
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// The globs of files to leave out, and of directories with everything below. Takes precedence over `include_glob`.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// The limit for the bytes of all files together. The mount fails if they exceed it.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// True to copy the targets of links inside the directory instead of the links.
    #[serde(default)]
    pub follow_symlinks: bool,
}

impl MountSpec {
    pub(in crate::tools) fn of_hydrated(mount: &MountHydrated) -> Self {
        Self {
            host_path: mount.host_path.clone().into(),
            mount_path: Some(mount.mount_path.clone()),
            include_glob: mount.include_glob.clone(),
            exclude_glob: mount.exclude_glob.clone(),
            max_bytes: mount.max_bytes,
            follow_symlinks: mount.follow_symlinks,
        }
    }

    /// Parses `SOURCE` or `SOURCE:PATH` from a command line. The last colon counts.
    pub fn parse(text: &str) -> Result<Self, MountError> {
        let wrong = |why: String| MountError::Spec { text: text.chars().take(200).collect(), why };
        let (directory, path) = match text.rsplit_once(':') {
            None => (text, None),
            Some((_, "")) => return Err(wrong("nothing follows the colon".to_owned())),
            Some((directory, path)) => (directory, Some(path)),
        };
        if directory.is_empty() {
            return Err(wrong("it names no directory or file".to_owned()));
        }
        let is_root = path.is_none_or(|path| path.bytes().all(|byte| byte == b'/'));
        let mount_path = path.filter(|_| !is_root).map(EntryPath::for_creation).transpose();
        let mount_path = mount_path.map_err(|e| wrong(e.to_string()))?;
        Ok(Self { host_path: directory.into(), mount_path, ..Self::default() })
    }

    pub(super) fn globs(&self) -> Result<Globs, MountError> {
        let compiled =
            |globs: &[String]| globs.iter().map(|glob| compiled(&self.host_path, glob)).collect::<Result<Vec<_>, _>>();
        Ok(Globs { include: compiled(&self.include_glob)?, exclude: compiled(&self.exclude_glob)? })
    }
}

pub(super) struct Globs {
    include: Vec<PathGlob>,
    exclude: Vec<PathGlob>,
}

impl Globs {
    /// Returns true if an entry is left out, with everything below it.
    pub(super) fn exclude(&self, relative: &Path) -> bool {
        fits_any(&self.exclude, relative)
    }

    /// Returns true if an entry that is not excluded is selected.
    pub(super) fn include(&self, relative: &Path) -> bool {
        self.include.is_empty() || fits_any(&self.include, relative)
    }
}

fn fits_any(globs: &[PathGlob], relative: &Path) -> bool {
    globs.iter().any(|glob| glob.fits_bytes(relative.as_os_str().as_bytes()))
}

fn compiled(path: &Path, glob: &String) -> Result<PathGlob, MountError> {
    let wrong = |why: String| MountError::Glob { path: path.to_owned(), glob: glob.to_owned(), why };
    let relative = glob.strip_prefix("./").unwrap_or(glob).trim_matches('/');
    if relative.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    if relative.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(wrong("it must be relative to the mounted directory, without `.` and `..`".to_owned()));
    }
    PathGlob::new(glob).map_err(|error| wrong(error.kind().to_string()))
}
