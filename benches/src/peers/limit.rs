//! The limit: a bare file, preallocated, with one write and one fdatasync a group. It can't be read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::FallocateFlags;

use super::Peer;
use crate::log::{EVENT_BYTES, Record};

const FILE_BYTES: u64 = 64 << 20;

/// Files of 64 MiB, one after the other.
#[derive(Debug)]
pub(super) struct BareFile {
    directory: PathBuf,
    file: File,
    number: u32,
    end: u64,
    buffer: Vec<u8>,
}

impl BareFile {
    /// Sets space aside.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let file = create(directory, 0)?;
        Ok(Self { directory: directory.to_owned(), file, number: 0, end: 0, buffer: Vec::new() })
    }
}

fn create(directory: &Path, number: u32) -> Result<File> {
    let file = File::create_new(directory.join(number.to_string()))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
    file.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(file)
}

impl Peer for BareFile {
    fn append_batch(&mut self, batch: &[Record]) -> Result<()> {
        if self.end + (batch.len() * EVENT_BYTES) as u64 > FILE_BYTES {
            self.number += 1;
            self.end = 0;
            self.file = create(&self.directory, self.number)?;
        }
        self.buffer.clear();
        batch.iter().for_each(|record| self.buffer.extend_from_slice(&record.bytes));
        self.file.write_all_at(&self.buffer, self.end)?;
        self.file.sync_data()?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }
}
