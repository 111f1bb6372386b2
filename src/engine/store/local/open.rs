//! Opening a store: the lock, the index, and the part of the journal that the index lacks.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use super::borrowed::BorrowedContents;
use super::catalogue_file::{self, CatalogueFile};
use super::maintain::Maintenance;
use super::proof::{self, JournalEnd};
use super::recover::{Recovered, RecoveryScan};
use super::session_heads::{Dirty, Slots, told};
use super::{LocalInner, LocalStore, LocalStoreOptions};
use crate::engine::bus::Bus;
use crate::engine::store::content::Contents;
use crate::engine::store::index::{self, IndexedUpTo, SledIndex};
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::journal::segment::{self, FIRST};
use crate::engine::store::journal::{FramePosition, Group, Segments, Writer, scan};
use crate::engine::store::lock::StoreLock;
use crate::engine::store::{Result, StoreError};
use crate::engine::{SystemClock, lock};

const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

#[derive(Clone)]
pub(super) struct Opening {
    pub(super) options: LocalStoreOptions,
    pub(super) bus: Arc<Bus>,
    pub(super) disk: Arc<dyn JournalDisk>,
    /// True to write and index in the background; false in tests, which do that themselves.
    pub(super) threads: bool,
}

impl Opening {
    pub(super) fn new(mut options: LocalStoreOptions, bus: Arc<Bus>) -> Self {
        options.segment_bytes = options.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        Self { options, bus, disk: Arc::new(OsDisk), threads: true }
    }
}

impl LocalStore {
    /// Opens or creates the store in `directory`, and recovers from a crash: cuts off a torn, unacknowledged end of the
    /// journal, and updates the index. Fails with [`StoreError::Locked`] if another process owns it, and with
    /// [`StoreError::Damaged`] if acknowledged parts of the journal are damaged.
    pub fn open(directory: impl AsRef<Path>, options: LocalStoreOptions) -> Result<Self> {
        Self::open_on(directory.as_ref(), options, Arc::default())
    }

    pub(in crate::engine::store) fn open_on(
        directory: &Path,
        options: LocalStoreOptions,
        bus: Arc<Bus>,
    ) -> Result<Self> {
        Self::open_with(directory, Opening::new(options, bus))
    }

    pub(super) fn open_with(directory: &Path, opening: Opening) -> Result<Self> {
        OsDisk.create_dir(directory).map_err(StoreError::io("create", directory))?;
        let lock = StoreLock::take(directory)?;
        match proof::noted(&*opening.disk, directory)? {
            Some((_, found)) => Err(StoreError::Lost(Arc::new(found.loss))),
            None => Self::open_locked(directory, opening, lock),
        }
    }

    /// Opens the store with the lock taken, without checking for a recorded loss.
    pub(super) fn open_locked(directory: &Path, opening: Opening, lock: StoreLock) -> Result<Self> {
        let journal = directory.join("journal");
        opening.disk.create_dir(&journal).map_err(StoreError::io("create", &journal))?;
        segment::clear_unfinished(&*opening.disk, &journal)?;
        let mut notes = Vec::new();
        let segments = Arc::new(Segments::on(Arc::clone(&opening.disk), &journal, true));
        let contents = Arc::new(Contents::new(Arc::clone(&segments)));
        let slots = Arc::new(Slots::default());
        let place = directory.join("index");
        let FoundIndex { mut index, mut stamp, mut unfit } = known(directory, &segments, &slots, &mut notes)?;
        let hole = Cell::default();
        let scan = RecoveryScan { segments: &segments, contents: &contents, slots: &slots, hole };
        let recovered = match scan.look(stamp) {
            // An index that contradicts the journal is set aside below, unless it proves a loss.
            Err(StoreError::Index(reason)) => {
                slots.clear();
                (stamp, unfit) = (None, Some(reason));
                scan.look(None)?
            }
            other => other?,
        };
        for number in segments.strays()? {
            let name = segment::raw_path(&journal, number);
            let what = "is not a segment of this journal and is ignored; a repair of the store moves it away";
            notes.push(format!("{} {what}", name.display()));
        }
        let ending = JournalEnd { place: recovered.end, is_followed: recovered.is_followed, is_whole: true };
        if let Some(found) = proof::find(&segments, &ending, index.as_ref().filter(|_| unfit.is_some())) {
            return Err(StoreError::Lost(Arc::new(found.loss)));
        }
        if let Some(reason) = unfit {
            drop(index.take());
            let kept = index::set_aside(&place)?;
            let kept = kept.map_or(String::new(), |kept| format!("; the old index is now {}", kept.display()));
            catalogue_file::remove(&*opening.disk, directory)?;
            notes.push(format!("the index was unusable ({reason}) and was rebuilt from the journal{kept}"));
            // The store works without an index, for example on a full disk.
            let failed = |error: &StoreError| notes.push(format!("running without an index: {error}"));
            index = SledIndex::open(&place).inspect_err(failed).ok();
        }
        recovered.mend(&segments, directory, &mut notes)?;
        if recovered.group == 0 {
            sync_names(&*opening.disk, directory)?;
        }
        if stamp.is_none() && recovered.group > 0 && notes.is_empty() {
            tracing::info!("the index was missing or empty and was rebuilt from the journal");
        }
        Self::begin(directory, opening, lock, (segments, contents, slots), index, recovered, notes)
    }

    fn begin(
        directory: &Path,
        Opening { options, bus, threads, .. }: Opening,
        lock: StoreLock,
        (segments, contents, slots): (Arc<Segments>, Arc<Contents>, Arc<Slots>),
        index: Option<SledIndex>,
        recovered: Recovered,
        notes: Vec<String>,
    ) -> Result<Self> {
        let Recovered { journal, end, next, group, .. } = recovered;
        let full = segments.numbers()?.into_iter().filter(|number| *number < end.segment).collect();
        let sessions = unindexed(&slots);
        {
            let mut dirty = slots.dirty();
            *dirty = Dirty { sessions, end, group, full, removed: std::mem::take(&mut dirty.removed) };
        }
        let heard = (Arc::clone(&slots), Arc::clone(&contents), Arc::clone(&bus));
        let capacity = options.segment_bytes;
        let told = Box::new(move |group: Group<'_, _>| told(&heard.0, &heard.1, &heard.2, &group));
        let writer = Writer::new(Arc::clone(&segments), journal, next, group, capacity, options.write_in_place, told);
        let shared = Arc::new(LocalInner {
            durability: options.durability,
            pack_behind: options.pack.then_some(options.raw_segments),
            journal,
            contents,
            index: RwLock::new(index.map(Arc::new)),
            bus,
            writer: Some(Arc::new(writer)),
            ..LocalInner::reading(directory, segments, slots)
        });
        let maintenance = Some(Maintenance::start(&shared, threads)?);
        notes.iter().for_each(|note| tracing::info!("{note}"));
        Ok(Self { shared, maintenance, is_doubtful: false, notes, lock: Some(lock) })
    }

    /// Opens the store read-only, even while another process owns it. It sees new commits as they arrive, has no
    /// snapshots, and changes nothing. Fails with [`StoreError::Io`] if the store was not found.
    pub fn open_reading(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref();
        let segments = Arc::new(Segments::new(&directory.join("journal"), false));
        segments.numbers()?;
        let slots = Arc::<Slots>::default();
        let (known, is_doubtful) = catalogue_file::begin_reading(directory, &segments, &slots);
        let shared = LocalInner {
            read_to: Mutex::new(known.unwrap_or(FramePosition::first_in(FIRST))),
            contents_until: Mutex::new(known),
            ..LocalInner::reading(directory, segments, slots)
        };
        let shared = Arc::new(shared);
        shared.refresh()?;
        let is_doubtful = is_doubtful
            || proof::noted(shared.segments.disk(), directory)?.is_some()
            || shared.is_cut_off(*lock(&shared.read_to))?;
        Ok(Self { shared, maintenance: None, is_doubtful, notes: Vec::new(), lock: None })
    }
}

impl LocalInner {
    fn reading(directory: &Path, segments: Arc<Segments>, slots: Arc<Slots>) -> Self {
        Self {
            directory: directory.to_owned(),
            durability: super::Durability::Synced,
            pack_behind: None,
            journal: [0; 16],
            contents: Arc::new(Contents::new(Arc::clone(&segments))),
            borrowed: BorrowedContents::of(directory),
            segments,
            index: RwLock::default(),
            slots,
            bus: Arc::default(),
            writer: None,
            read_to: Mutex::default(),
            contents_until: Mutex::default(),
            scanned: Mutex::default(),
            learning: Mutex::default(),
        }
    }

    /// Returns true if `end` follows a seal, which proves that another segment existed.
    fn is_cut_off(&self, end: FramePosition) -> Result<bool> {
        self.segments.get(end.segment).map_or(Ok(false), |segment| scan::is_sealed(&segment, u64::from(end.offset)))
    }

    /// Reads what another process has written since the last call; does nothing in the writing process.
    pub(super) fn refresh(&self) -> Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut read_to = lock(&self.read_to);
        let hole = Cell::default();
        let scan = RecoveryScan { segments: &self.segments, contents: &self.contents, slots: &self.slots, hole };
        let numbers = self.segments.numbers()?;
        let from = read_to.segment;
        for number in numbers.iter().copied().filter(|number| *number >= from) {
            if number > read_to.segment {
                if number > read_to.segment + 1 || !self.is_cut_off(*read_to)? {
                    scan.hole.set(Some(*read_to));
                }
                *read_to = FramePosition::first_in(number);
            }
            // A segment that is being created has no head yet.
            let Ok(segment) = self.segments.get(number) else { break };
            let may_grow = numbers.last() == Some(&number);
            let mut group = 0;
            let mut offset = u64::from(read_to.offset);
            loop {
                scan::frames_so_far(&segment, offset, &mut |frame| {
                    offset = frame.offset + frame.header.frame_len() as u64;
                    scan.take(&segment, &frame, &mut group)
                })?;
                let Some(next) = scan::behind_damage(&segment, offset, may_grow, group)? else { break };
                offset = match scan.pass(&segment, offset, &mut group)? {
                    Some(next) => next,
                    None => {
                        scan.hole.set(Some(FramePosition::new(number, offset)));
                        next
                    }
                };
            }
            *read_to = FramePosition::new(number, offset);
        }
        Ok(())
    }
}

/// Makes the names of the store's directories durable before anything is recorded.
fn sync_names(disk: &dyn JournalDisk, directory: &Path) -> Result<()> {
    segment::sync_directory(disk, directory)?;
    let above = directory.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    // This user may lack permission to open it.
    if let Some(Err(error)) = above.map(|above| disk.sync_dir(above)) {
        tracing::debug!(%error, "failed to sync the parent of the store's directory");
    }
    Ok(())
}

fn unindexed(slots: &Slots) -> Vec<Arc<super::SessionHead>> {
    let is_new = |slot: &Arc<super::SessionHead>| {
        !slot.lock().positions.is_empty() || slot.dirty.load(std::sync::atomic::Ordering::Acquire)
    };
    let sessions: Vec<_> = slots.all().into_iter().filter(is_new).collect();
    for slot in &sessions {
        slot.dirty.store(true, std::sync::atomic::Ordering::Release);
    }
    sessions
}

#[derive(Default)]
struct FoundIndex {
    index: Option<SledIndex>,
    stamp: Option<IndexedUpTo>,
    /// The reason why the index can't be used.
    unfit: Option<String>,
}

fn known(store: &Path, segments: &Segments, slots: &Slots, notes: &mut Vec<String>) -> Result<FoundIndex> {
    let place = &store.join("index");
    if SystemClock::default().is_before_1970() {
        notes.push("running without an index: the machine's clock is before 1970".to_owned());
        return Ok(FoundIndex::default());
    }
    let existed = place.exists();
    let index = match SledIndex::open(place) {
        Ok(index) => index,
        Err(StoreError::Index(reason)) => return Ok(FoundIndex { unfit: Some(reason), ..FoundIndex::default() }),
        Err(other) => return Err(other),
    };
    match load(&index, segments, slots) {
        Ok(stamp) => {
            if let Some(file) = CatalogueFile::read(segments.disk(), store).filter(|file| file.stamp.end <= stamp.end) {
                file.teach(slots);
            }
            Ok(FoundIndex { index: Some(index), stamp: Some(stamp), unfit: None })
        }
        Err(reason) => {
            slots.clear();
            // It was just created, by this opening or by an earlier failed opening.
            let is_new = !existed || index.is_empty();
            Ok(FoundIndex { index: Some(index), stamp: None, unfit: (!is_new).then_some(reason) })
        }
    }
}

fn load(index: &SledIndex, segments: &Segments, slots: &Slots) -> Result<IndexedUpTo, String> {
    let stamp = index.stamp().ok_or("it has no valid stamp")?;
    catalogue_file::fits(&stamp, segments)?;
    slots.load(&index.rows().map_err(|e| e.to_string())?)?;
    Ok(stamp)
}
