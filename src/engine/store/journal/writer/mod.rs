//! The journal's writer: frames are staged, then written in groups with one sync each.
//!
//! Frames are encoded straight into a staging buffer, without a commit queue. A waiting caller writes the buffer itself
//! if no other thread is writing: a single caller needs no thread switch, and many callers share a sync. A background
//! thread writes commits that no caller waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use super::frame::{self, FrameKind, Header};
use super::segment::{self, FramePosition, Segment, SegmentHead};
use super::segments::Segments;
use crate::engine::store::pending::{GroupWait, WaiterTurn, WriteProgress};
use crate::engine::store::{Result, StoreError};
use crate::engine::{Clock, Seq, SystemClock, lock};

/// Maximum staged bytes before a caller waits for the write.
const STAGED_MAX: usize = 16 << 20;
const STAGED_SOON: usize = 1 << 20;
/// Maximum duration of a write for a task's thread to do the next one itself. On a slower disk a thread switch is
/// comparatively cheap, and does not block other tasks.
const QUICK_MICROS: u64 = 5_000;

pub(crate) struct Note<T> {
    pub(crate) subject: Arc<T>,
    pub(crate) last: Seq,
}

/// Group and index of a session's latest note.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LatestNotes {
    group: u64,
    at: usize,
}

pub(crate) struct Group<'a, T> {
    bytes: &'a [u8],
    pub(crate) notes: Vec<Note<T>>,
    pub(crate) end: FramePosition,
    pub(crate) number: u64,
}

pub(crate) type DurableListener<T> = Box<dyn Fn(Group<'_, T>) + Send + Sync>;

/// The position of a staged frame, and the number to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedFrame {
    pub(crate) place: FramePosition,
    pub(crate) number: u64,
    /// True if the frame is the first of a segment, which completes the previous segment.
    pub(crate) pressed: bool,
}

/// Appends frames to a journal. `T` is the subject of notes.
pub(crate) struct Writer<T> {
    segments: Arc<Segments>,
    capacity: u64,
    staging: Mutex<Staging<T>>,
    io: Mutex<Io>,
    progress: WriteProgress,
    told: DurableListener<T>,
    in_place: bool,
    clock: SystemClock,
    /// True if the last write took longer than [`QUICK_MICROS`].
    was_slow: AtomicBool,
    wake: (Mutex<Wake>, Condvar),
    /// True once the background thread was notified of work.
    busy: AtomicBool,
}

#[derive(Default)]
struct Wake {
    work: bool,
    /// Write without a pause: much is staged, or a caller waits.
    soon: bool,
    stop: bool,
}

struct Staging<T> {
    bytes: Vec<u8>,
    notes: Vec<Note<T>>,
    /// Offsets in `bytes` where another segment begins, with its number.
    cuts: Vec<(usize, u32)>,
    next: FramePosition,
    group: u64,
    number: u64,
    failed: Option<StoreError>,
}

struct Io {
    segment: Option<Arc<Segment>>,
    end: FramePosition,
    journal: [u8; 16],
    spare: Vec<u8>,
}

impl Io {
    /// Truncates the segment's file at the end of its frames.
    fn cut_off(&self) -> Result<()> {
        self.segment.as_ref().map_or(Ok(()), |segment| segment.truncate(u64::from(self.end.offset), 0))
    }
}

impl<T> Group<'_, T> {
    pub(crate) fn commits(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes;
        let frames = std::iter::from_fn(move || {
            let header = Header::parse_known(rest.first_chunk()?)?;
            let (frame, after) = rest.split_at_checked(header.frame_len())?;
            rest = after;
            Some((header.kind, frame.get(frame::HEADER..frame::HEADER + header.length)?))
        });
        frames.filter_map(|(kind, payload)| kind.commit_in(payload))
    }
}

impl<T: Send + Sync> Writer<T> {
    pub(crate) fn new(
        segments: Arc<Segments>,
        journal: [u8; 16],
        end: FramePosition,
        group: u64,
        capacity: u64,
        in_place: bool,
        told: DurableListener<T>,
    ) -> Self {
        let staging = Staging {
            bytes: Vec::new(),
            notes: Vec::new(),
            cuts: Vec::new(),
            next: end,
            group: group + 1,
            number: 0,
            failed: None,
        };
        let io = Io { segment: None, end, journal, spare: Vec::new() };
        Self {
            segments,
            capacity,
            staging: Mutex::new(staging),
            io: Mutex::new(io),
            progress: WriteProgress::default(),
            told,
            in_place,
            clock: SystemClock::default(),
            was_slow: AtomicBool::new(false),
            wake: Default::default(),
            busy: AtomicBool::new(false),
        }
    }

    pub(crate) fn stage(&self) -> Result<StagingBuffer<'_, T>> {
        let staging = lock(&self.staging);
        match &staging.failed {
            Some(error) => Err(StoreError::Poisoned(error.to_string())),
            None => Ok(StagingBuffer { staging, capacity: self.capacity }),
        }
    }

    /// Makes a thread write, to bound the staged bytes and the time until a commit is written. Call it after staging,
    /// outside of all locks.
    pub(crate) fn relieve(&self, number: u64, staged: usize) -> Result<()> {
        if staged > STAGED_MAX {
            return self.wait(number);
        }
        if staged > STAGED_SOON {
            self.nudge();
        } else if !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Relaxed) {
            lock(&self.wake.0).work = true;
            self.wake.1.notify_one();
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let number = lock(&self.staging).number;
        self.wait(number)
    }

    /// Runs the background thread until [`stop`](Writer::stop): writes staged frames at once if nudged, else `pause`
    /// after the first frame.
    pub(crate) fn run(&self, pause: std::time::Duration) {
        loop {
            let idle = |wake: &mut Wake| !wake.work && !wake.soon && !wake.stop;
            let wake = self.wake.1.wait_while(lock(&self.wake.0), idle).unwrap_or_else(PoisonError::into_inner);
            let calm = |wake: &mut Wake| !wake.soon && !wake.stop;
            let waited = self.wake.1.wait_timeout_while(wake, pause, calm);
            let (mut wake, _) = waited.unwrap_or_else(PoisonError::into_inner);
            (wake.work, wake.soon) = (false, false);
            let stop = wake.stop;
            drop(wake);
            self.busy.store(false, Ordering::Relaxed);
            // `finish` stores an error for the next caller.
            if self.sync().is_err() || stop {
                return;
            }
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.staging).failed.is_some()
    }

    pub(crate) fn staged_number(&self) -> u64 {
        lock(&self.staging).number
    }

    pub(crate) fn stop(&self) {
        lock(&self.wake.0).stop = true;
        self.wake.1.notify_all();
    }

    pub(crate) fn close(&self) -> Result<()> {
        let staging = lock(&self.staging);
        let is_used = staging.number > 0 && staging.failed.is_none();
        drop(staging);
        if is_used {
            // In a separate group: it proves that everything before it was durable.
            self.sync()?;
            self.stage()?.frame(FrameKind::Close, b"", crc32c::crc32c(b""));
            self.sync()?;
        }
        lock(&self.io).cut_off()
    }

    fn write_group(&self) -> Result<u64> {
        let mut io = lock(&self.io);
        let mut staging = lock(&self.staging);
        let spare = std::mem::take(&mut io.spare);
        let bytes = std::mem::replace(&mut staging.bytes, spare);
        let notes = std::mem::take(&mut staging.notes);
        let cuts = std::mem::take(&mut staging.cuts);
        let (end, number, group) = (staging.next, staging.number, staging.group);
        staging.group += 1;
        drop(staging);
        let written = self.write_parts(&mut io, &bytes, &cuts);
        if let Err(error) = written {
            lock(&self.staging).failed = Some(error.clone());
            // So that a commit that was reported as failed does not appear later. If this fails too, recovery decides.
            if let Err(error) = io.cut_off() {
                tracing::warn!(%error, "failed to truncate a failed commit");
            }
            return Err(error);
        }
        io.end = end;
        (self.told)(Group { bytes: &bytes, notes, end, number: group });
        io.spare = bytes;
        io.spare.clear();
        io.spare.shrink_to(4 * STAGED_SOON);
        Ok(number)
    }

    fn write_parts(&self, io: &mut Io, bytes: &[u8], cuts: &[(usize, u32)]) -> Result<()> {
        let mut from = 0;
        for (cut, number) in cuts {
            // A seal proves that another segment follows, so that segment must be durable first.
            let next = self.create_segment(io, *number)?;
            self.write_part(io, &bytes[from..*cut])?;
            if let Some(full) = &io.segment {
                full.truncate(u64::from(io.end.offset), 0)?;
            }
            self.go_on_in(io, next);
            from = *cut;
        }
        self.write_part(io, &bytes[from..])
    }

    fn write_part(&self, io: &mut Io, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if io.segment.is_none() {
            self.resume_segment(io)?;
        }
        let segment = io.segment.clone().ok_or(StoreError::ReadOnly)?;
        segment.write(u64::from(io.end.offset), bytes)?;
        segment.sync()?;
        io.end.offset += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    /// Resumes the journal's last segment. Allocates space only now, so that an owner that only reads does not write.
    fn resume_segment(&self, io: &mut Io) -> Result<()> {
        let is_empty = u64::from(io.end.offset) <= segment::HEADER;
        match self.segments.get(io.end.segment) {
            Ok(segment) => {
                segment.truncate(u64::from(io.end.offset), self.capacity)?;
                if is_empty {
                    // The process that created it may have been killed before its name was durable.
                    segment::sync_directory(self.segments.disk(), self.segments.directory())?;
                }
                io.segment = Some(segment);
            }
            Err(_) if is_empty => {
                let segment = self.create_segment(io, io.end.segment)?;
                self.go_on_in(io, segment);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn create_segment(&self, io: &Io, number: u32) -> Result<Arc<Segment>> {
        let head = SegmentHead { number, journal: io.journal };
        Segment::create(self.segments.disk(), self.segments.directory(), head, self.capacity).map(Arc::new)
    }

    fn go_on_in(&self, io: &mut Io, segment: Arc<Segment>) {
        io.end = FramePosition::first_in(segment.head.number);
        self.segments.add(Arc::clone(&segment));
        io.segment = Some(segment);
    }
}

impl<T: Send + Sync> GroupWait for Writer<T> {
    fn wait(&self, number: u64) -> Result<()> {
        self.take(self.progress.turn(number)?)
    }

    fn write_in_place(&self, number: u64) -> Result<bool> {
        // A runtime's only thread must stay free for other tasks.
        let has_more_threads = || Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
        if !self.in_place || self.was_slow.load(Ordering::Relaxed) || !has_more_threads() {
            return Ok(false);
        }
        match self.progress.try_turn(number)? {
            Some(turn) => self.take(turn).map(|()| true),
            None => Ok(false),
        }
    }

    fn progress(&self) -> &WriteProgress {
        &self.progress
    }

    fn nudge(&self) {
        lock(&self.wake.0).soon = true;
        self.wake.1.notify_one();
    }
}

impl<T: Send + Sync> Writer<T> {
    fn take(&self, turn: WaiterTurn) -> Result<()> {
        if matches!(turn, WaiterTurn::Done) {
            return Ok(());
        }
        let panicked = StoreError::Poisoned("the writer panicked, which is a bug in foldspace".to_owned());
        let mut writing = WriteTurn { progress: &self.progress, outcome: Err(panicked) };
        let begun = self.clock.monotonic_micros();
        writing.outcome = self.write_group();
        let took = self.clock.monotonic_micros().saturating_sub(begun);
        self.was_slow.store(took > QUICK_MICROS, Ordering::Relaxed);
        let outcome = writing.outcome.clone();
        drop(writing);
        outcome.map(drop)
    }
}

/// A turn to write. Dropping it ends the turn, with an error if the write panicked.
struct WriteTurn<'a> {
    progress: &'a WriteProgress,
    outcome: Result<u64>,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.progress.finish(std::mem::replace(&mut self.outcome, Ok(0)));
    }
}

pub(crate) struct StagingBuffer<'a, T> {
    staging: MutexGuard<'a, Staging<T>>,
    capacity: u64,
}

impl<T> StagingBuffer<'_, T> {
    pub(crate) fn frame(&mut self, kind: FrameKind, payload: &[u8], crc: u32) -> StagedFrame {
        let staging = &mut *self.staging;
        let length = frame::frame_len(payload.len()) as u64;
        let full = u64::from(staging.next.offset) + length + frame::HEADER as u64 > self.capacity;
        let pressed = full && u64::from(staging.next.offset) > segment::HEADER;
        if pressed {
            let first = staging.bytes.is_empty();
            frame::put(&mut staging.bytes, FrameKind::Seal, first, staging.group, b"", crc32c::crc32c(b""));
            staging.next = FramePosition::first_in(staging.next.segment + 1);
            staging.cuts.push((staging.bytes.len(), staging.next.segment));
        }
        let place = staging.next;
        let first = staging.bytes.is_empty();
        frame::put(&mut staging.bytes, kind, first, staging.group, payload, crc);
        staging.next.offset += u32::try_from(length).unwrap_or(u32::MAX);
        staging.number += 1;
        StagedFrame { place, number: staging.number, pressed }
    }

    pub(crate) fn commit(
        &mut self,
        subject: &Arc<T>,
        noted: &mut LatestNotes,
        last: Seq,
        (kind, payload, crc): (FrameKind, &[u8], u32),
    ) -> StagedFrame {
        let staged = self.frame(kind, payload, crc);
        let staging = &mut *self.staging;
        match staging.notes.get_mut(noted.at) {
            Some(note) if noted.group == staging.group && Arc::ptr_eq(&note.subject, subject) => note.last = last,
            _ => {
                *noted = LatestNotes { group: staging.group, at: staging.notes.len() };
                staging.notes.push(Note { subject: Arc::clone(subject), last });
            }
        }
        staged
    }

    pub(crate) fn staged(&self) -> usize {
        self.staging.bytes.len()
    }
}

#[cfg(test)]
mod tests;
