//! Temporary workspaces, which belong to no session.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;

use super::config::WorkspaceSpec;
use super::disk::{entries_in, lock_file, make_private, remove_path};
use super::host::HostOptions;
use super::{BackendError, Workspace};
use crate::engine::id::SessionId;

const PLACE: &str = "probes";
/// The extension of the file that is locked while a temporary workspace is in use.
const LOCK: &str = "lock";
/// The number of attempts at operations that other processes may block, and the pause between two.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// A temporary workspace, of no session. Dropping it removes its commands, container and files, even during a panic;
/// [`sweep_throwaways`] removes the remains of a killed process.
pub struct Throwaway {
    spec: WorkspaceSpec,
    id: SessionId,
    directory: PathBuf,
    workspace: Option<Arc<dyn Workspace>>,
    lock: (PathBuf, File),
}

impl Throwaway {
    /// Opens a blank workspace like those of `spec`, with its directories below `home`. If `spec` is in memory or in a
    /// given directory, it gets a new directory on this machine.
    pub fn open(spec: &WorkspaceSpec, home: &Path) -> Result<Self, BackendError> {
        let spec = match spec {
            WorkspaceSpec::Memory => WorkspaceSpec::Host(HostOptions::default()),
            other => other.forked(),
        };
        let failed = |action: &str, path: &Path, error: &dyn std::fmt::Display| BackendError {
            backend: spec.backend_name(),
            reason: format!("can't {action} {}: {error}", path.display()),
        };
        let place = home.join(PLACE);
        make_private(&place)
            .map_err(|error| BackendError { backend: spec.backend_name(), reason: error.to_string() })?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| failed("name a directory in", &place, &error))?;
        let id = SessionId::from_bytes(id);
        let directory = place.join(id.to_string());
        // Lock first: a sweep finds directories by their locks.
        let lock = directory.with_extension(LOCK);
        let file = locked(&lock).map_err(|error| failed("lock", &lock, &error))?;
        // From here on, dropping it removes everything created so far.
        let mut thrown = Self { spec, id, directory, workspace: None, lock: (lock, file) };
        thrown.workspace = Some(thrown.spec.open(id, &thrown.directory)?);
        Ok(thrown)
    }

    /// Returns the workspace, which is useless after this is dropped.
    pub fn workspace(&self) -> Option<&Arc<dyn Workspace>> {
        self.workspace.as_ref()
    }

    /// Returns the id that names its container and its directories.
    pub fn id(&self) -> SessionId {
        self.id
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take() {
            // An engine can't be called from within an async task.
            let closing = std::thread::Builder::new().spawn(move || {
                workspace.close();
                drop(workspace);
            });
            if let Ok(thread) = closing {
                drop(thread.join());
            }
        }
        if let Err(error) = removed(&self.spec, self.id, &self.directory) {
            // The next sweep retries.
            tracing::warn!(%error, directory = %self.directory.display(), "failed to remove a throw-away workspace");
            return;
        }
        drop(remove_path(&self.lock.0));
    }
}

crate::engine::debug_by!(Throwaway, |throwaway| directory: throwaway.directory);

/// Removes temporary workspaces of ended processes below `home`, or with `dry_run` only finds them. Containers are
/// found by their labels, like session containers.
pub fn sweep_throwaways(home: &Path, dry_run: bool) -> Result<Vec<PathBuf>, BackendError> {
    let place = home.join(PLACE);
    let failed = |path: &Path, error: &io::Error| BackendError {
        backend: "throw-away",
        reason: format!("can't search {}: {error}", path.display()),
    };
    let mut found = Vec::new();
    for entry in entries_in(&place).map_err(|error| failed(&place, &error))? {
        let lock = entry.path();
        let name = lock.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let Some(id) = name.filter(|_| lock.extension().is_some_and(|ending| ending == LOCK)) else { continue };
        // If its lock is held, it is in use.
        let Some(_held) = lock_file(&lock, OFlags::empty()).map_err(|error| failed(&lock, &error))? else { continue };
        let directory = lock.with_extension("");
        found.push(directory.clone());
        if !dry_run {
            // It may have had a container. A program without containers removes only the directory.
            let spec = match cfg!(any(feature = "docker", feature = "podman")) {
                true => WorkspaceSpec::Podman(Default::default()),
                false => WorkspaceSpec::Memory,
            };
            let all = removed(&spec, id, &directory).and_then(|()| remove_path(&lock));
            all.map_err(|error| failed(&directory, &error))?;
        }
    }
    found.sort();
    Ok(found)
}

fn removed(spec: &WorkspaceSpec, id: SessionId, directory: &Path) -> io::Result<()> {
    let mut tries = 1;
    loop {
        let done = match spec {
            WorkspaceSpec::Podman(_) => spec.remove(id, directory).map_err(|error| io::Error::other(error.reason)),
            _ => Ok(()),
        };
        match done.and_then(|()| remove_path(directory)) {
            // Processes that are being ended may still write.
            Err(_) if tries < TRIES => tries += 1,
            other => return other,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Creates a file and locks it. It retries, since a sweep may remove the file before it is locked.
fn locked(path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        if let Some(file) = lock_file(path, OFlags::CREATE)? {
            return Ok(file);
        }
        std::thread::sleep(PAUSE);
    }
    Err(ErrorKind::ResourceBusy.into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the test reads files directly")]

    use super::*;

    fn names(home: &Path) -> usize {
        std::fs::read_dir(home.join(PLACE)).unwrap().count()
    }

    #[test]
    fn throwaway_is_removed_on_drop() {
        let home = tempfile::tempdir().unwrap();
        let theirs = home.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        let spec = WorkspaceSpec::Host(HostOptions { directory: Some(theirs.clone()), ..Default::default() });
        for spec in [WorkspaceSpec::Memory, spec] {
            let thrown = Throwaway::open(&spec, home.path()).unwrap();
            let root = PathBuf::from(thrown.workspace().unwrap().root().unwrap());
            std::fs::create_dir_all(root.join("a/b")).unwrap();
            assert!(root.starts_with(home.path().canonicalize().unwrap()) && root != theirs);
            assert_eq!(sweep_throwaways(home.path(), false).unwrap(), Vec::<PathBuf>::new());
            drop(thrown);
            assert_eq!(names(home.path()), 0);
        }
        assert!(theirs.exists());
    }

    #[test]
    fn throwaway_is_removed_on_panic() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_owned();
        let panicked = std::thread::spawn(move || {
            let _thrown = Throwaway::open(&WorkspaceSpec::Memory, &at).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(names(home.path()), 0);
    }

    #[test]
    fn throwaway_of_killed_process_is_removed() {
        let home = tempfile::tempdir().unwrap();
        assert!(sweep_throwaways(home.path(), false).unwrap().is_empty());
        let left = home.path().join(PLACE).join("0123456789abcdef0123456789abcdef");
        std::fs::create_dir_all(left.join("workspaces")).unwrap();
        std::fs::write(left.with_extension(LOCK), b"").unwrap();
        std::fs::write(home.path().join(PLACE).join("note.lock"), b"another's own").unwrap();
        assert_eq!(sweep_throwaways(home.path(), true).unwrap(), std::slice::from_ref(&left));
        assert!(left.exists());
        assert_eq!(sweep_throwaways(home.path(), false).unwrap(), std::slice::from_ref(&left));
        assert!(!left.exists());
        assert_eq!(names(home.path()), 1);
    }
}
