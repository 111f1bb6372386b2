//! The index: journal positions and snapshots. Only this directory uses sled.
//!
//! Everything here can be rebuilt from the journal, so no write is awaited or synced.
//! sled may panic on a damaged directory: every call is guarded, and a failed index is set aside.

mod catalogue;
mod patch;
mod snapshots;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::journal::FramePosition;
use super::journal::disk::{JournalDisk, OsDisk};
use super::journal::segment::sync_directory;
use super::local::catalogue_file;
use super::{Result, StoreError};
use crate::engine::id::{Digest, Seq, SessionId};

pub(super) use catalogue::CatalogueRow;
use snapshots::Bases;
#[cfg(feature = "nats")]
pub(super) use snapshots::{packed_snapshot, unpacked_snapshot};

/// sled stores larger values in files that it never syncs: with 2 MiB segments the limit is 16 KiB.
const SEGMENT_BYTES: usize = 2 << 20;
const VALUE_MAX: usize = 12 << 10;
const CACHE_BYTES: u64 = 8 << 20;
const ROW_POSITIONS: usize = 256;
const POSITION_BYTES: usize = 16;
/// Raised when the meaning of rows changes; an index with another version is rebuilt.
const VERSION: u32 = 1;
const STAMP: &[u8] = b"!stamp";
const LOCK_TRIES: u32 = 500;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedUpTo {
    pub(super) journal: [u8; 16],
    pub(super) end: FramePosition,
    pub(super) group: u64,
    /// Checksum of the journal's last bytes before `end`, which identifies the history.
    pub(super) tail: u32,
}

impl IndexedUpTo {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        value.extend_from_slice(&self.journal);
        value.extend_from_slice(&place_bytes(self.end));
        value.extend_from_slice(&self.group.to_le_bytes());
        value.extend_from_slice(&self.tail.to_le_bytes());
        value
    }

    pub(super) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let is_known = rest.try_get_u32_le().ok()? == VERSION;
        let journal = *rest.split_off(..16)?.first_chunk()?;
        let (end, group) = (take_place(rest)?, rest.try_get_u64_le().ok()?);
        let tail = rest.try_get_u32_le().ok()?;
        is_known.then_some(Self { journal, end, group, tail })
    }
}

#[derive(Default)]
pub(super) struct IndexBatch {
    pub(super) rows: Vec<CatalogueRow>,
    pub(super) positions: Vec<(SessionId, Vec<(Seq, FramePosition)>)>,
    pub(super) contents: Vec<(Digest, FramePosition)>,
    pub(super) removed: Vec<SessionId>,
}

pub(super) struct SledIndex {
    db: sled::Db,
    /// Locked while a snapshot is stored or bases are swept, so that a new snapshot's base is not swept.
    bases: Mutex<Bases>,
}

impl SledIndex {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        // Private, whatever the modes of sled's files. sled reports any error of the directory itself.
        drop(OsDisk.create_dir(directory));
        clear_unfinished(directory);
        let config = sled::Config::new()
            .path(directory)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(CACHE_BYTES)
            // sled's flusher holds no epoch (see `guarded`); maintenance flushes instead.
            .flush_every_ms(None)
            .print_profile_on_drop(false);
        // A sled that this process just closed may hold its lock a moment longer. No other process can hold it, because
        // this one owns the store's lock.
        let mut tries = 0..LOCK_TRIES;
        let db = guarded(|| {
            loop {
                match config.open() {
                    Err(error) if is_locked(&error) && tries.next().is_some() => {
                        std::thread::sleep(LOCK_PAUSE);
                    }
                    opened => return opened,
                }
            }
        })?;
        let bases = Mutex::new(Bases::read(&db)?);
        Ok(Self { db, bases })
    }

    pub(super) fn is_empty(&self) -> bool {
        guarded(|| Ok(self.db.is_empty())).unwrap_or(false)
    }

    /// Returns the stamp. `None` if the index is new, unreadable or of another version.
    pub(super) fn stamp(&self) -> Option<IndexedUpTo> {
        let value = guarded(|| self.db.get(STAMP)).ok()??;
        IndexedUpTo::decode(&mut &value[..])
    }

    /// Applies a batch and the stamp atomically.
    pub(super) fn learn(&self, batch: &IndexBatch, stamp: IndexedUpTo) -> Result<()> {
        let mut rows = sled::Batch::default();
        // First, because a session may have been recreated after its removal: the last operation on a key wins.
        for session in &batch.removed {
            self.forget_session(&mut rows, *session)?;
        }
        for (digest, place) in &batch.contents {
            rows.insert(key(b'd', digest.as_bytes()), &place_bytes(*place));
        }
        for row in &batch.rows {
            for (key, value) in parts(b'c', row.entry.id.as_bytes(), &row.encode()?) {
                rows.insert(key, value);
            }
        }
        for (session, positions) in &batch.positions {
            self.put_positions(&mut rows, *session, positions)?;
        }
        rows.insert(STAMP, stamp.encode());
        guarded(|| self.db.apply_batch(rows))
    }

    fn put_positions(
        &self,
        rows: &mut sled::Batch,
        session: SessionId,
        positions: &[(Seq, FramePosition)],
    ) -> Result<()> {
        let Some((first, _)) = positions.first() else { return Ok(()) };
        // Extend the last row first, so that many small batches don't create many small rows.
        let last = self.row_at(session, first.saturating_sub(1))?.map(|(_, value)| value);
        let last = last.filter(|value| value.len() < ROW_POSITIONS * POSITION_BYTES);
        let mut all: Vec<_> = last.iter().flat_map(|value| positions_of(value)).collect();
        all.retain(|(known, _)| known < first);
        all.extend_from_slice(positions);
        for row in all.chunks(ROW_POSITIONS) {
            let mut value = Vec::with_capacity(row.len() * POSITION_BYTES);
            row.iter().for_each(|position| put_position(&mut value, *position));
            rows.insert(row_key(session, row[0].0), value);
        }
        Ok(())
    }

    fn row_at(&self, session: SessionId, seq: Seq) -> Result<Option<(sled::IVec, sled::IVec)>> {
        guarded(|| self.db.range(row_key(session, 0)..=row_key(session, seq)).next_back().transpose())
    }

    /// Returns at most `limit` commit positions, from the commit that contains `seq` until past the commit that
    /// contains `until`.
    pub(super) fn positions(
        &self,
        session: SessionId,
        seq: Seq,
        until: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, FramePosition)>> {
        let Some((first, _)) = self.row_at(session, seq)? else { return Ok(Vec::new()) };
        let rows = self.db.range(&first[..]..=&row_key(session, Seq::MAX)[..]);
        guarded(|| {
            let mut found = Vec::new();
            for row in rows {
                let (_, value) = row?;
                let after = found.last().map_or(0, |(last, _)| *last);
                for position in positions_of(&value).filter(|(first, _)| *first > after) {
                    // Only the last commit at or before `seq` can contain it.
                    if position.0 <= seq {
                        found.clear();
                    }
                    found.push(position);
                }
                if found.len() >= limit || found.last().is_some_and(|(first, _)| *first > until) {
                    break;
                }
            }
            found.truncate(limit);
            Ok(found)
        })
    }

    pub(super) fn content(&self, digest: &Digest) -> Result<Option<FramePosition>> {
        let value = guarded(|| self.db.get(key(b'd', digest.as_bytes())))?;
        Ok(value.and_then(|value| take_place(&mut &value[..])))
    }

    /// Returns all sessions, including removed sessions with children.
    pub(super) fn rows(&self) -> Result<Vec<CatalogueRow>> {
        let keys = guarded(|| self.db.scan_prefix(b"c").keys().collect::<Result<Vec<_>, _>>())?;
        let wrong = || StoreError::Index("a row of the catalogue is invalid".to_owned());
        let mut rows = Vec::new();
        for key in keys.iter().filter(|key| key.ends_with(&[0; 4])) {
            let value = self.get_large(b'c', key.get(1..17).unwrap_or_default())?;
            rows.push(value.and_then(|value| CatalogueRow::decode(&value)).ok_or_else(wrong)?);
        }
        Ok(rows)
    }

    fn forget_session(&self, rows: &mut sled::Batch, session: SessionId) -> Result<()> {
        for prefix in [b'p', b's', b'c'] {
            let keys = self.db.scan_prefix(key(prefix, session.as_bytes())).keys();
            for key in guarded(|| keys.collect::<Result<Vec<_>, _>>())? {
                rows.remove(key);
            }
        }
        Ok(())
    }

    /// Stores a value of any size in rows of a safe size; returns its length.
    fn put_large(&self, prefix: u8, name: &[u8], value: &[u8]) -> Result<u64> {
        // The first part is written last, because it contains their number.
        for (key, part) in parts(prefix, name, value).into_iter().rev() {
            guarded(|| self.db.insert(key, part))?;
        }
        Ok(value.len() as u64)
    }

    fn get_large(&self, prefix: u8, name: &[u8]) -> Result<Option<Bytes>> {
        let Some(head) = guarded(|| self.db.get(part_key(prefix, name, 0)))? else { return Ok(None) };
        let mut rest = &head[..];
        let (Ok(count), Ok(crc)) = (rest.try_get_u32_le(), rest.try_get_u32_le()) else { return Ok(None) };
        let mut value = rest.to_vec();
        for number in 1..count {
            let key = part_key(prefix, name, usize::try_from(number).unwrap_or(usize::MAX));
            let Some(part) = guarded(|| self.db.get(key))? else { return Ok(None) };
            value.extend_from_slice(&part);
        }
        let whole = crc32c::crc32c(&value) == crc;
        Ok(whole.then(|| Bytes::from(value)))
    }

    pub(super) fn usage(&self) -> Result<BTreeMap<u8, (u64, u64)>> {
        guarded(|| {
            let mut usage = BTreeMap::<u8, (u64, u64)>::new();
            for row in self.db.iter() {
                let (key, value) = row?;
                let (count, bytes) = usage.entry(key.first().copied().unwrap_or_default()).or_default();
                *count += 1;
                *bytes += (key.len() + value.len()) as u64;
            }
            Ok(usage)
        })
    }

    pub(super) fn flush(&self) -> Result<()> {
        guarded(|| self.db.flush()).map(drop)
    }
}

impl Drop for SledIndex {
    /// Flushes with an epoch held, so that sled has nothing left to flush when it closes.
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "failed to flush the index; the next opening rebuilds what is missing");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
pub(super) fn set_aside(directory: &Path) -> Result<Option<PathBuf>> {
    if !directory.exists() {
        return Ok(None);
    }
    for number in 1..1000 {
        let aside = directory.with_extension(format!("bad-{number}"));
        if !aside.exists() {
            std::fs::rename(directory, &aside).map_err(StoreError::io("set aside", directory))?;
            return Ok(Some(aside));
        }
    }
    remove_all(directory)?;
    Ok(None)
}

pub(super) fn remove(disk: &dyn JournalDisk, store: &Path) -> Result<()> {
    catalogue_file::remove(disk, store)?;
    if let Some(aside) = set_aside(&store.join("index"))? {
        sync_directory(disk, store)?;
        remove_all(&aside)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
pub(super) fn remove_all(directory: &Path) -> Result<()> {
    std::fs::remove_dir_all(directory).map_err(StoreError::io("remove", directory))
}

/// Removes files that a crash during sled's snapshot leaves, because sled refuses to open with them.
#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn clear_unfinished(directory: &Path) {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().ends_with(".generating")) {
        if let Err(error) = std::fs::remove_file(file.path()) {
            tracing::debug!(%error, "failed to remove an unfinished file of the index");
        }
    }
}

/// Recognises sled's lock error by its text: sled has no variant for it.
fn is_locked(error: &sled::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Calls sled with an epoch held, and catches its panics.
///
/// A flush in sled 0.34 uses the current buffer without a reference and without an epoch: a second thread that flushes
/// or writes can free it in between. While every caller holds an epoch, no reachable buffer is freed.
fn guarded<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T> {
    let _epoch = sled::pin();
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|error| StoreError::Index(error.to_string())),
        Err(_) => Err(StoreError::Index("sled panicked".to_owned())),
    }
}

fn key(prefix: u8, name: &[u8]) -> Vec<u8> {
    [&[prefix], name].concat()
}

fn row_key(session: SessionId, first: Seq) -> Vec<u8> {
    [b"p", &session.as_bytes()[..], &first.to_be_bytes()].concat()
}

fn part_key(prefix: u8, name: &[u8], number: usize) -> Vec<u8> {
    [&[prefix], name, &u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()].concat()
}

/// Splits a value into rows of a safe size; the first row begins with their number.
fn parts(prefix: u8, name: &[u8], value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let chunks = value.chunks(VALUE_MAX).collect::<Vec<_>>();
    let mut head = u32::try_from(chunks.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    head.extend_from_slice(&crc32c::crc32c(value).to_le_bytes());
    head.extend_from_slice(chunks.first().copied().unwrap_or_default());
    let mut rows = vec![(part_key(prefix, name, 0), head)];
    rows.extend(
        chunks.iter().enumerate().skip(1).map(|(number, chunk)| (part_key(prefix, name, number), chunk.to_vec())),
    );
    rows
}

fn place_bytes(place: FramePosition) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&place.segment.to_le_bytes());
    bytes[4..].copy_from_slice(&place.offset.to_le_bytes());
    bytes
}

fn take_place(rest: &mut &[u8]) -> Option<FramePosition> {
    let (segment, offset) = (rest.try_get_u32_le().ok()?, rest.try_get_u32_le().ok()?);
    Some(FramePosition { segment, offset })
}

pub(super) fn put_position(value: &mut Vec<u8>, (first, place): (Seq, FramePosition)) {
    value.extend_from_slice(&first.to_le_bytes());
    value.extend_from_slice(&place_bytes(place));
}

fn positions_of(value: &[u8]) -> impl DoubleEndedIterator<Item = (Seq, FramePosition)> {
    value.as_chunks::<POSITION_BYTES>().0.iter().filter_map(|row| take_position(&mut &row[..]))
}

pub(super) fn take_position(rest: &mut &[u8]) -> Option<(Seq, FramePosition)> {
    Some((rest.try_get_u64_le().ok()?, take_place(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the kernel lists threads in files")]
    fn index_runs_no_flusher_of_sled() {
        let directory = tempfile::tempdir().unwrap();
        let _index = SledIndex::open(directory.path()).unwrap();
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
        assert!(!names.collect::<String>().contains("flusher"), "sled's flusher holds no epoch: see `guarded`");
    }
}
