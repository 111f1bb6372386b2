//! Leases: one process per session's workspace.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::holder::LeaseHolder;
use super::journal::disk::{JournalDisk, OsDisk};
use super::lock::{note, open};
use super::{Result, StoreError};
use crate::engine::id::SessionId;

const LEASES: &str = "leases";
/// Tries to take a lease that is being removed or looked at, and the pause between two.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
const NOTE_MAX: u64 = 64 << 10;

/// Lease of a session's workspace by this process, until it is dropped or the process ends in any way.
///
/// Opening a workspace populates its disk, and records external changes and the interrupted calls of a dead process:
/// two processes at once would undo each other's work.
#[derive(Debug)]
pub struct Lease {
    /// None in a store of one process.
    held: Option<(File, PathBuf)>,
}

impl Lease {
    /// Returns the lease of a session in a store of one process.
    pub const fn of_own_store() -> Self {
        Self { held: None }
    }

    /// Returns the owner of a session's lease, if that is known.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn holder(directory: &Path, session: SessionId) -> Option<LeaseHolder> {
        let file = File::open(directory.join(LEASES).join(session.to_string())).ok()?;
        // A process that takes it at this moment tries again, because of such looks.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(noted(&file)),
            // Not by closing alone: a program that is being started may have the same open file for a moment.
            Ok(()) => file.unlock().err().map(|_| LeaseHolder::default()),
            Err(TryLockError::Error(_)) => None,
        }
    }

    pub(super) fn take(directory: &Path, session: SessionId, holder: &LeaseHolder) -> Result<Self> {
        let leases = directory.join(LEASES);
        OsDisk.create_dir(&leases).map_err(StoreError::io("make", &leases))?;
        let path = leases.join(session.to_string());
        let mut in_use = None;
        for _ in 0..TRIES {
            let mut file = open(&path)?;
            match file.try_lock() {
                // The last owner may have removed it since it was opened.
                Ok(()) if is_still(&file, &path) => {
                    note(&mut file, &serde_json::to_vec(holder).unwrap_or_default());
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
        let gone = || StoreError::io("take", &path)(std::io::Error::other("it is removed again and again"));
        Err(in_use.unwrap_or_else(gone))
    }
}

fn is_still(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

fn noted(file: &File) -> LeaseHolder {
    let mut text = Vec::new();
    let read = file.take(NOTE_MAX).read_to_end(&mut text);
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

impl Drop for Lease {
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    fn drop(&mut self) {
        let Some((file, path)) = self.held.take() else { return };
        // While it is locked: no other process removes it, and one that has it open finds it gone.
        let gone = std::fs::remove_file(&path).and_then(|()| file.unlock());
        if let Err(error) = gone {
            tracing::debug!(%error, path = %path.display(), "a lease goes with its file");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test looks at files by itself")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_names_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let session = SessionId::from_bytes([7; 16]);
        let holder = LeaseHolder { process: 12, command: "foldspace".to_owned() };
        let lease = Lease::take(directory.path(), session, &holder).unwrap();
        let Err(StoreError::InUse { holder: found, .. }) = Lease::take(directory.path(), session, &holder) else {
            panic!("it was had twice");
        };
        assert_eq!(*found, holder);
        assert_eq!(found.to_string(), "process 12 (foldspace)");
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
