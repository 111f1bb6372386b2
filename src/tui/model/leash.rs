//! A leash by which a task in the background is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldspace::Seq;

use super::ViewError;

/// Whether a long way is still wanted, and how far it has led.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leash {
    cancelled: Arc<AtomicBool>,
    reached: Arc<AtomicU64>,
}

impl Leash {
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The position that was looked at last.
    pub(crate) fn reached(&self) -> Seq {
        self.reached.load(Ordering::Relaxed)
    }

    /// Tells how far it has led; false when it is not wanted any more.
    pub(super) fn at(&self, seq: Seq) -> bool {
        self.reached.store(seq, Ordering::Relaxed);
        !self.is_cancelled()
    }

    /// Goes on only with what is still wanted.
    ///
    /// # Errors
    /// [`ViewError::Stopped`].
    pub(crate) fn holds(&self) -> Result<(), ViewError> {
        if self.is_cancelled() { Err(ViewError::Stopped) } else { Ok(()) }
    }
}
