//! Background work: writing, indexing, packing.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender};

use super::LocalInner;
use crate::engine::lock::lock;
use crate::engine::store::index::{IndexBatch, IndexedUpTo};
use crate::engine::store::journal::frame::{self, FrameBody, FrameKind};
use crate::engine::store::journal::segment::{self};
use crate::engine::store::journal::{FramePosition, pack, scan};
use crate::engine::store::{Result, StorageUse, StoreError};

/// Maximum time before a commit that no caller waits for is written.
const WRITE_PAUSE: Duration = Duration::from_millis(20);
const LEARN_PAUSE: Duration = Duration::from_millis(500);
/// Rounds of learning between two flushes of the index: 2 s. A crash loses what was learnt since the last flush.
const FLUSH_ROUNDS: u64 = 4;

pub(super) struct Maintenance {
    stop: Sender<()>,
    threads: Vec<JoinHandle<()>>,
}

impl Maintenance {
    pub(super) fn start(shared: &Arc<LocalInner>, threads: bool) -> Result<Self> {
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        if !threads {
            return Ok(Self { stop, threads: Vec::new() });
        }
        let (writing, indexing) = (Arc::clone(shared), Arc::clone(shared));
        let named = |name: &str| std::thread::Builder::new().name(format!("foldspace-{name}"));
        let failed = || StoreError::io("start a thread for", &shared.directory);
        let writer = named("writer").spawn(move || {
            if let Some(writer) = &writing.writer {
                writer.run(WRITE_PAUSE);
            }
        });
        let writer = writer.map_err(failed())?;
        let index = named("index").spawn(move || {
            for round in 1_u64.. {
                if stopped.recv_timeout(LEARN_PAUSE) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                indexing.learn();
                indexing.keep_catalogue_near();
                indexing.pack_full();
                if round.is_multiple_of(FLUSH_ROUNDS) {
                    indexing.flush_index();
                }
            }
        });
        Ok(Self { stop, threads: vec![writer, index.map_err(failed())?] })
    }

    pub(super) fn stop(self, shared: &LocalInner) {
        drop(self.stop);
        if let Some(writer) = &shared.writer {
            writer.stop();
        }
        for thread in self.threads {
            // A panic there was already printed; continue closing.
            drop(thread.join());
        }
        let closed = shared.writer.as_ref().map_or(Ok(()), |writer| writer.close());
        if let Err(error) = closed {
            tracing::warn!(%error, "failed to close the journal cleanly; the next opening recovers it");
        }
        shared.learn();
        shared.keep_catalogue().unwrap_or_else(|error| tracing::debug!(%error, "failed to write the catalogue"));
        shared.flush_index();
    }
}

impl LocalInner {
    pub(super) fn learn(&self) {
        if let Err(error) = self.teach()
            && let Err(error) = self.do_without_index(&error)
        {
            tracing::warn!(%error, "failed to read positions from the journal");
        }
    }

    pub(super) fn flush_index(&self) {
        if let Err(error) = self.with_index((), |index| index.flush()) {
            tracing::debug!(%error, "failed to flush the index; the next opening rebuilds what is missing");
        }
    }

    fn teach(&self) -> Result<()> {
        let _learning = lock(&self.learning);
        let Some(index) = self.index() else { return Ok(()) };
        let (sessions, removed, end, group): (_, Vec<_>, _, _) = {
            let mut dirty = self.slots.dirty();
            if dirty.end == FramePosition::default() {
                return Ok(());
            }
            let sessions = std::mem::take(&mut dirty.sessions);
            for slot in &sessions {
                slot.dirty.store(false, std::sync::atomic::Ordering::Release);
            }
            let (end, group) = (dirty.end, dirty.group);
            let removed = std::mem::take(&mut dirty.removed);
            let (durable, coming) = removed.into_iter().partition(|(_, place)| *place < end);
            dirty.removed = coming;
            (sessions, durable, end, group)
        };
        let contents = self.contents.unindexed(end);
        // The stamp is also written if a collection left no sessions, and for the end after a clean close.
        let is_known = || group == 0 || index.stamp().is_some_and(|stamp| stamp.end == end);
        if sessions.is_empty() && removed.is_empty() && contents.is_empty() && is_known() {
            return Ok(());
        }
        let removed = removed.into_iter().map(|(session, _)| session).collect();
        let mut batch = IndexBatch { contents, removed, ..IndexBatch::default() };
        for slot in &sessions {
            if slot.lock().removed.is_some_and(|place| place >= end) {
                // Its row must record the removal later, and nothing else would mark it dirty again.
                self.slots.note(slot);
            }
            let (positions, row) = slot.indexable(end);
            batch.positions.push((slot.id, positions));
            batch.rows.extend(row);
        }
        let tail = self.segments.checksum_before(end)?;
        index.learn(&batch, IndexedUpTo { journal: self.journal, end, group, tail })?;
        self.contents.indexed(&batch.contents);
        for (slot, (_, positions)) in sessions.iter().zip(&batch.positions) {
            slot.lock().positions.drain(..positions.len());
        }
        Ok(())
    }

    pub(super) fn pack_full(&self) {
        let Some(raw) = self.pack_behind else { return };
        let full = std::mem::take(&mut self.slots.dirty().full);
        if !full.is_empty()
            && let Err(error) = self.keep_catalogue()
        {
            tracing::debug!(%error, "failed to write the catalogue");
        }
        for number in full {
            let durable = self.slots.dirty().end.segment > number.saturating_add(raw);
            if !durable {
                self.slots.dirty().full.push(number);
            } else if let Err(error) = self.pack_segment(number) {
                tracing::warn!(%error, segment = number, "failed to pack a segment; it stays unpacked");
            }
        }
    }

    fn pack_segment(&self, number: u32) -> Result<()> {
        let segment = self.segments.get(number)?;
        if segment.is_packed() {
            return Ok(());
        }
        let disk = self.segments.disk();
        let packed = segment::packed_path(self.segments.directory(), number);
        if !pack(disk, &segment, segment.len()?, &packed)? {
            tracing::warn!(segment = number, "a segment contains damage; it stays unpacked");
            return Ok(());
        }
        self.segments.forget(number);
        let raw = segment::raw_path(self.segments.directory(), number);
        disk.remove(&raw).map_err(StoreError::io("remove", &raw))
    }

    /// Measures storage by reading the whole journal.
    pub(super) fn usage(&self) -> Result<Vec<StorageUse>> {
        let use_of = |what: &'static str| StorageUse { what: what.into(), count: 0, raw_bytes: 0, disk_bytes: 0 };
        let mut uses = [use_of("events"), use_of("contents"), use_of("chunk lists"), use_of("marks")];
        for number in self.segments.numbers()? {
            let segment = self.segments.get(number)?;
            scan::frames_so_far(&segment, segment::HEADER, &mut |found| {
                let bytes = found.payload.len() as u64;
                let (at, count, raw) = match found.body() {
                    Ok(FrameBody::Commit(_, commit)) => (0, u64::from(commit.count), bytes),
                    Ok(FrameBody::Content(_, length)) if found.header.kind == FrameKind::Content => (1, 1, length),
                    Ok(FrameBody::Content(..)) => (2, 1, bytes),
                    Ok(FrameBody::Removal(_) | FrameBody::LateStart(..) | FrameBody::Mark) | Err(_) => (3, 1, 0),
                };
                uses[at].count += count;
                uses[at].raw_bytes += raw;
                uses[at].disk_bytes += frame::frame_len(found.header.length) as u64;
                Ok(())
            })?;
        }
        let mut uses = uses.to_vec();
        let rows = self.with_index(Default::default(), |index| index.usage())?;
        for (what, prefixes) in [("index", &b"cdp!"[..]), ("snapshots", b"sb")] {
            let of = |pick: fn(&(u64, u64)) -> u64| prefixes.iter().filter_map(|p| rows.get(p)).map(pick).sum();
            let (count, bytes) = (of(|use_of| use_of.0), of(|use_of| use_of.1));
            uses.push(StorageUse { what: what.into(), count, raw_bytes: bytes, disk_bytes: bytes });
        }
        let disk_bytes = self.segments.disk_bytes()?;
        let count = self.segments.numbers()?.len() as u64;
        uses.push(StorageUse { what: "journal files".into(), count, raw_bytes: disk_bytes, disk_bytes });
        Ok(uses)
    }
}
