//! The only way into a journal: frames are staged, and written in groups with one sync each.
//!
//! There is no queue of commits. Frames are encoded straight into a staging buffer, and whoever waits
//! for a commit while nobody writes takes the buffer and writes it: with one caller that costs no
//! change of threads, with many they share a sync. A background thread does the same for commits that
//! nobody waits for.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use super::frame::{self, FrameKind, Header};
use super::segment::{self, FramePosition, Segment, SegmentHead};
use super::segments::Segments;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::id::Seq;
use crate::engine::store::StoreError;
use crate::engine::store::pending::{WaiterTurn, WriteProgress};

/// Staged bytes above which a caller must help to write.
const STAGED_MAX: usize = 16 << 20;
/// Staged bytes above which the background thread is woken early.
const STAGED_SOON: usize = 1 << 20;
/// How long a task's thread may be away to write. On a disk that takes longer a change of threads hardly counts, and what
/// else that thread has to do would wait.
const QUICK_MICROS: u64 = 5_000;
/// How many quick writes show that the disk is quick again.
const STEADY: u32 = 32;

/// A session with commits in a group.
pub(crate) struct Note<T> {
    pub(crate) subject: Arc<T>,
    /// The last event of its last commit in the group.
    pub(crate) last: Seq,
}

/// Which note of which group is a session's latest.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LatestNotes {
    group: u64,
    at: usize,
}

/// What became durable together.
pub(crate) struct Group<'a, T> {
    bytes: &'a [u8],
    /// One for each session.
    pub(crate) notes: Vec<Note<T>>,
    /// The journal's end after it.
    pub(crate) end: FramePosition,
    pub(crate) number: u64,
}

/// Hears of every group when it is durable.
pub(crate) type DurableListener<T> = Box<dyn Fn(Group<'_, T>) + Send + Sync>;

/// Where a staged frame will be, and the number by which to wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedFrame {
    pub(crate) place: FramePosition,
    pub(crate) number: u64,
    /// Whether the frame is the first of a segment: the one before is complete.
    pub(crate) pressed: bool,
}

/// Appends frames to a journal. `T` is what notes are about.
pub(crate) struct Writer<T> {
    segments: Arc<Segments>,
    capacity: u64,
    staging: Mutex<Staging<T>>,
    io: Mutex<Io>,
    progress: Arc<WriteProgress>,
    told: DurableListener<T>,
    /// Whether a task that waits for its commit may write it on its own thread.
    in_place: bool,
    clock: SystemClock,
    /// How many quick writes are to come before a task's thread may write again.
    unsteady: AtomicU32,
    wake: (Mutex<Wake>, Condvar),
    /// Whether the background thread has been told that there is work.
    busy: AtomicBool,
}

#[derive(Default)]
struct Wake {
    /// Something was staged since the last background write.
    work: bool,
    /// Much was staged, or somebody waits: no pause.
    soon: bool,
    stop: bool,
}

struct Staging<T> {
    bytes: Vec<u8>,
    notes: Vec<Note<T>>,
    /// Where in `bytes` another segment begins, and its number.
    cuts: Vec<(usize, u32)>,
    /// Where the next frame goes.
    next: FramePosition,
    group: u64,
    number: u64,
    failed: Option<StoreError>,
    /// Whether anything was staged since the journal was opened.
    used: bool,
}

struct Io {
    segment: Option<Arc<Segment>>,
    /// Where the durable part of the journal ends.
    end: FramePosition,
    /// Identity of the journal.
    journal: [u8; 16],
    spare: Vec<u8>,
}

impl<T> Group<'_, T> {
    /// The payloads of its commits, in order.
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
    /// Begins after `end`, in the journal of that identity, with groups after `group`.
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
            used: false,
        };
        let io = Io { segment: None, end, journal, spare: Vec::new() };
        Self {
            segments,
            capacity,
            staging: Mutex::new(staging),
            io: Mutex::new(io),
            progress: Arc::default(),
            told,
            in_place,
            clock: SystemClock::default(),
            unsteady: AtomicU32::new(0),
            wake: Default::default(),
            busy: AtomicBool::new(false),
        }
    }

    /// Locks the staging buffer, to stage frames that must stand together and in order.
    pub(crate) fn stage(&self) -> Result<StagingBuffer<'_, T>, StoreError> {
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        match &staging.failed {
            Some(error) => Err(StoreError::Poisoned(error.to_string())),
            None => Ok(StagingBuffer { staging, capacity: self.capacity }),
        }
    }

    /// Called after staging, outside of all locks: sees to it that somebody writes, which bounds both
    /// memory and how long a commit that nobody waits for stays in it.
    pub(crate) fn relieve(&self, number: u64, staged: usize) -> Result<(), StoreError> {
        if staged > STAGED_MAX {
            return self.wait(number);
        }
        if staged > STAGED_SOON {
            self.nudge();
        } else if !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Relaxed) {
            self.lock_wake().work = true;
            self.wake.1.notify_one();
        }
        Ok(())
    }

    /// Makes everything durable that is staged now.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let number = self.lock_staging().number;
        self.wait(number)
    }

    /// The work of the background thread: writes what is staged, at once when asked to and `pause`
    /// after the first frame otherwise, until [`stop`](Writer::stop).
    pub(crate) fn run(&self, pause: std::time::Duration) {
        loop {
            let idle = |wake: &mut Wake| !wake.work && !wake.soon && !wake.stop;
            let wake = self.wake.1.wait_while(self.lock_wake(), idle).unwrap_or_else(PoisonError::into_inner);
            let calm = |wake: &mut Wake| !wake.soon && !wake.stop;
            let waited = self.wake.1.wait_timeout_while(wake, pause, calm);
            let (mut wake, _) = waited.unwrap_or_else(PoisonError::into_inner);
            (wake.work, wake.soon) = (false, false);
            let stop = wake.stop;
            drop(wake);
            self.busy.store(false, Ordering::Relaxed);
            // A failure is kept by `finish`, and told to the next caller.
            if self.sync().is_err() || stop {
                return;
            }
        }
    }

    /// The number of the last frame that was staged.
    pub(crate) fn staged_number(&self) -> u64 {
        self.lock_staging().number
    }

    /// Ends [`run`](Writer::run).
    pub(crate) fn stop(&self) {
        self.lock_wake().stop = true;
        self.wake.1.notify_all();
    }

    /// Writes what is staged and a closing frame, and gives back the space set aside.
    pub(crate) fn close(&self) -> Result<FramePosition, StoreError> {
        let mut staging = self.lock_staging();
        if staging.used && staging.failed.is_none() {
            let crc = crc32c::crc32c(b"");
            // A group of its own: it proves that everything before it was durable.
            if !staging.bytes.is_empty() {
                drop(staging);
                self.sync()?;
                staging = self.lock_staging();
            }
            StagingBuffer { staging, capacity: self.capacity }.frame(FrameKind::Close, b"", crc);
            self.sync()?;
        } else {
            drop(staging);
        }
        let io = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = &io.segment {
            segment.truncate(u64::from(io.end.offset), 0)?;
        }
        Ok(io.end)
    }

    fn lock_wake(&self) -> MutexGuard<'_, Wake> {
        self.wake.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_staging(&self) -> MutexGuard<'_, Staging<T>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one group; the caller has the turn.
    fn write_group(&self) -> Result<u64, StoreError> {
        let mut io = self.io.lock().unwrap_or_else(PoisonError::into_inner);
        let mut staging = self.lock_staging();
        let spare = std::mem::take(&mut io.spare);
        let bytes = std::mem::replace(&mut staging.bytes, spare);
        let notes = std::mem::take(&mut staging.notes);
        let cuts = std::mem::take(&mut staging.cuts);
        let (end, number, group) = (staging.next, staging.number, staging.group);
        staging.group += 1;
        drop(staging);
        let written = self.write_parts(&mut io, &bytes, &cuts);
        if let Err(error) = written {
            self.lock_staging().failed = Some(error.clone());
            io.retract();
            return Err(error);
        }
        io.end = end;
        (self.told)(Group { bytes: &bytes, notes, end, number: group });
        io.spare = bytes;
        io.spare.clear();
        io.spare.shrink_to(4 * STAGED_SOON);
        Ok(number)
    }

    fn write_parts(&self, io: &mut Io, bytes: &[u8], cuts: &[(usize, u32)]) -> Result<(), StoreError> {
        let mut from = 0;
        for (cut, number) in cuts {
            // A seal proves that another segment followed: that one is durable before the seal is written.
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

    fn write_part(&self, io: &mut Io, bytes: &[u8]) -> Result<(), StoreError> {
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

    /// Takes up the segment in which the journal ends; space is set aside only now, so that those
    /// who only read leave the disk alone.
    fn resume_segment(&self, io: &mut Io) -> Result<(), StoreError> {
        let is_empty = u64::from(io.end.offset) <= segment::HEADER;
        match self.segments.get(io.end.segment) {
            Ok(segment) => {
                segment.truncate(u64::from(io.end.offset), self.capacity)?;
                if is_empty {
                    // Whoever created it may have been killed before its name was durable.
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

    fn create_segment(&self, io: &Io, number: u32) -> Result<Arc<Segment>, StoreError> {
        let head = SegmentHead { number, journal: io.journal };
        Segment::create(self.segments.disk(), self.segments.directory(), head, self.capacity).map(Arc::new)
    }

    fn go_on_in(&self, io: &mut Io, segment: Arc<Segment>) {
        io.end = FramePosition { segment: segment.head.number, offset: segment::header() };
        self.segments.add(Arc::clone(&segment));
        io.segment = Some(segment);
    }
}

impl Io {
    /// After a failed write: takes back what may have been written in part, so that nothing shows
    /// later that the caller was told had failed. It may fail too; then recovery decides.
    fn retract(&self) {
        if let Some(segment) = &self.segment {
            let taken_back = segment.truncate(u64::from(self.end.offset), 0);
            if let Err(error) = taken_back {
                tracing::warn!(%error, "what was written of a failed commit could not be taken back");
            }
        }
    }
}

impl<T: Send + Sync> Writer<T> {
    /// Returns when the commit of that number is durable; writes it where nobody else does.
    pub(crate) fn wait(&self, number: u64) -> Result<(), StoreError> {
        self.take(self.progress.turn(number)?)
    }

    /// Writes the commit of that number for a task that waits for it, where that may be and nobody else writes; whether
    /// it is durable.
    pub(crate) fn write_in_place(&self, number: u64) -> Result<bool, StoreError> {
        // The only thread of a runtime has others to serve meanwhile.
        let has_more_threads = || Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
        if !self.in_place || self.unsteady.load(Ordering::Relaxed) > 0 || !has_more_threads() {
            return Ok(false);
        }
        match self.progress.try_turn(number)? {
            Some(turn) => self.take(turn).map(|()| true),
            None => Ok(false),
        }
    }

    fn take(&self, turn: WaiterTurn) -> Result<(), StoreError> {
        match turn {
            WaiterTurn::Done => Ok(()),
            WaiterTurn::Write => {
                let mut writing = WriteTurn { progress: &self.progress, outcome: Err(panicked()) };
                let begun = self.clock.monotonic_micros();
                writing.outcome = self.write_group();
                let is_quick = self.clock.monotonic_micros().saturating_sub(begun) <= QUICK_MICROS;
                let before = self.unsteady.load(Ordering::Relaxed);
                self.unsteady.store(if is_quick { before.saturating_sub(1) } else { STEADY }, Ordering::Relaxed);
                let outcome = writing.outcome.clone();
                drop(writing);
                outcome.map(drop)
            }
        }
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> Arc<WriteProgress> {
        Arc::clone(&self.progress)
    }

    /// Asks that somebody write soon.
    pub(crate) fn nudge(&self) {
        self.lock_wake().soon = true;
        self.wake.1.notify_one();
    }
}

/// A turn to write, which ends with this: with an error where the writing panicked, so that nobody waits for ever.
struct WriteTurn<'a> {
    progress: &'a WriteProgress,
    outcome: Result<u64, StoreError>,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.progress.finish(std::mem::replace(&mut self.outcome, Ok(0)));
    }
}

fn panicked() -> StoreError {
    StoreError::Poisoned("the writing panicked, which is a fault of foldspace".to_owned())
}

/// The staging buffer, locked.
pub(crate) struct StagingBuffer<'a, T> {
    staging: MutexGuard<'a, Staging<T>>,
    capacity: u64,
}

impl<T> StagingBuffer<'_, T> {
    /// Stages a frame that nobody is told about.
    pub(crate) fn frame(&mut self, kind: FrameKind, payload: &[u8], crc: u32) -> StagedFrame {
        let staging = &mut *self.staging;
        let length = frame::frame_len(payload.len()) as u64;
        let full = u64::from(staging.next.offset) + length + frame::HEADER as u64 > self.capacity;
        let pressed = full && u64::from(staging.next.offset) > segment::HEADER;
        if pressed {
            let first = staging.bytes.is_empty();
            frame::put(&mut staging.bytes, FrameKind::Seal, first, staging.group, b"", crc32c::crc32c(b""));
            staging.next = FramePosition { segment: staging.next.segment + 1, offset: segment::header() };
            staging.cuts.push((staging.bytes.len(), staging.next.segment));
        }
        let place = staging.next;
        let first = staging.bytes.is_empty();
        frame::put(&mut staging.bytes, kind, first, staging.group, payload, crc);
        staging.next.offset += u32::try_from(length).unwrap_or(u32::MAX);
        staging.number += 1;
        staging.used = true;
        StagedFrame { place, number: staging.number, pressed }
    }

    /// Stages a frame with a commit up to the event `last` of `subject`, which is noted for when it is durable.
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

    /// How many bytes are staged.
    pub(crate) fn staged(&self) -> usize {
        self.staging.bytes.len()
    }
}

#[cfg(test)]
mod tests;
