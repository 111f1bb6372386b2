//! Cancels a background task and reports its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldspace::Seq;

use super::Failure;

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

    pub(crate) fn reached(&self) -> Seq {
        self.reached.load(Ordering::Relaxed)
    }

    pub(super) fn at(&self, seq: Seq) -> bool {
        self.reached.store(seq, Ordering::Relaxed);
        !self.is_cancelled()
    }

    pub(crate) fn holds(&self) -> Result<(), Failure> {
        if self.is_cancelled() { Err(Failure::stopped()) } else { Ok(()) }
    }
}
