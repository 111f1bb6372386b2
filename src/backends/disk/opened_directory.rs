//! A directory of this machine as a session's files, including its existing contents.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags};

use super::beneath::open_in;
use super::listing::look_at;
use super::locked::OnDisk;
use super::plain::{PlainDisk, PlainOptions};
use super::populate_marker::PopulateMarker;
use super::root_check::Anchor;
use super::staging_dir::{StagingDir, WITHIN};
use super::tree::DirTree;
use crate::backends::BackendError;

/// If it is 0, this process does not ask the kernel for changes.
const INOTIFY_VARIABLE: &str = "FOLDSPACE_INOTIFY";

/// An open directory, created if missing. While it is open, foldspace uses `.foldspace-NAME` next to it, or
/// `.foldspace` within it if that is not possible.
pub(crate) struct OpenedDirectory {
    pub(crate) directory: PathBuf,
    pub(crate) files: OnDisk,
    pub(crate) marker: PopulateMarker,
    pub(crate) anchor: Option<Anchor>,
    /// The directory where entries are staged and temporarily stored; removed when this is dropped.
    pub(crate) aside: StagingDir,
}

impl OpenedDirectory {
    /// Opens a directory. For root, new entries get the directory's owner.
    pub(crate) fn open(backend: &'static str, directory: &Path, options: PlainOptions) -> Result<Self, BackendError> {
        let failed = |action: &str, error: &dyn std::fmt::Display| BackendError {
            backend,
            reason: format!("can't {action} {}: {error}", directory.display()),
        };
        make(directory).map_err(|error| failed("create", &error))?;
        let directory = directory.canonicalize().map_err(|error| failed("open", &error))?;
        if directory.parent().is_none() {
            return Err(failed("use", &"it is the root of the file system; use a directory below it"));
        }
        let is_new = is_empty(&directory).map_err(|error| failed("read", &error))?;
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = owner_of(&directory).map_err(|error| failed("read", &error))?;
        let owner = (own.0 == 0 && owner != own).then_some(owner);
        let aside = StagingDir::of(&directory).map_err(|error| failed("use", &error))?;
        let tree =
            DirTree::beneath(backend, &directory, &aside.path(), owner).map_err(|error| failed("open", &error))?;
        let tree = if aside.is_within { tree.hiding(WITHIN) } else { tree };
        let anchor = tree.anchor().cloned();
        let may_watch = std::env::var_os(INOTIFY_VARIABLE).is_none_or(|value| value != "0");
        let options = PlainOptions { may_watch, ..options };
        let disk = PlainDisk::with_options(tree, options).map_err(|error| failed("open", &error))?;
        let marker = PopulateMarker::new(backend, aside.home.join("filling"), is_new);
        Ok(Self { files: OnDisk::new(backend, Box::new(disk)), marker, anchor, aside, directory })
    }
}

/// Returns the user and the group of a directory.
pub(crate) fn owner_of(directory: &Path) -> io::Result<(u32, u32)> {
    let stat = look_at(open_in(CWD, directory, OFlags::PATH | OFlags::DIRECTORY)?)?;
    Ok((stat.stx_uid, stat.stx_gid))
}

/// Resolves links in the existing part of a path.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let rest = found.as_ref().and_then(|(above, _)| path.strip_prefix(above).ok());
    match (&found, rest) {
        // Joining nothing would add a slash.
        (Some((_, there)), Some(rest)) if !rest.as_os_str().is_empty() => there.join(rest),
        (Some((_, there)), _) => there.clone(),
        (None, _) => path.to_owned(),
    }
}

/// Returns true if one of two paths is inside of the other.
pub(crate) fn overlap(one: &Path, other: &Path) -> bool {
    let (one, other) = (resolved(one), resolved(other));
    one.starts_with(&other) || other.starts_with(&one)
}

#[expect(clippy::disallowed_methods, reason = "a workspace's directory is created here")]
fn make(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)
}

#[expect(clippy::disallowed_methods, reason = "detects a new workspace directory")]
fn is_empty(directory: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        if entry?.file_name() != WITHIN {
            return Ok(false);
        }
    }
    Ok(true)
}
