//! One process per session's workspace.

use super::holder::LeaseHolder;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::StoreError;
use super::journal::disk::{JournalDisk, OsDisk};
use crate::engine::id::SessionId;

/// The directory of leases, in that of the store.
const LEASES: &str = "leases";
/// How often a lease is tried to take that goes away meanwhile, that somebody looks at, or that this process is just
/// letting go of; and how long between two tries.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of a note about a holder.
const NOTE_MAX: u64 = 64 << 10;

/// A session's workspace belongs to this process until this is dropped, or the process ends in any way.
///
/// Who opens a workspace fills its disk, records what others changed on it, and records the calls of a dead process
/// as interrupted: of two processes that do so at once each would undo what the other does.
#[derive(Debug)]
pub struct Lease {
    /// None where nobody else can have the store.
    held: Option<(File, PathBuf)>,
}

impl Lease {
    /// The lease of a session in a store that only this process has.
    pub const fn of_own_store() -> Self {
        Self { held: None }
    }

    /// Who has the lease of a session; none where nobody has it, or nobody can tell.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn holder(directory: &Path, session: SessionId) -> Option<LeaseHolder> {
        let file = File::open(directory.join(LEASES).join(session.to_string())).ok()?;
        // Who takes it in this moment looks again, because others may look, too.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(noted(&file)),
            // Not by closing alone: a program that is being started may have the same open file for a moment.
            Ok(()) => file.unlock().err().map(|_| LeaseHolder::default()),
            Err(TryLockError::Error(_)) => None,
        }
    }

    /// Takes the lease of a session of the store in a directory.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn take(directory: &Path, session: SessionId, holder: &LeaseHolder) -> Result<Self, StoreError> {
        let leases = directory.join(LEASES);
        OsDisk.create_dir(&leases).map_err(StoreError::io("make", &leases))?;
        let path = leases.join(session.to_string());
        let mut in_use = None;
        for _ in 0..TRIES {
            let mut open = OpenOptions::new();
            open.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = open.open(&path).map_err(StoreError::io("open", &path))?;
            match file.try_lock() {
                // Whoever had it may have removed it between our opening and our locking it.
                Ok(()) if is_still(&file, &path) => {
                    note(&mut file, holder);
                    return Ok(Self { held: Some((file, path)) });
                }
                Ok(()) => drop(file.unlock()),
                Err(TryLockError::WouldBlock) => {
                    let found = noted(&file);
                    let is_looked_at = file.try_lock_shared().is_ok();
                    if is_looked_at {
                        drop(file.unlock());
                    }
                    // By more than its number, which a process in another container may have, too.
                    let is_ours = found == *holder;
                    let error = StoreError::InUse { session, holder: Arc::new(found) };
                    if !is_looked_at && !is_ours {
                        return Err(error);
                    }
                    in_use = Some(error);
                }
                Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &path)(error)),
            }
            std::thread::sleep(PAUSE);
        }
        if let Some(error) = in_use {
            return Err(error);
        }
        let gone = std::io::Error::other("it is removed again and again");
        Err(StoreError::io("take", &path)(gone))
    }
}

fn is_still(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// On a full disk the lease still holds; only its note is missing.
fn note(file: &mut File, holder: &LeaseHolder) {
    let text = serde_json::to_vec(holder).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
    if let Err(error) = written {
        tracing::debug!(%error, "the holder of a lease could not be written down");
    }
}

fn noted(file: &File) -> LeaseHolder {
    let mut text = Vec::new();
    match file.take(NOTE_MAX).read_to_end(&mut text) {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => LeaseHolder::default(),
    }
}

impl Drop for Lease {
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    fn drop(&mut self) {
        let Some((file, path)) = self.held.take() else { return };
        // While it is locked: nobody else removes it, and who opened it meanwhile finds it gone.
        let gone = std::fs::remove_file(&path).and_then(|()| file.unlock());
        if let Err(error) = gone {
            tracing::debug!(%error, path = %path.display(), "a lease goes with its file");
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test looks at files by itself")]
mod tests {
    use super::*;

    #[test]
    fn lease_names_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let session = SessionId::from_bytes([7; 16]);
        let holder = LeaseHolder { process: 12, command: "somebody".to_owned(), address: Some("run/a".into()) };
        let lease = Lease::take(directory.path(), session, &holder).unwrap();
        let Err(StoreError::InUse { holder: found, .. }) = Lease::take(directory.path(), session, &holder) else {
            panic!("it was had twice");
        };
        assert_eq!(*found, holder);
        assert_eq!(found.to_string(), "process 12 (somebody)");
        Lease::take(directory.path(), SessionId::from_bytes([8; 16]), &holder).unwrap();
        drop(lease);
        assert_eq!(std::fs::read_dir(directory.path().join(LEASES)).unwrap().count(), 0);
        Lease::take(directory.path(), session, &holder).unwrap();
    }

    #[test]
    fn lease_has_one_owner_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let (session, having) = (SessionId::from_bytes([7; 16]), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut had = 0;
                    while had < 50 {
                        let Ok(lease) = Lease::take(directory.path(), session, &LeaseHolder::default()) else {
                            continue;
                        };
                        assert_eq!(having.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        had += 1;
                        having.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lease);
                    }
                });
            }
        });
    }
}
