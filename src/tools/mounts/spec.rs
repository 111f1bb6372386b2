//! Specification of a mount.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::MountError;
use crate::engine::event::MountHydrated;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;

/// A host directory that is to be copied into a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    /// The directory on the host; a relative one is looked for below each allowed root in turn.
    pub host_path: PathBuf,
    /// Directory in the workspace for the entries; the root by default.
    #[serde(default)]
    pub mount_path: Option<EntryPath>,
    /// Copies only files that fit one of them; empty means all. Without a slash a glob is held against names, at any
    /// depth, with one against the path below the directory ([`PathGlob`]).
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// Leaves out matches, and directories with everything below; wins over `include_glob`.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// Bytes of all files together, above which the mount fails.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Copies what links inside the directory lead to; otherwise links stay links.
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

    /// Reads `DIRECTORY` or `DIRECTORY:PATH`, as a command line gives it. The last colon counts.
    pub fn parse(text: &str) -> Result<Self, MountError> {
        let wrong = |why: String| MountError::Spec { text: text.chars().take(200).collect(), why };
        let (directory, path) = match text.rsplit_once(':') {
            None => (text, None),
            Some((_, "")) => return Err(wrong("nothing follows the colon".to_owned())),
            Some((directory, path)) => (directory, Some(path)),
        };
        if directory.is_empty() {
            return Err(wrong("it names no directory".to_owned()));
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
    /// Tells if the entry, and everything below it, is left out.
    pub(super) fn exclude(&self, relative: &Path) -> bool {
        fits_any(&self.exclude, relative)
    }

    /// Tells if an entry that is not left out is selected.
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
        return Err(wrong("it is relative to the mounted directory, without `.` and `..`".to_owned()));
    }
    PathGlob::new(glob).map_err(|error| wrong(error.kind().to_string()))
}
