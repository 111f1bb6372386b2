//! Whose sessions have their files where containers have their things: several stores may share that place.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::NAME;
use super::paths;
use crate::backends::BackendError;
use crate::backends::disk::OverlayDir;
use crate::engine::id::SessionId;

/// Directories that are held at once, while the sessions are counted again.
const HELD_MAX: usize = 64;

/// Notes beside a session's files whose session it is. What could not be noted nobody sweeps.
pub(super) fn note(overlay: &OverlayDir, store: &Path) {
    // A place that is not there is nobody's store.
    let Ok(name) = name_of(store) else { return };
    if let Err(error) = write(overlay, &name) {
        tracing::debug!(%error, place = %overlay.home().display(), "`foldspace gc` will leave these files");
    }
}

/// Notes that a session is of the same store as another one: with the same file, so that forks take no space for it.
pub(super) fn note_same(overlay: &OverlayDir, as_of: &OverlayDir) {
    let Some(name) = noted(as_of).filter(|name| !is_noted(overlay, name)) else { return };
    let linked = unlink(overlay).and_then(|()| std::fs::hard_link(as_of.note_of_store(), overlay.note_of_store()));
    if let Err(error) = linked.or_else(|_| write(overlay, &name)) {
        tracing::debug!(%error, place = %overlay.home().display(), "`foldspace gc` will leave these files");
    }
}

fn write(overlay: &OverlayDir, name: &[u8]) -> io::Result<()> {
    if is_noted(overlay, name) {
        return Ok(());
    }
    // Others may have the same file.
    unlink(overlay)?;
    paths::write(&overlay.note_of_store(), name, 0o600)
}

fn is_noted(overlay: &OverlayDir, name: &[u8]) -> bool {
    noted(overlay).is_some_and(|noted| noted == name)
}

#[expect(clippy::disallowed_methods, reason = "a backend removes its own files")]
fn unlink(overlay: &OverlayDir) -> io::Result<()> {
    match std::fs::remove_file(overlay.note_of_store()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a backend reads its own files")]
fn noted(overlay: &OverlayDir) -> Option<Vec<u8>> {
    std::fs::read(overlay.note_of_store()).ok()
}

/// A store's directory, told apart from others that are, or were, at the same path: where machines or containers share
/// a place for files, each may have its stores at the paths that the others have them at.
fn name_of(store: &Path) -> io::Result<Vec<u8>> {
    let place = store.canonicalize()?;
    let metadata = place.metadata()?;
    let mut name = format!("{}:{}\n", metadata.dev(), metadata.ino()).into_bytes();
    name.extend_from_slice(place.as_os_str().as_bytes());
    Ok(name)
}

/// Removes what sessions that a store does not know have left where containers have their things: those that were
/// removed while the files could not be, and children that a process was killed in the midst of making. With `dry_run`
/// only finds it. `home` is the store's directory, with which the workspaces were opened, and `sessions` gives the
/// sessions that it has at that moment.
///
/// Files that somebody has open, or that belong to another store or to nobody who is known, stay, and so do those that
/// other sessions share.
///
/// # Errors
/// [`BackendError`] when they can't be removed; and what `sessions` says.
pub fn sweep_sandboxes<E: From<BackendError>>(
    home: &Path,
    dry_run: bool,
    sessions: impl Fn() -> Result<Vec<SessionId>, E>,
) -> Result<Vec<PathBuf>, E> {
    // Without a place for files there are none.
    let (Ok(all), Ok(name)) = (paths::cache(), name_of(home)) else { return Ok(Vec::new()) };
    let known = sessions()?;
    let ids = paths::names_in(&all).filter_map(|name| name.parse::<SessionId>().ok());
    let overlay = ids.filter(|id| !known.contains(id)).filter_map(|id| Some((id, paths::overlay(id).ok()?)));
    let ours: Vec<(SessionId, OverlayDir)> =
        overlay.filter(|(_, overlay)| noted(overlay).is_some_and(|noted| noted == name)).collect();
    let mut found = Vec::new();
    for some in ours.chunks(HELD_MAX) {
        found.extend(sweep(some, dry_run, &sessions)?);
    }
    found.sort();
    Ok(found)
}

fn sweep<E: From<BackendError>>(
    some: &[(SessionId, OverlayDir)],
    dry_run: bool,
    sessions: impl Fn() -> Result<Vec<SessionId>, E>,
) -> Result<Vec<PathBuf>, E> {
    let failed = |error: io::Error| BackendError { backend: NAME, reason: error.to_string() };
    let mut idle = Vec::new();
    for (id, overlay) in some {
        if let Some(held) = overlay.try_hold().map_err(failed)? {
            idle.push((id, overlay, held));
        }
    }
    // Again, now that nobody has them: whoever makes a child lets go of its files when the child is recorded.
    let known = sessions()?;
    let mut found = Vec::new();
    for (_, overlay, _held) in idle.into_iter().filter(|(id, ..)| !known.contains(id)) {
        // Its last user may have taken it along meanwhile.
        if noted(overlay).is_some() {
            found.push(overlay.home());
            if !dry_run {
                overlay.remove_held().map_err(failed)?;
            }
        }
    }
    Ok(found)
}
