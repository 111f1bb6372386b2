//! The turn to name a session, among processes that share a store.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::StoreError;

/// The file that is locked; it counts the turns.
const NAME: &str = "names";
/// How long the turn is waited for, and how long between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// No other process names a session until this is dropped. The threads of one process have the turn together.
#[derive(Debug)]
pub struct NamingTurn {
    _held: Option<Arc<HeldNames>>,
    others: bool,
}

impl NamingTurn {
    /// The turn in a store that only this process has.
    pub const fn of_own_store() -> Self {
        Self { _held: None, others: false }
    }

    /// Whether other processes may have named sessions since this one had the turn last.
    pub fn others_had_it(&self) -> bool {
        self.others
    }
}

/// The turns of one store's processes.
#[derive(Debug)]
pub(super) struct NameLock {
    path: PathBuf,
    last: Mutex<(Weak<HeldNames>, u64)>,
}

#[derive(Debug)]
struct HeldNames {
    file: File,
    /// Whether others had the turn before: who joins it must know, too.
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

    pub(super) fn turn(&self) -> Result<NamingTurn, StoreError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
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

    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    fn locked(&self) -> Result<File, StoreError> {
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path);
        let file = open.map_err(StoreError::io("open", &self.path))?;
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = "a process that has been naming a session for long".to_owned();
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
        assert!(!others(&one), "nobody was there before");
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
