//! Whether a disk still has to be filled, noted beside it so that a later process knows.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::BackendError;

/// Whether a workspace's disk has nothing, or not all, of its session's files.
#[derive(Debug)]
pub(super) struct Blank {
    backend: &'static str,
    /// There while the disk is being filled.
    note: PathBuf,
    is_blank: AtomicBool,
}

impl Blank {
    /// Of a disk that is new, or that an earlier process began to fill.
    pub(super) fn new(backend: &'static str, note: PathBuf, is_new: bool) -> Self {
        let is_blank = AtomicBool::new(is_new || note.exists());
        Self { backend, note, is_blank }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.is_blank.load(Ordering::Acquire)
    }

    /// Notes that filling begins.
    #[expect(clippy::disallowed_methods, reason = "the note is a file of the backend's own")]
    pub(super) fn filling(&self) -> Result<(), BackendError> {
        self.is_blank.store(true, Ordering::Release);
        std::fs::write(&self.note, b"").map_err(|error| self.failed("make", &error))
    }

    /// Notes, for a later process only, that the disk is between two states.
    #[expect(clippy::disallowed_methods, reason = "the note is a file of the backend's own")]
    pub(super) fn unsettled(&self) -> Result<(), BackendError> {
        std::fs::write(&self.note, b"").map_err(|error| self.failed("make", &error))
    }

    /// Notes that all is there.
    #[expect(clippy::disallowed_methods, reason = "the note is a file of the backend's own")]
    pub(super) fn filled(&self) -> Result<(), BackendError> {
        match std::fs::remove_file(&self.note) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed("remove", &error)),
            _ => self.is_blank.store(false, Ordering::Release),
        }
        Ok(())
    }

    fn failed(&self, action: &str, error: &io::Error) -> BackendError {
        BackendError { backend: self.backend, reason: format!("can't {action} {}: {error}", self.note.display()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_blank_until_it_was_filled_whole() {
        let directory = tempfile::tempdir().unwrap();
        let open = |is_new| Blank::new("host", directory.path().join("note"), is_new);
        let interrupted = open(true);
        assert!(interrupted.is_blank());
        interrupted.filling().unwrap();
        drop(interrupted);

        let later = open(false);
        assert!(later.is_blank());
        later.filling().unwrap();
        later.filled().unwrap();
        assert!(!later.is_blank());
        assert!(!open(false).is_blank());
    }

    #[test]
    fn a_note_that_can_not_be_made_is_an_error() {
        let blank = Blank::new("host", PathBuf::from("/nowhere/note"), true);
        assert!(blank.filling().unwrap_err().reason.contains("/nowhere/note"));
        blank.filled().unwrap();
        assert!(!blank.is_blank());
    }
}
