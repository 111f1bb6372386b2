//! The marker next to a disk that still has to be populated, for later processes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::remove::remove_path;
use crate::backends::BackendError;

/// The record that a workspace's disk lacks some or all of its session's files.
#[derive(Debug)]
pub struct PopulateMarker {
    backend: &'static str,
    /// Exists, empty, while the disk is being populated; also while it is between two states, which it then contains.
    note: PathBuf,
    is_blank: AtomicBool,
}

impl PopulateMarker {
    /// Opens the marker of a disk that is new, or that an earlier process began to populate or to change.
    pub(crate) fn new(backend: &'static str, note: PathBuf, is_new: bool) -> Self {
        // The remains of a process that was killed before it had changed anything.
        if let Err(error) = remove_path(&begun(&note)) {
            tracing::debug!(%error, note = %note.display(), "failed to remove an unfinished populate marker");
        }
        let is_blank = AtomicBool::new(is_new || note.exists());
        Self { backend, note, is_blank }
    }

    /// Returns true for an empty disk that no process started to populate or change.
    pub(crate) fn is_new(&self) -> bool {
        self.is_blank() && !self.note.exists()
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.is_blank.load(Ordering::Acquire)
    }

    /// Records that populating starts. An existing intent is retained.
    #[expect(clippy::disallowed_methods, reason = "the marker is the backend's own file")]
    pub(crate) fn filling(&self) -> Result<(), BackendError> {
        self.is_blank.store(true, Ordering::Release);
        let made = File::options().create(true).append(true).open(&self.note);
        made.map(drop).map_err(|error| self.failed("create", &error))
    }

    /// Durably records, for a later process, that the disk is between two states, and which.
    pub(crate) fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        self.write(intent).map_err(|error| self.failed("create", &error))
    }

    #[expect(clippy::disallowed_methods, reason = "the marker is the backend's own file")]
    fn write(&self, intent: &[u8]) -> io::Result<()> {
        let begun = begun(&self.note);
        let mut file = File::create(&begun)?;
        file.write_all(intent)?;
        file.sync_all()?;
        std::fs::rename(&begun, &self.note)?;
        self.note.parent().map_or(Ok(()), |home| File::open(home)?.sync_all())
    }

    /// Reads the intent of the state change in progress, if any.
    #[expect(clippy::disallowed_methods, reason = "the marker is the backend's own file")]
    pub(crate) fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        match std::fs::read(&self.note) {
            Ok(intent) => Ok(Some(intent).filter(|intent| !intent.is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", &error)),
        }
    }

    pub(crate) fn filled(&self) -> Result<(), BackendError> {
        remove_path(&self.note).map_err(|error| self.failed("remove", &error))?;
        self.is_blank.store(false, Ordering::Release);
        Ok(())
    }

    fn failed(&self, action: &str, error: &io::Error) -> BackendError {
        BackendError { backend: self.backend, reason: format!("can't {action} {}: {error}", self.note.display()) }
    }
}

fn begun(note: &Path) -> PathBuf {
    note.with_extension("new")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populate_marker_is_blank_until_done() {
        let directory = tempfile::tempdir().unwrap();
        let open = |is_new| PopulateMarker::new("host", directory.path().join("note"), is_new);
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
    #[expect(clippy::disallowed_methods, reason = "the test creates the remains of a killed process")]
    fn populate_marker_keeps_intent_for_later_process() {
        let directory = tempfile::tempdir().unwrap();
        let open = || PopulateMarker::new("host", directory.path().join("note"), false);
        let changing = open();
        assert_eq!(changing.intent(), Ok(None));
        changing.unsettled(b"from here to there").unwrap();
        assert!(!changing.is_blank());
        drop(changing);
        // The unfinished marker of a killed process is ignored.
        std::fs::write(directory.path().join("note.new"), "from").unwrap();

        let later = open();
        assert!(later.is_blank() && !directory.path().join("note.new").exists());
        later.filling().unwrap();
        assert_eq!(later.intent(), Ok(Some(b"from here to there".to_vec())));
        later.filled().unwrap();
        assert_eq!(later.intent(), Ok(None));
        later.filling().unwrap();
        assert_eq!(later.intent(), Ok(None), "a populated disk has no intent");
    }

    #[test]
    fn populate_marker_unwritable_is_an_error() {
        let blank = PopulateMarker::new("host", PathBuf::from("/nowhere/note"), true);
        assert!(blank.filling().unwrap_err().reason.contains("/nowhere/note"));
        assert!(blank.unsettled(b"x").unwrap_err().reason.contains("/nowhere/note"));
        blank.filled().unwrap();
        assert!(!blank.is_blank());
    }
}
