//! Records of the store that a session's files belong to: several stores may share a cache.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::paths;
use crate::backends::BackendError;
use crate::backends::disk::{OverlayDir, remove_path};
use crate::engine::id::SessionId;

/// Records the store of a session next to its files. Files without a record are never swept.
pub(super) fn note(overlay: &OverlayDir, store: &Path) {
    let Ok(name) = name_of(store) else { return };
    if let Err(error) = write(overlay, &name) {
        tracing::debug!(%error, place = %overlay.home().display(), "garbage collection will leave these files");
    }
}

/// Records the store of another session for this one, too, with a hard link, so that forks take no extra space.
pub(super) fn note_same(overlay: &OverlayDir, as_of: &OverlayDir) {
    let Some(name) = noted(as_of).filter(|name| !is_noted(overlay, name)) else { return };
    let note = overlay.note_of_store();
    let linked = remove_path(&note).and_then(|()| std::fs::hard_link(as_of.note_of_store(), &note));
    if let Err(error) = linked.or_else(|_| write(overlay, &name)) {
        tracing::debug!(%error, place = %overlay.home().display(), "garbage collection will leave these files");
    }
}

fn write(overlay: &OverlayDir, name: &[u8]) -> io::Result<()> {
    if is_noted(overlay, name) {
        return Ok(());
    }
    // The file may be a hard link.
    remove_path(&overlay.note_of_store())?;
    paths::write(&overlay.note_of_store(), name, 0o600)
}

fn is_noted(overlay: &OverlayDir, name: &[u8]) -> bool {
    noted(overlay).is_some_and(|noted| noted == name)
}

#[expect(clippy::disallowed_methods, reason = "a backend reads its own files")]
fn noted(overlay: &OverlayDir) -> Option<Vec<u8>> {
    std::fs::read(overlay.note_of_store()).ok()
}

/// Returns a store's path, device and inode: machines that share a cache may use the same paths.
fn name_of(store: &Path) -> io::Result<Vec<u8>> {
    let place = store.canonicalize()?;
    let metadata = place.metadata()?;
    let mut name = format!("{}:{}\n", metadata.dev(), metadata.ino()).into_bytes();
    name.extend_from_slice(place.as_os_str().as_bytes());
    Ok(name)
}

/// The maximum number of directories that are locked at once, while the sessions are listed again.
const HELD_MAX: usize = 64;

/// Removes the files of sessions that the store in `home` does not have, if they belong to this store: files that could
/// not be removed with their session, and files of children that a killed process was making. With `dry_run` only finds
/// them. `sessions` returns the current sessions.
///
/// Open or shared files, and files of another store or an unknown owner, stay.
///
/// # Errors
/// [`BackendError`] if they can't be removed, and the errors of `sessions`.
pub fn sweep_sandboxes<E: From<BackendError>>(
    home: &Path,
    dry_run: bool,
    sessions: impl Fn() -> Result<Vec<SessionId>, E>,
) -> Result<Vec<PathBuf>, E> {
    // Files exist only below a cache directory.
    let (Ok(all), Ok(name)) = (paths::cache(), name_of(home)) else { return Ok(Vec::new()) };
    let failed = |error: io::Error| BackendError { backend: "containers", reason: error.to_string() };
    let known = BTreeSet::from_iter(sessions()?);
    let ids = paths::names_in(&all).filter_map(|name| name.parse().ok());
    let ids: Vec<SessionId> = ids.filter(|id| !known.contains(id)).collect();
    let mut found = Vec::new();
    for some in ids.chunks(HELD_MAX) {
        let mut held = Vec::new();
        for &id in some {
            let overlay = paths::overlay(id).map_err(failed)?;
            if is_noted(&overlay, &name)
                && let Some(lock) = overlay.try_hold().map_err(failed)?
            {
                held.push((id, overlay, lock));
            }
        }
        if held.is_empty() {
            continue;
        }
        // Again, now that they are locked: the maker of a child unlocks its files after the child is recorded.
        let known = BTreeSet::from_iter(sessions()?);
        for (id, overlay, _held) in held {
            // Its last user may have removed it in the meantime.
            if known.contains(&id) || noted(&overlay).is_none() {
                continue;
            }
            found.push(overlay.home());
            if !dry_run {
                overlay.remove_held().map_err(failed)?;
            }
        }
    }
    found.sort();
    Ok(found)
}
