//! Opening a store: lock, index, and the part of the journal that the index does not know.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::maintain::Maintenance;
use super::slots::{Dirty, Slots};
use super::{LocalStore, LocalStoreOptions, Shared, told};
use crate::engine::bus::Bus;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::commit::CommitView;
use crate::engine::id::SessionId;
use crate::engine::store::StoreError;
use crate::engine::store::content::{self, Contents};
use crate::engine::store::index::{self, Index, Stamp};
use crate::engine::store::journal::disk::{self, Disk, OsDisk};
use crate::engine::store::journal::frame::{self, Kind};
use crate::engine::store::journal::scan::{self, End, Frame};
use crate::engine::store::journal::segment::{self, FIRST, Segment, SegmentHead};
use crate::engine::store::journal::{Place, Segments, Writer};
use crate::engine::store::lock::StoreLock;

const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// What a store is opened with.
#[derive(Clone)]
pub(super) struct Opening {
    pub(super) options: LocalStoreOptions,
    pub(super) bus: Arc<Bus>,
    pub(super) disk: Arc<dyn Disk>,
    /// Whether threads write and index in the background; without them a test decides when that happens.
    pub(super) threads: bool,
}

impl Opening {
    /// On the machine's disk, with options within their limits.
    pub(super) fn new(mut options: LocalStoreOptions, bus: Arc<Bus>) -> Self {
        options.segment_bytes = options.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        Self { options, bus, disk: Arc::new(OsDisk), threads: true }
    }
}

/// What recovery found out.
struct Recovered {
    journal: [u8; 16],
    end: Place,
    /// Where the next frame goes: right there, unless the last segment is packed.
    next: Place,
    group: u64,
}

impl LocalStore {
    /// Opens the store in `directory`, making it where there is none, and repairs what a crash left:
    /// a torn end of the journal, which was never acknowledged, and an index that is behind.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it, [`StoreError::Damaged`] when the journal
    /// is damaged where nothing may be lost, and others.
    pub fn open(directory: impl AsRef<Path>, options: LocalStoreOptions) -> Result<Self, StoreError> {
        Self::open_on(directory.as_ref(), options, Arc::default())
    }

    /// The same with a bus that has subscribers already.
    pub(in crate::engine::store) fn open_on(
        directory: &Path,
        options: LocalStoreOptions,
        bus: Arc<Bus>,
    ) -> Result<Self, StoreError> {
        Self::open_with(directory, Opening::new(options, bus))
    }

    pub(super) fn open_with(directory: &Path, opening: Opening) -> Result<Self, StoreError> {
        let journal = directory.join("journal");
        create_private(directory)?;
        let lock = StoreLock::take(directory)?;
        opening.disk.create_dir(&journal).map_err(StoreError::io("create", &journal))?;
        segment::clear_unfinished(&*opening.disk, &journal)?;
        let mut notes = Vec::new();
        let segments = Arc::new(Segments::on(Arc::clone(&opening.disk), &journal, true));
        let contents = Arc::new(Contents::new(Arc::clone(&segments)));
        let slots = Arc::new(Slots::default());
        let place = directory.join("index");
        let (index, stamp) = open_index(&place, &segments, &slots, &mut notes)?;
        let scan = Scan { segments: &segments, contents: &contents, slots: &slots };
        let recovered = match scan.recover(stamp, Some(directory), &mut notes) {
            // An index that contradicts the journal is as good as none.
            Err(StoreError::Index(reason)) => {
                drop(index);
                return Self::without_index(directory, opening, &reason, lock, notes);
            }
            other => other?,
        };
        if stamp.is_none() && recovered.group > 0 && notes.is_empty() {
            notes.push("the index was missing or empty and was made from the journal".to_owned());
        }
        Self::begin(directory, opening, lock, (segments, contents, slots), index, recovered, notes)
    }

    fn without_index(
        directory: &Path,
        opening: Opening,
        reason: &str,
        lock: StoreLock,
        mut notes: Vec<String>,
    ) -> Result<Self, StoreError> {
        let place = directory.join("index");
        note_set_aside(&place, reason, &mut notes)?;
        let segments = Arc::new(Segments::on(Arc::clone(&opening.disk), &directory.join("journal"), true));
        let contents = Arc::new(Contents::new(Arc::clone(&segments)));
        let slots = Arc::new(Slots::default());
        let index = another(&place, &mut notes);
        let scan = Scan { segments: &segments, contents: &contents, slots: &slots };
        let recovered = scan.recover(None, Some(directory), &mut notes)?;
        Self::begin(directory, opening, lock, (segments, contents, slots), index, recovered, notes)
    }

    fn begin(
        directory: &Path,
        Opening { options, bus, threads, .. }: Opening,
        lock: StoreLock,
        (segments, contents, slots): (Arc<Segments>, Arc<Contents>, Arc<Slots>),
        index: Option<Index>,
        recovered: Recovered,
        notes: Vec<String>,
    ) -> Result<Self, StoreError> {
        let Recovered { journal, end, next, group } = recovered;
        let full = segments.numbers()?.into_iter().filter(|number| *number < end.segment).collect();
        let sessions = unindexed(&slots);
        {
            let mut dirty = slots.dirty();
            *dirty = Dirty { sessions, end, group, full, removed: std::mem::take(&mut dirty.removed) };
        }
        let heard = (Arc::clone(&slots), Arc::clone(&contents), Arc::clone(&bus));
        let capacity = options.segment_bytes;
        let told = Box::new(move |group: super::Group<'_, _>| told(&heard.0, &heard.1, &heard.2, &group));
        let writer = Writer::new(Arc::clone(&segments), journal, next, group, capacity, options.write_in_place, told);
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            durability: options.durability,
            pack_behind: options.pack.then_some(options.raw_segments),
            journal,
            segments,
            contents,
            index: RwLock::new(index.map(Arc::new)),
            slots,
            bus,
            writer: Some(Arc::new(writer)),
            read_to: Mutex::default(),
            learning: Mutex::default(),
        });
        let maintenance = Some(Maintenance::start(&shared, threads)?);
        notes.iter().for_each(|note| tracing::info!("{note}"));
        Ok(Self { shared, maintenance, notes, _lock: Some(lock) })
    }

    /// Opens the store for reading only, beside the process that holds it. It sees what that process
    /// writes as it comes, has no snapshots, and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`] when there is no store, and others.
    pub fn open_reading(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        let directory = directory.as_ref();
        let segments = Arc::new(Segments::new(&directory.join("journal"), false));
        segments.numbers()?;
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            durability: super::Durability::Synced,
            pack_behind: None,
            journal: [0; 16],
            contents: Arc::new(Contents::new(Arc::clone(&segments))),
            segments,
            index: RwLock::new(None),
            slots: Arc::default(),
            bus: Arc::default(),
            writer: None,
            read_to: Mutex::new(Place { segment: FIRST, offset: header() }),
            learning: Mutex::default(),
        });
        shared.refresh()?;
        Ok(Self { shared, maintenance: None, notes: Vec::new(), _lock: None })
    }
}

impl Shared {
    /// Reads what another process has written since the last look; nothing when this one writes.
    pub(super) fn refresh(&self) -> Result<(), StoreError> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut read_to = self.read_to.lock().unwrap_or_else(PoisonError::into_inner);
        let scan = Scan { segments: &self.segments, contents: &self.contents, slots: &self.slots };
        for number in self.segments.numbers()? {
            if number < read_to.segment {
                continue;
            }
            if number > read_to.segment {
                *read_to = Place { segment: number, offset: header() };
            }
            // A segment that is being created has no head yet.
            let Ok(segment) = self.segments.get(number) else { break };
            let mut group = 0;
            let mut offset = u64::from(read_to.offset);
            scan::frames_so_far(&segment, u64::from(read_to.offset), &mut |frame| {
                offset = frame.offset + frame.header.frame_len() as u64;
                scan.take(&segment, &frame, &mut group)
            })?;
            read_to.offset = u32::try_from(offset).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

fn header() -> u32 {
    u32::try_from(segment::HEADER).unwrap_or(u32::MAX)
}

/// Makes a directory that only its owner may enter.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
fn create_private(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(StoreError::io("create", directory))
}

fn unindexed(slots: &Slots) -> Vec<Arc<super::Slot>> {
    let is_new = |slot: &Arc<super::Slot>| {
        !slot.lock().positions.is_empty() || slot.dirty.load(std::sync::atomic::Ordering::Acquire)
    };
    let sessions: Vec<_> = slots.all().into_iter().filter(is_new).collect();
    for slot in &sessions {
        slot.dirty.store(true, std::sync::atomic::Ordering::Release);
    }
    sessions
}

/// Opens the index and loads the catalogue; one that can't be used is set aside.
fn open_index(
    place: &Path,
    segments: &Segments,
    slots: &Slots,
    notes: &mut Vec<String>,
) -> Result<(Option<Index>, Option<Stamp>), StoreError> {
    let existed = place.exists();
    let reason = match Index::open(place) {
        Ok(index) => match load(&index, segments, slots) {
            Ok(stamp) => return Ok((Some(index), Some(stamp))),
            // It has just been made, now or by an opening that failed later.
            Err(_) if !existed || index.is_empty() => return Ok((Some(index), None)),
            Err(reason) => reason,
        },
        Err(StoreError::Index(reason)) => reason,
        Err(other) => return Err(other),
    };
    slots.clear();
    note_set_aside(place, &reason, notes)?;
    Ok((another(place, notes), None))
}

/// A new index; none where none can be made, on a full disk for one: the store does without.
fn another(place: &Path, notes: &mut Vec<String>) -> Option<Index> {
    Index::open(place).inspect_err(|error| notes.push(format!("there is no index this time: {error}"))).ok()
}

fn note_set_aside(place: &Path, reason: &str, notes: &mut Vec<String>) -> Result<(), StoreError> {
    let aside = index::set_aside(place)?;
    let kept = aside.map_or(String::new(), |aside| format!("; the old one is kept as {}", aside.display()));
    notes.push(format!("the index could not be used ({reason}) and was made again from the journal{kept}"));
    Ok(())
}

fn load(index: &Index, segments: &Segments, slots: &Slots) -> Result<Stamp, String> {
    let stamp = index.stamp().ok_or("it does not say how far it goes")?;
    let numbers = segments.numbers().map_err(|e| e.to_string())?;
    if !numbers.contains(&stamp.end.segment) {
        return Err("it goes further than the journal".to_owned());
    }
    let segment = segments.get(stamp.end.segment).map_err(|e| e.to_string())?;
    if segment.head.journal != stamp.journal {
        return Err("it belongs to another journal".to_owned());
    }
    if segment.len().map_err(|e| e.to_string())? < u64::from(stamp.end.offset) {
        return Err("it goes further than the journal".to_owned());
    }
    if segments.checksum_before(stamp.end).map_err(|e| e.to_string())? != stamp.tail {
        return Err("the journal is not the one that it knows".to_owned());
    }
    slots.load(&index.rows().map_err(|e| e.to_string())?)?;
    Ok(stamp)
}

/// A scan of the journal that takes up what it finds.
struct Scan<'a> {
    segments: &'a Segments,
    contents: &'a Contents,
    slots: &'a Slots,
}

impl Scan<'_> {
    /// Reads the journal from the stamp on; with `repair` a torn end is moved to that directory.
    fn recover(
        &self,
        stamp: Option<Stamp>,
        repair: Option<&Path>,
        notes: &mut Vec<String>,
    ) -> Result<Recovered, StoreError> {
        let mut numbers = self.segments.numbers()?;
        self.drop_unbegun(&mut numbers, notes)?;
        let Some(last) = numbers.last().copied() else {
            let journal = SystemClock::default().fresh_id();
            let end = Place { segment: FIRST, offset: header() };
            return Ok(Recovered { journal, end, next: end, group: 0 });
        };
        check_numbers(&numbers, self.segments)?;
        let start = stamp.map_or(Place { segment: numbers[0], offset: header() }, |stamp| stamp.end);
        let mut recovered = Recovered {
            journal: self.segments.get(last)?.head.journal,
            end: start,
            next: start,
            group: stamp.map_or(0, |stamp| stamp.group),
        };
        for number in numbers.into_iter().filter(|number| *number >= start.segment) {
            let segment = self.segments.get(number)?;
            if segment.head.journal != recovered.journal {
                let what = "belongs to another journal than the other segments".to_owned();
                return Err(StoreError::Format { path: segment.path.clone(), what });
            }
            let from = if number == start.segment { start.offset } else { header() };
            let mut clean = from == start.offset && number == start.segment;
            let end = scan::frames(&segment, u64::from(from), &mut |frame| {
                clean = frame.header.kind == Kind::Close;
                self.take(&segment, &frame, &mut recovered.group)
            })?;
            let end = match end {
                End::Clean(end) if number != last && !scan::is_sealed(&segment, end)? => {
                    let what = "the rest of the segment is missing".to_owned();
                    return Err(StoreError::Damaged { segment: number, offset: end, what });
                }
                End::Clean(end) => end,
                End::Bad(at, what) => {
                    clean = false;
                    self.torn(&segment, at, what, number == last, recovered.group, repair, notes)?
                }
            };
            if number == last && !clean && !segment.is_packed() {
                // What was found may never have been synced; from now on it counts as recorded.
                segment.sync()?;
            }
            recovered.end = Place { segment: number, offset: u32::try_from(end).unwrap_or(u32::MAX) };
            let packed = segment.is_packed();
            recovered.next = if packed { Place { segment: number + 1, offset: header() } } else { recovered.end };
        }
        Ok(recovered)
    }

    /// Removes a last segment whose creation was cut off: it has no head, so nothing was ever in it.
    fn drop_unbegun(&self, numbers: &mut Vec<u32>, notes: &mut Vec<String>) -> Result<(), StoreError> {
        let Some(last) = numbers.last().copied() else { return Ok(()) };
        let disk = self.segments.disk();
        let path = segment::raw_path(self.segments.directory(), last);
        if self.segments.get(last).is_ok() || !disk.exists(&path) {
            return Ok(());
        }
        let bytes = disk::read_whole(disk, &path).map_err(StoreError::io("read", &path))?;
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut journal = [0; 16];
        bytes.iter().skip(16).zip(&mut journal).for_each(|(byte, place)| *place = *byte);
        if (SegmentHead { number: last, journal }).encode().starts_with(&bytes[..written]) {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
            notes.push(format!("segment {last} had been begun and not written; it was removed"));
            numbers.pop();
        }
        Ok(())
    }

    /// Takes up one frame.
    fn take(&self, segment: &Segment, frame: &Frame<'_>, group: &mut u64) -> Result<(), StoreError> {
        *group = frame.header.group;
        let number = segment.head.number;
        let place = Place { segment: number, offset: u32::try_from(frame.offset).unwrap_or(u32::MAX) };
        let damaged = |what: &str| StoreError::Damaged { segment: number, offset: frame.offset, what: what.to_owned() };
        match frame.header.kind {
            Kind::Commit => {
                let commit = CommitView::parse(frame.payload).map_err(|_| damaged("it is no commit"))?;
                if !self.slots.get_or_add(commit.session).found(&commit, place) {
                    return Err(damaged("the commit does not follow the session's last one"));
                }
            }
            Kind::Fork => {
                let point = frame::fork_point(frame.payload).ok_or_else(|| damaged("it is no fork"))?;
                let commit = CommitView::parse(Kind::Fork.commit_in(frame.payload).unwrap_or_default());
                let commit = commit.map_err(|_| damaged("it is no fork"))?;
                if !self.slots.found_fork(point, &commit, place) {
                    return Err(damaged("the fork does not follow its parent's history"));
                }
            }
            Kind::Content | Kind::Manifest => {
                let head = content::head_of(frame.header.kind, frame.payload);
                self.contents.found(head.ok_or_else(|| damaged("it is no content"))?.digest, place);
            }
            Kind::Removal => {
                let session = frame.payload.first_chunk().ok_or_else(|| damaged("it is no removal"))?;
                self.slots.found_removal(SessionId::from_bytes(*session), place);
            }
            Kind::Close | Kind::Seal => {}
        }
        Ok(())
    }

    /// Decides about bytes that are no frame: a torn end is cut, anything else is an error.
    #[expect(clippy::too_many_arguments, reason = "the facts of one decision")]
    fn torn(
        &self,
        segment: &Segment,
        at: u64,
        what: &str,
        last: bool,
        group: u64,
        repair: Option<&Path>,
        notes: &mut Vec<String>,
    ) -> Result<u64, StoreError> {
        let growing = last && !segment.is_packed();
        let durable = if growing { scan::durable_after(segment, at, group)? } else { Some(at) };
        if durable.is_some() {
            let number = segment.head.number;
            return Err(StoreError::Damaged { segment: number, offset: at, what: what.to_owned() });
        }
        if let Some(directory) = repair {
            let cut = scan::save_tail(self.segments.disk(), segment, at, directory)?;
            segment.truncate(at, 0)?;
            notes.push(format!(
                "segment {} had a torn end: {} bytes from byte {at} on, never acknowledged, were moved to {}",
                segment.head.number,
                cut.bytes,
                cut.path.display()
            ));
        }
        Ok(at)
    }
}

fn check_numbers(numbers: &[u32], segments: &Segments) -> Result<(), StoreError> {
    let missing = numbers.iter().zip(FIRST..).find(|(number, expected)| *number != expected);
    match missing {
        None => Ok(()),
        Some((_, expected)) => {
            let path = segment::raw_path(segments.directory(), expected);
            Err(StoreError::Format { path, what: "this segment of the journal is missing".to_owned() })
        }
    }
}
