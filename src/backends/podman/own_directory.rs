//! A user's directory as a container's workspace.

use std::path::Path;

use super::paths;
use crate::backends::BackendError;
use crate::backends::containers::PodmanOptions;
use crate::backends::disk::{KeptIndex, MappedMount, OpenedDirectory, PlainOptions, overlap, owner_of};

/// Opens the directory of the options.
pub(super) fn open(
    directory: &Path,
    options: &PodmanOptions,
    kept: Option<KeptIndex>,
) -> Result<OpenedDirectory, BackendError> {
    let backend = options.engine.name();
    let refused = |reason: String| BackendError { backend, reason };
    if paths::cache().is_ok_and(|cache| overlap(directory, &cache)) {
        let shown = directory.display();
        return Err(refused(format!(
            "can't use {shown}: it overlaps the containers' own files; use a separate directory"
        )));
    }
    // Without root the engine maps the user, or runs commands as the user.
    let is_root = rustix::process::geteuid().is_root();
    let shown = is_root.then(|| mapped(directory, paths::owner(options))).transpose().map_err(refused)?;
    OpenedDirectory::open(
        backend,
        directory,
        PlainOptions { kept, shown, is_in_container: true, ..PlainOptions::default() },
    )
}

/// Checks that the directory's owner can be the container's user.
fn mapped(directory: &Path, user: (u32, u32)) -> Result<MappedMount, String> {
    let mapped = || {
        let owner = owner_of(directory)?;
        let mapped = MappedMount::between(owner, user)?;
        mapped.check(directory).map(|()| mapped)
    };
    mapped().map_err(|error| {
        format!(
            "can't show {} in a container as its owner's ({error}): that needs an id-mapped mount, which Linux 5.12 or \
             newer has on most local file systems; copy the directory (copy_on_write), or run foldspace as the owner \
             with a rootless engine",
            directory.display()
        )
    })
}
