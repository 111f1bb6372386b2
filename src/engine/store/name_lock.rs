//! The lock for naming sessions, among processes that share a store.

use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::lock::open;
use super::{Result, StoreError};
use crate::engine::lock::lock;

const NAME: &str = "names";
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// Lock for naming sessions: no other process names one until this is dropped. Threads of one process share it.
#[derive(Debug)]
pub struct NamingTurn {
    _held: Option<Arc<HeldNames>>,
    others: bool,
}

impl NamingTurn {
    /// Returns the lock of a store of one process.
    pub const fn of_own_store() -> Self {
        Self { _held: None, others: false }
    }

    /// Returns true if other processes may have named sessions since this one last had the lock.
    pub fn others_had_it(&self) -> bool {
        self.others
    }
}

#[derive(Debug)]
pub(super) struct NameLock {
    path: PathBuf,
    last: Mutex<(Weak<HeldNames>, u64)>,
}

#[derive(Debug)]
struct HeldNames {
    file: File,
    /// Set if others had the turn before; all who join the turn must know.
    others: bool,
}

impl Drop for HeldNames {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the turn to name a session goes with its file");
        }
    }
}

impl NameLock {
    pub(super) fn of(directory: &Path) -> Self {
        Self { path: directory.join(NAME), last: Mutex::default() }
    }

    pub(super) fn turn(&self) -> Result<NamingTurn> {
        let mut last = lock(&self.last);
        if let Some(held) = last.0.upgrade() {
            return Ok(NamingTurn { others: held.others, _held: Some(held) });
        }
        let file = self.locked()?;
        let mut number = [0; 8];
        let read = file.read_at(&mut number, 0).map_err(StoreError::io("read", &self.path))?;
        let before = if read == number.len() { u64::from_le_bytes(number) } else { 0 };
        let now = before.wrapping_add(1);
        file.write_all_at(&now.to_le_bytes(), 0).map_err(StoreError::io("write", &self.path))?;
        let others = last.1 != before;
        let held = Arc::new(HeldNames { file, others });
        *last = (Arc::downgrade(&held), now);
        Ok(NamingTurn { _held: Some(held), others })
    }

    fn locked(&self) -> Result<File> {
        let file = open(&self.path)?;
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = "a process that has been naming a session for 10 seconds".to_owned();
                    return Err(StoreError::Locked { path: self.path.clone(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &self.path)(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lock_reports_other_turns() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (NameLock::of(directory.path()), NameLock::of(directory.path()));
        let others = |naming: &NameLock| naming.turn().unwrap().others_had_it();
        assert!(!others(&one), "it is the first");
        assert!(!others(&one));
        assert!(others(&two));
        assert!(others(&one));
        assert!(!others(&one));
        assert!(others(&two));
        let held = (one.turn().unwrap(), one.turn().unwrap());
        assert!(held.0.others_had_it() && held.1.others_had_it(), "who joins a turn knows as much");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| others(&two));
            drop(held);
            assert!(waiting.join().unwrap());
        });
    }
}
