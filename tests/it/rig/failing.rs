//! A workspace that fails, or at which the process dies.

use std::sync::{Arc, Mutex};

use foldspace::Workspace;
use foldspace::backends::{BackendError, ChangeDetector, FileChange, Shell};

/// A workspace that does as another does until it is told to fail.
pub(crate) struct Failing {
    inner: Arc<dyn Workspace>,
    how: Mutex<Option<Fails>>,
}

/// How a workspace fails at what it is to put onto its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fails {
    /// At once, as with a disk that is full.
    AtOnce,
    /// Half of it is done when the process dies.
    DyingHalfway,
    /// All of it is done, and recorded, when the process dies.
    DyingAtTheEnd,
    /// Half of it is done when the disk fails, on which then nothing can be noted either.
    Halfway,
    /// All of it is done, and recorded, but that can't be noted.
    AtTheEnd,
}

impl Failing {
    /// It does not fail yet.
    pub(crate) fn new(inner: Arc<dyn Workspace>) -> Arc<Self> {
        Arc::new(Self { inner, how: Mutex::new(None) })
    }

    /// From now on it fails like this, or not at all.
    pub(crate) fn set(&self, how: impl Into<Option<Fails>>) {
        *self.how.lock().unwrap() = how.into();
    }

    fn how(&self) -> Option<Fails> {
        *self.how.lock().unwrap()
    }

    fn failed<T>(&self, reason: &str) -> Result<T, BackendError> {
        Err(BackendError { backend: self.backend_name(), reason: reason.to_owned() })
    }
}

impl Workspace for Failing {
    fn backend_name(&self) -> &'static str {
        self.inner.backend_name()
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        let half = &changes[..changes.len().div_ceil(2)];
        match self.how() {
            Some(Fails::AtOnce) => self.failed("the disk is full"),
            Some(Fails::DyingHalfway) => {
                self.inner.apply(half).unwrap();
                panic!("the process dies, as the test wants it");
            }
            Some(Fails::Halfway) => {
                self.inner.apply(half).unwrap();
                self.failed("the disk is gone")
            }
            Some(Fails::DyingAtTheEnd | Fails::AtTheEnd) | None => self.inner.apply(changes),
        }
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        self.inner.unrecorded_shell()
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        self.inner.capture()
    }

    fn is_blank(&self) -> bool {
        self.inner.is_blank()
    }

    fn filling(&self) -> Result<(), BackendError> {
        self.inner.filling()
    }

    fn unsettled(&self, intent: &[u8]) -> Result<(), BackendError> {
        self.inner.unsettled(intent)
    }

    fn intent(&self) -> Result<Option<Vec<u8>>, BackendError> {
        self.inner.intent()
    }

    fn filled(&self) -> Result<(), BackendError> {
        match self.how() {
            Some(Fails::DyingAtTheEnd) => panic!("the process dies, as the test wants it"),
            Some(Fails::Halfway | Fails::AtTheEnd) => self.failed("nothing can be noted"),
            _ => self.inner.filled(),
        }
    }
}
