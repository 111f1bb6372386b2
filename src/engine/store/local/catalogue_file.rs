//! The catalogue: all sessions and the segments with their events, in a file that any process can read.
//!
//! Only the owner can open the index. Other readers start with this file, and scan the part of the journal behind it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Buf;

use super::LocalInner;
use super::session_head::SessionHead;
use super::session_heads::Slots;
use crate::engine::store::index::{CatalogueRow, IndexedUpTo, put_position, take_position};
use crate::engine::store::journal::disk::{JournalDisk, read_whole};
use crate::engine::store::journal::frame::FrameBody;
use crate::engine::store::journal::{self, FramePosition, Segments, scan};
use crate::engine::store::{Result, StoreError};
use crate::engine::{Seq, SessionId, lock};

const FILE: &str = "catalogue";
/// Bytes of the journal that the file may lack.
const SCANNED_MAX: u32 = 4 << 20;
/// Bytes per scan step.
const SCANNED_STEP: u64 = 256 << 10;

/// A session, and commits to start scans at: its first in each segment, and others, always including the very first.
struct CatalogueSession {
    row: CatalogueRow,
    starts: Vec<(Seq, FramePosition)>,
}

pub(super) struct CatalogueFile {
    pub(super) stamp: IndexedUpTo,
    sessions: Vec<CatalogueSession>,
}

fn path_in(store: &Path) -> PathBuf {
    store.join(FILE)
}

impl CatalogueFile {
    /// Reads the file of a store. `None` if it is missing, incomplete or of another version.
    pub(super) fn read(disk: &dyn JournalDisk, store: &Path) -> Option<Self> {
        let bytes = read_whole(disk, &path_in(store)).ok()?;
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(body) == u32::from_le_bytes(*crc)).then_some(())?;
        let mut rest = body;
        let stamp = IndexedUpTo::decode(&mut rest)?;
        let mut sessions = Vec::new();
        while !rest.is_empty() {
            let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
            let row = CatalogueRow::decode(rest.split_off(..length)?)?;
            let count = rest.try_get_u32_le().ok()?;
            let starts = (0..count).map(|_| take_position(&mut rest)).collect::<Option<_>>()?;
            sessions.push(CatalogueSession { row, starts });
        }
        Some(Self { stamp, sessions })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = self.stamp.encode();
        for CatalogueSession { row, starts } in &self.sessions {
            let row = row.encode()?;
            bytes.extend_from_slice(&u32::try_from(row.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(&row);
            bytes.extend_from_slice(&u32::try_from(starts.len()).unwrap_or(u32::MAX).to_le_bytes());
            starts.iter().for_each(|start| put_position(&mut bytes, *start));
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// Replaces the file without a sync: an incomplete file is ignored.
    fn write(&self, disk: &dyn JournalDisk, store: &Path) -> Result<()> {
        let (path, unfinished) = (path_in(store), path_in(store).with_extension("tmp"));
        let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
        file.write_all_at(&self.encode()?, 0).map_err(StoreError::io("write", &unfinished))?;
        disk.rename(&unfinished, &path).map_err(StoreError::io("rename", &unfinished))
    }

    /// Passes the scan starts to the known sessions.
    pub(super) fn teach(self, slots: &Slots) {
        for CatalogueSession { row, starts } in self.sessions {
            if let Some(slot) = slots.get(row.entry.id).filter(|_| !starts.is_empty()) {
                slot.lock().starts = starts;
            }
        }
    }

    /// Returns the sessions, if the file matches the journal.
    pub(super) fn rows(self, segments: &Segments) -> Option<Vec<CatalogueRow>> {
        fits(&self.stamp, segments).ok()?;
        Some(self.sessions.into_iter().map(|session| session.row).collect())
    }

    /// Fills the sessions of a read-only store.
    pub(super) fn load(self, slots: &Slots) -> Result<(), String> {
        let rows: Vec<_> = self.sessions.iter().map(|session| session.row.clone()).collect();
        slots.load(&rows)?;
        self.teach(slots);
        Ok(())
    }
}

/// Removes the file, because positions in the journal are about to change.
pub(in crate::engine::store) fn remove(disk: &dyn JournalDisk, store: &Path) -> Result<()> {
    let path = path_in(store);
    match disk.exists(&path) {
        true => disk.remove(&path).map_err(StoreError::io("remove", &path)),
        false => Ok(()),
    }
}

/// Commits of a session in one segment, found by a scan.
pub(super) struct ScannedPositions {
    session: SessionId,
    positions: Vec<(Seq, FramePosition)>,
    last: Seq,
    /// First damage behind the last commit. It may have contained commits of the session.
    hole: Option<FramePosition>,
    /// Position to continue the scan at. `None` at the end of the segment.
    next: Option<FramePosition>,
}

impl ScannedPositions {
    /// Returns true if the commit that contains `seq` is among them, or is the next one.
    fn reaches(&self, seq: Seq) -> bool {
        let end = self.last + u64::from(self.next.is_some());
        self.positions.first().is_some_and(|(first, _)| *first <= seq) && seq <= end
    }

    /// Returns the positions from the commit that contains `seq` on.
    fn after(&self, seq: Seq) -> &[(Seq, FramePosition)] {
        if self.last < seq {
            return &[];
        }
        let skip = self.positions.partition_point(|(first, _)| *first <= seq).saturating_sub(1);
        self.positions.get(skip..).unwrap_or_default()
    }
}

impl LocalInner {
    /// Writes the file if the journal has grown much since, because other readers scan what the file lacks.
    pub(super) fn keep_catalogue_near(&self) {
        let end = self.slots.dirty().end;
        let kept = *lock(&self.read_to);
        let is_near = end.segment == kept.segment && end.offset.saturating_sub(kept.offset) < SCANNED_MAX;
        if !is_near && let Err(error) = self.keep_catalogue() {
            tracing::debug!(%error, "failed to write the catalogue");
        }
    }

    /// Writes the index's rows to the file, if they have changed.
    pub(super) fn keep_catalogue(&self) -> Result<()> {
        let _learning = lock(&self.learning);
        let Some(index) = self.index() else { return Ok(()) };
        let mut kept = lock(&self.read_to);
        let Some(stamp) = index.stamp().filter(|stamp| stamp.end != *kept) else { return Ok(()) };
        let starts = |row: &CatalogueRow| self.slots.get(row.entry.id).map(|slot| slot.starts_before(stamp.end));
        let sessions = index.rows()?.into_iter().map(|row| {
            let starts = starts(&row).unwrap_or_default();
            CatalogueSession { row, starts }
        });
        CatalogueFile { stamp, sessions: sessions.collect() }.write(self.segments.disk(), &self.directory)?;
        *kept = stamp.end;
        Ok(())
    }

    /// Finds positions of commits by scanning the segment that contains `seq`, in place of the index.
    pub(super) fn scan_positions(
        &self,
        slot: &SessionHead,
        starts: &[(Seq, FramePosition)],
        seq: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, FramePosition)>> {
        let mut scanned = lock(&self.scanned);
        let is_near = |found: &ScannedPositions| found.session == slot.id && found.reaches(seq);
        let mut found = match scanned.take().filter(is_near) {
            Some(found) => found,
            None => {
                let begun = starts.iter().rev().find(|(first, _)| *first <= seq);
                let Some((first, from)) = begun.copied() else { return Ok(Vec::new()) };
                let (positions, last) = (Vec::new(), first - 1);
                ScannedPositions { session: slot.id, positions, last, hole: None, next: Some(from) }
            }
        };
        while found.after(seq).len() < limit
            && let Some(from) = found.next
        {
            self.scan_on(&mut found, from)?;
            if found.next.is_none() && found.last < seq {
                found.positions.clear();
                let next = FramePosition::first_in(from.segment + 1);
                found.next = self.segments.numbers()?.last().is_some_and(|last| next.segment <= *last).then_some(next);
            }
        }
        let mut positions: Vec<_> = found.after(seq).iter().take(limit).copied().collect();
        // The event was in the damage: no intact commit of the session follows.
        positions.extend(found.hole.filter(|_| found.last < seq).map(|hole| (found.last + 1, hole)));
        *scanned = Some(found);
        Ok(positions)
    }

    /// Scans a part of a segment.
    fn scan_on(&self, found: &mut ScannedPositions, from: FramePosition) -> Result<()> {
        let segment = self.segments.get(from.segment)?;
        let until = u64::from(from.offset) + SCANNED_STEP;
        let known = if self.writer.is_some() { self.slots.dirty().end } else { *lock(&self.read_to) };
        let mut offset = u64::from(from.offset);
        while offset < until {
            offset = scan::frames_until(&segment, offset, until, &mut |frame| {
                if let Ok(FrameBody::Commit(_, commit)) = frame.body()
                    && commit.session == found.session
                {
                    let lost = found.hole.take().filter(|_| commit.first > found.last + 1);
                    found.positions.extend(lost.map(|hole| (found.last + 1, hole)));
                    found.positions.push((commit.first, frame.position(from.segment)));
                    found.last = commit.last();
                }
                Ok(())
            })?;
            if offset < until {
                let here = FramePosition::new(from.segment, offset);
                let next = if here < known { scan::resume_after(&segment, offset)? } else { None };
                if !scan::is_sealed(&segment, offset)? {
                    found.hole.get_or_insert(here);
                }
                let Some(next) = next else {
                    found.next = None;
                    return Ok(());
                };
                offset = next;
            }
        }
        found.next = Some(FramePosition::new(from.segment, offset));
        Ok(())
    }

    /// Runs work that looks up contents. A read-only store that misses one finds all contents, then runs it again.
    pub(super) fn finding<T>(
        &self,
        is_missing: impl Fn(&Result<T>) -> bool,
        work: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let done = work();
        if self.writer.is_some() || !is_missing(&done) {
            return done;
        }
        // If another thread is finding them, this one waits for the result.
        let mut until = lock(&self.contents_until);
        if let Some(end) = *until {
            self.find_contents(end)?;
            *until = None;
        }
        drop(until);
        work()
    }

    pub(super) fn find_contents(&self, end: FramePosition) -> Result<()> {
        for number in self.segments.numbers()?.into_iter().filter(|number| *number <= end.segment) {
            journal::walk(&*self.segments.get(number)?, &mut |item| {
                if let journal::Item::Frame(frame) = item
                    && let Ok(FrameBody::Content(digest, _)) = frame.body()
                {
                    self.contents.found(digest, frame.position(number));
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Checks that a stamp matches the journal, which may have grown since. Fails with the reason.
pub(super) fn fits(stamp: &IndexedUpTo, segments: &Segments) -> Result<(), String> {
    let numbers = segments.numbers().map_err(|e| e.to_string())?;
    if !numbers.contains(&stamp.end.segment) {
        return Err("it is ahead of the journal".to_owned());
    }
    let segment = segments.get(stamp.end.segment).map_err(|e| e.to_string())?;
    if segment.head.journal != stamp.journal {
        return Err("it belongs to another journal".to_owned());
    }
    if segment.len().map_err(|e| e.to_string())? < u64::from(stamp.end.offset) {
        return Err("it is ahead of the journal".to_owned());
    }
    if segments.checksum_before(stamp.end).map_err(|e| e.to_string())? != stamp.tail {
        return Err("the journal has another history".to_owned());
    }
    Ok(())
}

/// Fills the slots of a read-only store from the file, if it matches the journal. Returns the end of the known part,
/// and true if the file does not match.
pub(super) fn begin_reading(store: &Path, segments: &Arc<Segments>, slots: &Slots) -> (Option<FramePosition>, bool) {
    let Some(file) = CatalogueFile::read(segments.disk(), store) else { return (None, false) };
    let end = file.stamp.end;
    match fits(&file.stamp, segments).and_then(|()| file.load(slots)) {
        Ok(()) => (Some(end), false),
        Err(reason) => {
            tracing::debug!(reason, "ignoring the catalogue");
            slots.clear();
            (None, true)
        }
    }
}
