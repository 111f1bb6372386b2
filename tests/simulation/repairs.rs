//! Power cuts at every moment of a repair: no bytes that were set aside are lost, and no loss is forgotten.

use std::path::PathBuf;
use std::sync::Arc;

use super::damage::remove_index;
use super::disk::Fault;
use super::moments::{Bench, CUTS, KEPT, REMOVED, record};
use crate::engine::event::{Event, EventsLost};
use crate::engine::id::SessionId;
use crate::engine::store::{FsckReport, LocalStore, Loss, StoreError};

/// Bytes that occur nowhere else.
const MARK: [u8; 24] = *b"bytes that must be kept!";
/// A session that is lost completely.
const GONE: SessionId = SessionId::from_bytes([3; 16]);

impl Bench {
    fn segments(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.disk.files_in(&self.place.path().join("journal"))
    }

    fn accept(&self) -> Result<FsckReport, StoreError> {
        LocalStore::simulated_accept_loss(self.place.path(), Arc::new(self.disk.clone()), Self::options())
    }

    fn fsck(&self, repair: bool) -> Result<FsckReport, StoreError> {
        LocalStore::simulated_fsck(self.place.path(), Arc::new(self.disk.clone()), repair)
    }

    /// Returns the loss that a check reports; with a loss the store does not open.
    fn loss(&self) -> Option<Loss> {
        let loss = self.fsck(false).unwrap().loss;
        let opened = self.open();
        assert_eq!(opened.is_err(), loss.is_some(), "{:?}", opened.err());
        opened.into_iter().for_each(LocalStore::abandon);
        loss
    }

    /// Changes the bytes of the segment at that index.
    fn damage(&self, at: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let (path, mut bytes) = self.segments().swap_remove(at);
        change(&mut bytes);
        self.disk.put(&path, Some(bytes));
    }

    /// Removes the last segment and most of the one before.
    fn cut_end(&self) {
        let (last, _) = self.segments().pop().unwrap();
        self.disk.put(&last, None);
        self.damage(self.segments().len() - 1, |bytes| bytes.truncate(500));
    }

    /// Makes a closed store of some segments with three sessions; the last session begins at the end.
    fn filled(seed: u64) -> Self {
        let bench = Self::new(seed);
        let store = bench.open().unwrap();
        for _ in 0..8 {
            record(&store, KEPT).unwrap();
            record(&store, REMOVED).unwrap();
        }
        record(&store, GONE).unwrap();
        record(&store, GONE).unwrap();
        drop(store);
        bench
    }
}

/// Returns the losses that a session records.
fn told(store: &LocalStore, session: SessionId) -> Vec<EventsLost> {
    let events = super::witness::events(store, session).unwrap();
    let lost = events.iter().filter(|event| event.event.kind == EventsLost::KIND.into());
    lost.map(|event| EventsLost::decode(event.event.version, &event.event.bytes).unwrap()).collect()
}

/// Cuts the power at every moment of an acceptance; returns the number of moments.
fn accepts_at_every_moment(damage: fn(&Bench)) -> u64 {
    for at in 1.. {
        let mut is_done = true;
        for seed in 0..CUTS / 2 {
            let context = format!("power off from {at}, cut {seed}");
            let bench = Bench::filled(seed);
            damage(&bench);
            let loss = bench.loss().unwrap();
            let index = bench.index();
            is_done &= bench.disturbed(Fault::PowerOff(at), || bench.accept().is_ok());
            bench.cut_power(seed, &index);
            if let Some(still) = bench.loss() {
                assert_eq!(still.sessions, loss.sessions, "{context}");
                bench.accept().unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            assert_eq!(bench.fsck(false).unwrap().problems, [], "{context}");
            let store = bench.open().unwrap();
            for lost in &loss.sessions {
                let told = told(&store, lost.session);
                assert_eq!(told.iter().map(|told| told.last).collect::<Vec<_>>(), [lost.last], "{context}");
                assert!(told[0].first <= lost.first.max(2), "{context}: {told:?}");
            }
            store.abandon();
        }
        if is_done {
            return at;
        }
    }
    unreachable!("the loop ends with its result")
}

#[test]
fn acceptance_cut_anywhere_forgets_no_loss() {
    let moments = accepts_at_every_moment(Bench::cut_end);
    assert!(moments > 5, "{moments}");
}

#[test]
fn acceptance_with_repair_cut_anywhere_forgets_no_loss() {
    let moments = accepts_at_every_moment(|bench| {
        bench.cut_end();
        bench.damage(1, |bytes| bytes[900] ^= 1);
    });
    assert!(moments > 12, "{moments}");
}

#[test]
fn acceptance_by_seal_is_reported_until_done() {
    let moments = accepts_at_every_moment(|bench| {
        bench.disk.put(&bench.segments().pop().unwrap().0, None);
        remove_index(bench.place.path());
    });
    assert!(moments > 5, "{moments}");
}

/// Cuts the power at every moment of work that sets bytes aside; they must always exist somewhere.
fn keeps_at_every_moment(damage: fn(&Bench), work: fn(&Bench) -> Result<(), StoreError>) {
    let mut moments = 1..;
    while moments.next().is_some_and(|at| (0..CUTS).any(|seed| is_kept_and_cut_off(damage, work, at, seed))) {}
    assert!(moments.start > 4, "all is done with {} operations", moments.start - 2);
}

fn is_kept_and_cut_off(damage: fn(&Bench), work: fn(&Bench) -> Result<(), StoreError>, at: u64, seed: u64) -> bool {
    let context = format!("power off from {at}, cut {seed}");
    let bench = Bench::new(seed);
    let store = bench.open().unwrap();
    (0..8).for_each(|_| assert!(record(&store, KEPT).is_ok()));
    store.abandon();
    damage(&bench);
    remove_index(bench.place.path());
    bench.disturbed(Fault::PowerOff(at), || work(&bench)).unwrap_or_default();
    let is_cut_off = bench.disk.is_off();
    bench.disk.cut_power();
    let files = [bench.segments(), bench.disk.files_in(&bench.place.path().join("torn"))].concat();
    let is_marked = |(_, bytes): &(PathBuf, Vec<u8>)| bytes.windows(MARK.len()).any(|window| window == MARK);
    assert!(files.iter().any(is_marked), "{context}");
    work(&bench).unwrap_or_else(|error| panic!("{context}: {error}"));
    let store = bench.open().unwrap_or_else(|error| panic!("{context}: {error}"));
    record(&store, KEPT).unwrap();
    store.abandon();
    is_cut_off
}

fn opened(bench: &Bench) -> Result<(), StoreError> {
    bench.open().map(LocalStore::abandon)
}

fn repaired(bench: &Bench) -> Result<(), StoreError> {
    bench.fsck(true).map(drop)
}

#[test]
fn torn_end_survives_power_cut() {
    keeps_at_every_moment(
        |bench| {
            let last = bench.segments().len() - 1;
            bench.damage(last, |bytes| {
                let end = (bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1).next_multiple_of(8);
                bytes[end..end + MARK.len()].copy_from_slice(&MARK);
            });
        },
        opened,
    );
}

#[test]
fn repair_leftovers_survive_power_cut() {
    keeps_at_every_moment(
        |bench| bench.damage(0, |bytes| bytes[900..900 + MARK.len()].copy_from_slice(&MARK)),
        repaired,
    );
}

#[test]
fn stray_file_survives_power_cut() {
    let stray = |bench: &Bench| {
        let path = bench.place.path().join("journal/99999999.seg");
        bench.disk.put(&path, Some(MARK.to_vec()));
    };
    keeps_at_every_moment(stray, repaired);
}
