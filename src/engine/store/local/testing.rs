//! Test access for the simulation: opens a store on any disk, without threads, and abandons it at any moment.

use std::path::Path;
use std::sync::Arc;

use super::open::Opening;
use super::{LocalStore, LocalStoreOptions};
use crate::engine::store::disk::JournalDisk;
use crate::engine::store::{Committed, FsckReport, GcReport, Pending, StoreError};

fn opening(disk: Arc<dyn JournalDisk>, options: LocalStoreOptions) -> Opening {
    Opening { options, bus: Arc::default(), disk, threads: false }
}

impl LocalStore {
    /// Opens a store with segments that may be smaller than the normal minimum.
    #[doc(hidden)]
    pub fn simulated(
        directory: &Path,
        disk: Arc<dyn JournalDisk>,
        options: LocalStoreOptions,
    ) -> Result<Self, StoreError> {
        Self::open_with(directory, opening(disk, options))
    }

    #[doc(hidden)]
    pub fn simulated_fsck(
        directory: &Path,
        disk: Arc<dyn JournalDisk>,
        repair: bool,
    ) -> Result<FsckReport, StoreError> {
        Self::fsck_on(disk, directory, repair.then_some(&[]))
    }

    #[doc(hidden)]
    pub fn simulated_accept_loss(
        directory: &Path,
        disk: Arc<dyn JournalDisk>,
        options: LocalStoreOptions,
    ) -> Result<FsckReport, StoreError> {
        Self::accept_loss_with(directory, opening(disk, options))
    }

    #[doc(hidden)]
    pub fn simulated_collect(
        directory: &Path,
        disk: Arc<dyn JournalDisk>,
        options: LocalStoreOptions,
    ) -> Result<GcReport, StoreError> {
        Self::collect_with(directory, opening(disk, LocalStoreOptions { pack: false, ..options }), false)
    }

    /// Runs one round of the indexing thread.
    #[doc(hidden)]
    pub fn maintain_now(&self) {
        self.shared.learn();
        self.shared.pack_full();
    }

    #[doc(hidden)]
    pub fn packed_segments(&self) -> u64 {
        let numbers = self.shared.segments.numbers().unwrap_or_default();
        let packed = numbers.iter().filter(|n| self.shared.segments.get(**n).is_ok_and(|s| s.is_packed()));
        packed.count() as u64
    }

    #[doc(hidden)]
    pub fn flush_index(&self) {
        self.shared.flush_index();
    }

    /// Ends like a killed process: nothing more is written.
    #[doc(hidden)]
    pub fn abandon(mut self) {
        self.maintenance = None;
    }
}

impl Pending {
    #[doc(hidden)]
    pub fn committed(&self) -> Option<Committed> {
        self.known()
    }
}
