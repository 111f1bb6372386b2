//! One run: a store is used, fails, is abandoned midway, and is opened again, as the seed decides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Fault, Lie, SimulatedDisk};
use super::random::Random;
use super::witness::{Ledger, Witness};
use crate::engine::clock::{StepClock, Timestamp};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::registry::Registry;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::{EventStore, LocalStore, LocalStoreOptions, StoreError};

/// Counts of what runs did, to check that they do everything.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) commits: u64,
    pub(super) power_cuts: u64,
    pub(super) kills: u64,
    pub(super) failures: u64,
    pub(super) collections: u64,
    pub(super) packed: u64,
    pub(super) stale_indexes: u64,
    pub(super) rewinds: u64,
    pub(super) merges: u64,
    pub(super) declared: u64,
    pub(super) torn: u64,
}

impl Figures {
    pub(super) fn add(&mut self, other: Self) {
        self.commits += other.commits;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.failures += other.failures;
        self.collections += other.collections;
        self.packed += other.packed;
        self.stale_indexes += other.stale_indexes;
        self.rewinds += other.rewinds;
        self.merges += other.merges;
        self.declared += other.declared;
        self.torn += other.torn;
    }
}

/// Way of leaving a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    Killed,
    PowerCut,
}

/// An open store.
pub(super) struct Live {
    pub(super) witness: Arc<Witness>,
    pub(super) sessions: Sessions,
}

pub(super) type Folds = BTreeMap<(SessionId, Seq), Vec<(&'static str, Digest)>>;

pub(super) struct Run {
    pub(super) random: Random,
    pub(super) directory: PathBuf,
    pub(super) disk: SimulatedDisk,
    pub(super) options: LocalStoreOptions,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) figures: Figures,
    /// States in memory, at acknowledged events.
    pub(super) folds: Folds,
    pub(super) names: u64,
    pub(super) fault: Fault,
    is_told: bool,
    clock: Arc<StepClock>,
    /// An earlier index, which a power cut may bring back.
    stale: Option<PathBuf>,
    pub(super) runtime: tokio::runtime::Runtime,
}

impl Run {
    /// Prints what happens, if a single seed is run.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{}", what());
        }
    }

    pub(super) fn new(seed: u64, lie: Lie, place: &Path) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let directory = place.join("store");
        std::fs::create_dir(&directory).unwrap();
        let options = LocalStoreOptions {
            segment_bytes: *random.pick(&[1 << 11, 1 << 12, 1 << 13, 1 << 15]),
            raw_segments: u32::try_from(random.index(3)).unwrap(),
            ..LocalStoreOptions::default()
        };
        let disk = SimulatedDisk::new(random.next(), &directory);
        disk.lie(lie);
        Self {
            disk,
            directory,
            options,
            ledger: Arc::default(),
            figures: Figures::default(),
            folds: Folds::new(),
            names: 0,
            is_told: std::env::var_os("FOLDSPACE_SEED").is_some(),
            fault: Fault::None,
            clock: Arc::new(StepClock::new(Timestamp(1_000_000), 7)),
            stale: None,
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
            random,
        }
    }

    /// Runs all of it.
    pub(super) fn whole(mut self) -> Result<Figures, String> {
        for _ in 0..2 + self.random.index(3) {
            let live = self.open()?;
            let live = if self.random.once_in(4) { self.collected(live)? } else { live };
            self.plan(60);
            let operations = 3 + self.random.index(25);
            let failed = self.work(&live, operations)?;
            self.figures.failures += u64::from(failed);
            let ending = *self.random.pick(&[Ending::Closed, Ending::Killed, Ending::PowerCut, Ending::PowerCut]);
            self.leave(live, ending)?;
        }
        self.last()?;
        Ok(self.figures)
    }

    /// Plans a fault within so many disk operations, or none.
    pub(super) fn plan(&mut self, within: usize) {
        let at = 1 + self.random.index(within) as u64;
        let times = 1 + self.random.index(6) as u64;
        self.fault = match self.random.index(8) {
            0..3 => Fault::PowerOff(at),
            3 => Fault::Broken(at, times),
            4 => Fault::Full(at, times * 3),
            5 => Fault::Unreadable(at),
            _ => Fault::None,
        };
        self.disk.plan(self.fault);
        self.say(|| format!("plan {:?}", self.fault));
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_fault(&mut self) {
        self.fault = Fault::None;
        self.disk.plan(Fault::None);
    }

    /// Opens the store and checks that nothing promised is missing; the opening may fail and be abandoned, too.
    pub(super) fn open(&mut self) -> Result<Live, String> {
        for tries in 0.. {
            match self.random.once_in(3) && tries < 3 {
                true => self.plan(12),
                false => self.no_fault(),
            }
            let opened = LocalStore::simulated(&self.directory, Arc::new(self.disk.clone()), self.options.clone());
            self.say(|| format!("opened: {:?}", opened.as_ref().map(LocalStore::notes)));
            match opened {
                Ok(store) if !self.disk.is_off() => {
                    self.no_fault();
                    return self.audited(store);
                }
                Ok(store) => store.abandon(),
                Err(error) if self.fault == Fault::None => return Err(format!("the store does not open: {error}")),
                Err(_) => {}
            }
            self.figures.failures += 1;
            let is_cut = self.disk.is_off() || self.random.once_in(2);
            if is_cut {
                self.cut_power();
            }
        }
        unreachable!("the loop ends with its result")
    }

    fn audited(&mut self, store: LocalStore) -> Result<Live, String> {
        self.figures.torn += u64::from(store.notes().iter().any(|note| note.contains("torn end")));
        self.ledger().audit(&store)?;
        let witness = Arc::new(Witness { store, ledger: Arc::clone(&self.ledger) });
        let policy = SnapshotPolicy { every: 0, ..SnapshotPolicy::default() };
        let store: Arc<dyn EventStore> = Arc::clone(&witness) as Arc<dyn EventStore>;
        let sessions = Sessions::new(store, Registry::standard(), self.clock.clone(), policy).unwrap();
        for ((session, seq), digests) in std::mem::take(&mut self.folds) {
            let Ok(session) = sessions.session(session) else { continue };
            let state = session.state_at(seq).map_err(|error| format!("no state at {seq}: {error}"))?;
            if state.digests().map_err(|error| error.to_string())? != digests {
                return Err(format!("session {}: another state at {seq}", session.id()));
            }
        }
        if self.random.once_in(2) {
            let report = sessions.verify(None).map_err(|error| format!("can't verify: {error}"))?;
            if !report.differences.is_empty() {
                return Err(format!("verify: {:?}", report.differences));
            }
        }
        Ok(Live { witness, sessions })
    }

    /// Leaves the store.
    pub(super) fn leave(&mut self, live: Live, ending: Ending) -> Result<(), String> {
        self.say(|| format!("leave: {ending:?}"));
        let Live { witness, sessions } = live;
        sessions.close();
        let store = Arc::into_inner(witness).ok_or("something still has the store")?.store;
        let is_whole = self.fault == Fault::None;
        match ending {
            Ending::Closed => {
                drop(store);
                if is_whole {
                    self.ledger().all_is_acknowledged();
                }
            }
            Ending::Killed | Ending::PowerCut => store.abandon(),
        }
        if ending == Ending::PowerCut || self.disk.is_off() {
            self.cut_power();
        } else {
            self.figures.kills += u64::from(ending == Ending::Killed);
        }
        Ok(())
    }

    /// Cuts the power; the index, which is on a real disk, may then be an earlier one, or gone.
    fn cut_power(&mut self) {
        self.figures.power_cuts += 1;
        self.forget_stale();
        self.disk.cut_power();
        let index = self.directory.join("index");
        let way = self.random.index(3);
        self.say(|| format!("power cut, index {way}"));
        if way > 0 && index.exists() {
            std::fs::remove_dir_all(&index).unwrap();
        }
        if way == 1
            && let Some(stale) = &self.stale
        {
            copy(stale, &index);
            self.figures.stale_indexes += 1;
        }
    }

    fn forget_stale(&mut self) {
        if self.disk.lost_index()
            && let Some(stale) = self.stale.take()
        {
            std::fs::remove_dir_all(stale).unwrap();
        }
    }

    /// Saves the current index for a later power cut.
    pub(super) fn keep_index(&mut self, live: &Live) {
        live.witness.store.maintain_now();
        live.witness.store.flush_index();
        self.disk.lost_index();
        let (index, stale) = (self.directory.join("index"), self.directory.with_file_name("stale"));
        if stale.exists() {
            std::fs::remove_dir_all(&stale).unwrap();
        }
        if index.exists() {
            copy(&index, &stale);
            self.stale = Some(stale);
        } else {
            self.stale = None;
        }
    }

    /// Collects garbage, which may fail or be abandoned; returns the reopened store.
    fn collected(&mut self, live: Live) -> Result<Live, String> {
        self.leave(live, Ending::Closed)?;
        self.plan(40);
        let disk = Arc::new(self.disk.clone());
        let collected = LocalStore::simulated_collect(&self.directory, disk, self.options.clone());
        self.say(|| format!("collected: {collected:?}"));
        match collected {
            Ok(report) => self.figures.collections += u64::from(report.segments > 0),
            Err(error) if self.fault == Fault::None => return Err(format!("can't collect: {error}")),
            Err(_) => self.figures.failures += 1,
        }
        if self.disk.is_off() || self.random.once_in(2) {
            self.cut_power();
        }
        self.open()
    }

    /// Fills a store, and closes it.
    pub(super) fn filled(&mut self) -> Result<(), String> {
        let live = self.open()?;
        self.no_fault();
        self.work(&live, 40)?;
        self.leave(live, Ending::Closed)?;
        let live = self.open()?;
        live.witness.store.maintain_now();
        self.leave(live, Ending::Closed)
    }

    /// Checks that the store is whole at the end, with its index and without.
    fn last(&mut self) -> Result<(), String> {
        for without_index in [false, true] {
            if without_index {
                super::damage::remove_index(&self.directory);
            }
            let live = self.open()?;
            self.figures.packed += live.witness.store.packed_segments();
            self.leave(live, Ending::Closed)?;
            self.check_files()?;
        }
        super::damage::check(self)
    }

    fn check_files(&mut self) -> Result<(), String> {
        let report = self.fsck(&self.disk.clone()).map_err(|error| format!("can't check: {error}"))?;
        if report.problems.is_empty() { Ok(()) } else { Err(format!("fsck: {:?}", report.problems)) }
    }

    pub(super) fn fsck(&self, disk: &SimulatedDisk) -> Result<crate::engine::store::FsckReport, StoreError> {
        LocalStore::simulated_fsck(&self.directory, Arc::new(disk.clone()), false)
    }
}

pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy(&entry, &target) } else { drop(std::fs::copy(&entry, &target)) }
    }
}
