//! The segments of a journal, opened on first use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use super::disk::{JournalDisk, OsDisk};
use super::segment::{self, FramePosition, Segment};
use crate::engine::lock::{read_lock, write_lock};
use crate::engine::store::{Result, StoreError};

pub(crate) struct Segments {
    disk: Arc<dyn JournalDisk>,
    directory: PathBuf,
    writable: bool,
    open: RwLock<BTreeMap<u32, Arc<Segment>>>,
}

impl Segments {
    pub(crate) fn new(directory: &Path, writable: bool) -> Self {
        Self::on(Arc::new(OsDisk), directory, writable)
    }

    pub(crate) fn on(disk: Arc<dyn JournalDisk>, directory: &Path, writable: bool) -> Self {
        Self { disk, directory: directory.to_owned(), writable, open: RwLock::default() }
    }

    pub(crate) fn disk(&self) -> &dyn JournalDisk {
        &*self.disk
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn numbers(&self) -> Result<Vec<u32>> {
        Ok(self.parted()?.0)
    }

    /// Returns the numbers of files that are named like segments, but follow no segment and have no valid head.
    pub(crate) fn strays(&self) -> Result<Vec<u32>> {
        Ok(self.parted()?.1)
    }

    fn parted(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let mut before = None;
        let listed = segment::list(self.disk(), &self.directory)?;
        Ok(listed.into_iter().partition(|number| {
            let follows = before.is_none_or(|before| before + 1 == *number);
            let is_segment = follows || self.get(*number).is_ok();
            before = if is_segment { Some(*number) } else { before };
            is_segment
        }))
    }

    pub(crate) fn get(&self, number: u32) -> Result<Arc<Segment>> {
        let open = read_lock(&self.open);
        if let Some(segment) = open.get(&number) {
            return Ok(Arc::clone(segment));
        }
        drop(open);
        let segment = Segment::open(self.disk(), &self.directory, number, self.writable);
        // Packing may have replaced the file during the first attempt.
        let segment = segment.or_else(|_| Segment::open(self.disk(), &self.directory, number, self.writable))?;
        let segment = Arc::new(segment);
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    pub(crate) fn add(&self, segment: Arc<Segment>) {
        let mut open = write_lock(&self.open);
        open.insert(segment.head.number, segment);
    }

    /// Returns the checksum of the last bytes before a position, which identifies the history.
    pub(crate) fn checksum_before(&self, end: FramePosition) -> Result<u32> {
        const LOOKED_AT: u32 = 512;
        let from = end.offset.saturating_sub(LOOKED_AT);
        let mut bytes = vec![0; usize::try_from(end.offset - from).unwrap_or(0)];
        let filled = self.get(end.segment)?.read_at(u64::from(from), &mut bytes)?;
        Ok(crc32c::crc32c(&bytes[..filled]))
    }

    pub(crate) fn forget(&self, number: u32) {
        write_lock(&self.open).remove(&number);
    }

    #[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let mut total = 0;
        for entry in std::fs::read_dir(&self.directory).map_err(StoreError::io("list", &self.directory))? {
            let entry = entry.map_err(StoreError::io("list", &self.directory))?;
            total += entry.metadata().map_or(0, |m| m.len().min(m.blocks() * 512));
        }
        Ok(total)
    }
}
