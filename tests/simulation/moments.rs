//! Crashes at every moment of work with few disk operations.

use std::sync::Arc;

use super::disk::{Fault, SimulatedDisk};
use super::run::copy;
use crate::engine::clock::Timestamp;
use crate::engine::commit::Commit;
use crate::engine::id::{Seq, SessionId};
use crate::engine::store::{EventStore, LocalStore, LocalStoreOptions, StoreError};

/// Power cuts for each moment, as they differ in what they lose.
pub(super) const CUTS: u64 = 8;
pub(super) const KEPT: SessionId = SessionId::from_bytes([1; 16]);
pub(super) const REMOVED: SessionId = SessionId::from_bytes([2; 16]);

pub(super) struct Bench {
    pub(super) disk: SimulatedDisk,
    pub(super) place: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(seed: u64) -> Self {
        let place = super::place();
        Self { disk: SimulatedDisk::new(seed, place.path()), place }
    }

    pub(super) fn options() -> LocalStoreOptions {
        LocalStoreOptions { segment_bytes: 1 << 11, raw_segments: 0, ..LocalStoreOptions::default() }
    }

    pub(super) fn open(&self) -> Result<LocalStore, StoreError> {
        LocalStore::simulated(self.place.path(), Arc::new(self.disk.clone()), Self::options())
    }

    /// Does something on a failing disk.
    pub(super) fn disturbed<T>(&self, fault: Fault, work: impl FnOnce() -> T) -> T {
        self.disk.plan(fault);
        let done = work();
        self.disk.plan(Fault::None);
        done
    }

    /// Copies the index, if any.
    pub(super) fn index(&self) -> tempfile::TempDir {
        let (index, kept) = (self.place.path().join("index"), super::place());
        if index.exists() {
            copy(&index, &kept.path().join("index"));
        }
        self.disk.lost_index();
        kept
    }

    /// Cuts the power; every other seed then restores the index, if its removal was not durable.
    pub(super) fn cut_power(&self, seed: u64, index: &tempfile::TempDir) {
        self.disk.cut_power();
        let index = index.path().join("index");
        if !self.disk.lost_index() && seed.is_multiple_of(2) && index.exists() {
            super::damage::remove_index(self.place.path());
            copy(&index, &self.place.path().join("index"));
        }
    }

    /// Drops what is not durable, and the index; returns where the session then ends.
    fn head_after_cut(&self) -> Result<Seq, StoreError> {
        self.disk.cut_power();
        super::damage::remove_index(self.place.path());
        let store = self.open()?;
        let head = store.head(KEPT);
        store.abandon();
        head
    }
}

fn note(session: SessionId) -> Commit {
    let mut commit = Commit::new(session, Timestamp(1));
    commit.push_encoded("test.note", 1, &[7; 300]).unwrap();
    commit
}

pub(super) fn record(store: &LocalStore, session: SessionId) -> Result<Seq, StoreError> {
    Ok(store.submit(note(session))?.wait()?.last)
}

/// Disturbs a store with that many events, reopens it, and uses it until the power is cut.
fn survives_use_after(events: usize, moments: u64, work: fn(LocalStore)) {
    for (at, times, seed) in each(moments) {
        let bench = Bench::new(seed);
        let store = bench.open().unwrap();
        for _ in 0..events {
            record(&store, KEPT).unwrap();
        }
        bench.disturbed(Fault::Broken(at, times), || work(store));
        let store = bench.open().unwrap();
        let head = record(&store, KEPT).unwrap();
        store.abandon();
        let after = bench.head_after_cut();
        assert_eq!(after.map_err(|error| error.to_string()), Ok(head), "{times} failures from {at}, cut {seed}");
    }
}

fn each(moments: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (1..=moments).flat_map(|at| (1..=3).flat_map(move |times| (0..CUTS).map(move |seed| (at, times, seed))))
}

#[test]
fn close_failing_anywhere_leaves_no_hole() {
    survives_use_after(1, 4, drop);
}

#[test]
fn first_commit_failing_anywhere_leaves_no_headless_segment() {
    survives_use_after(0, 8, |store| {
        drop(record(&store, KEPT));
        store.abandon();
    });
}

#[test]
fn group_over_segments_failing_anywhere_leaves_no_damage() {
    survives_use_after(3, 20, |store| {
        for _ in 0..9 {
            drop(store.submit(note(KEPT)));
        }
        drop(store.sync());
        store.abandon();
    });
}

#[test]
fn packing_stopped_anywhere_loses_no_segment() {
    for (at, times, seed) in each(8) {
        let bench = Bench::new(seed);
        let store = bench.open().unwrap();
        let head = (0..6).map(|_| record(&store, KEPT).unwrap()).max().unwrap();
        bench.disturbed(Fault::Broken(at, times), || store.maintain_now());
        store.abandon();
        // The next opening removes leftovers.
        bench.open().unwrap().abandon();
        let after = bench.head_after_cut();
        assert_eq!(after.map_err(|error| error.to_string()), Ok(head), "{times} failures from {at}, cut {seed}");
    }
}

#[test]
fn collection_stopped_anywhere_loses_no_segment() {
    let moments = moments_of_collection(&[REMOVED, KEPT].repeat(5));
    assert!(moments > 20, "all is collected with {moments} operations");
}

/// Leaves the remaining commits where the index has them, and moves the end.
#[test]
fn collection_stopped_anywhere_is_no_loss() {
    let moments = moments_of_collection(&[KEPT, REMOVED, REMOVED]);
    assert!(moments > 5, "all is collected with {moments} operations");
}

fn moments_of_collection(order: &[SessionId]) -> usize {
    (1..).take_while(|at| (0..CUTS).filter(|seed| is_collected(order, *at, *seed)).count() == 0).count()
}

/// Cuts the power in a collection after commits of these sessions; returns true if it had finished.
fn is_collected(order: &[SessionId], at: u64, seed: u64) -> bool {
    let bench = Bench::new(seed);
    let store = bench.open().unwrap();
    order.iter().for_each(|session| assert!(record(&store, *session).is_ok()));
    store.remove(REMOVED).unwrap();
    store.maintain_now();
    assert_eq!(store.packed_segments() > 0, order.len() > 3);
    let head = store.head(KEPT).unwrap();
    drop(store);
    let index = bench.index();
    let collected = bench.disturbed(Fault::PowerOff(at), || {
        LocalStore::simulated_collect(bench.place.path(), Arc::new(bench.disk.clone()), Bench::options())
    });
    bench.cut_power(seed, &index);
    bench.open().unwrap_or_else(|error| panic!("power off from {at}, cut {seed}: {error}")).abandon();
    let after = bench.head_after_cut();
    assert_eq!(after.map_err(|error| error.to_string()), Ok(head), "power off from {at}, cut {seed}");
    collected.is_ok()
}

#[test]
fn open_after_clean_end_writes_nothing() {
    let bench = Bench::new(1);
    let store = bench.open().unwrap();
    record(&store, KEPT).unwrap();
    // The index knows everything but the end that closing will write.
    store.maintain_now();
    drop(store);
    bench.disturbed(Fault::PowerOff(1), || bench.open().unwrap().abandon());
    assert!(!bench.disk.is_off());
}

#[test]
fn open_failing_anywhere_keeps_store_name() {
    for (at, times, seed) in each(4) {
        let bench = Bench::new(seed);
        bench.disturbed(Fault::Broken(at, times), || bench.open().map(LocalStore::abandon)).unwrap_or_default();
        let store = bench.open().unwrap();
        let head = record(&store, KEPT).unwrap();
        store.abandon();
        let after = bench.head_after_cut();
        assert_eq!(after.map_err(|error| error.to_string()), Ok(head), "{times} failures from {at}, cut {seed}");
    }
}

#[test]
fn index_forgets_time_of_cut_commit() {
    for seed in 0..CUTS {
        let bench = Bench::new(seed);
        let store = bench.open().unwrap();
        record(&store, KEPT).unwrap();
        let mut later = Commit::new(KEPT, Timestamp(2));
        later.push_encoded("test.note", 1, b"").unwrap();
        drop(store.submit(later).unwrap());
        store.maintain_now();
        store.flush_index();
        store.abandon();
        bench.disk.cut_power();
        let store = bench.open().unwrap();
        let entry = store.entry(KEPT).unwrap().unwrap();
        assert_eq!((entry.head, entry.updated), (1, Timestamp(1)), "cut {seed}");
        store.abandon();
    }
}

#[test]
fn power_cut_anywhere_is_no_loss() {
    let moments =
        (1..).take_while(|at| (0..CUTS).filter(|seed| is_written_and_cut_off(*at, *seed)).count() > 0).count();
    assert!(moments > 20, "all is written with {moments} operations");
}

/// Cuts the power while segments are filled; returns true if that came before everything was written.
fn is_written_and_cut_off(at: u64, seed: u64) -> bool {
    let bench = Bench::new(seed);
    let store = bench.open().unwrap();
    let head = bench.disturbed(Fault::PowerOff(at), || {
        let head = (0..14).map_while(|_| record(&store, KEPT).ok()).last();
        store.maintain_now();
        head
    });
    store.flush_index();
    store.abandon();
    let is_cut_off = bench.disk.is_off();
    bench.disk.cut_power();
    // With the index, and without.
    for _ in 0..2 {
        let store = bench.open().unwrap_or_else(|error| panic!("power off from {at}, cut {seed}: {error}"));
        assert!(store.head(KEPT).ok() >= head, "power off from {at}, cut {seed}");
        store.abandon();
        super::damage::remove_index(bench.place.path());
    }
    is_cut_off
}
