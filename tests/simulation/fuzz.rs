//! Journals with arbitrary bytes: no panic, and never another history.

use std::sync::Arc;

use super::damage::remove_index;
use super::disk::{Lie, SimulatedDisk};
use super::random::Random;
use super::run::Run;
use crate::engine::store::LocalStore;

const JOURNALS: u64 = 10;
const DAMAGES: usize = 30;

/// Overwrites, cuts, or moves some bytes.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.index(bytes.len());
    let most = random.index(600);
    let length = most.min(bytes.len() - at);
    match random.index(6) {
        0 => bytes[at..at + length].fill(0),
        1 => bytes.truncate(at),
        2 => {
            let noise = random.bytes(length);
            bytes[at..at + length].copy_from_slice(&noise);
        }
        3 => drop(bytes.drain(at..at + length)),
        4 => {
            // Never to a place where it would be a valid frame.
            let moved = bytes[at..at + length].to_vec();
            let to = random.index(bytes.len()) | 1;
            bytes.splice(to.min(bytes.len())..to.min(bytes.len()), moved);
        }
        _ => bytes[at] ^= 1 << random.index(8),
    }
}

#[test]
fn simulated_damage_never_shows_another_history() {
    let (mut opened, mut repaired) = (0, 0);
    for seed in 0..JOURNALS {
        let place = tempfile::tempdir().unwrap();
        let mut run = Run::new(seed, Lie::None, place.path());
        run.filled().unwrap();
        let files = run.disk.files_in(&run.directory.join("journal"));
        for number in 0..DAMAGES {
            let disk = run.disk.copied();
            let (path, mut bytes) = run.random.pick(&files).clone();
            for _ in 0..1 + run.random.index(3) {
                if !bytes.is_empty() {
                    spoil(&mut run.random, &mut bytes);
                }
            }
            disk.put(&path, Some(bytes));
            remove_index(&run.directory);
            let context = format!("journal {seed}, damage {number} of {}", path.display());
            let report = run.fsck(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            opened += u64::from(looks_right(&run, &disk, &context));
            if !report.problems.is_empty() {
                remove_index(&run.directory);
                LocalStore::simulated_fsck(&run.directory, Arc::new(disk.clone()), true).unwrap();
                repaired += u64::from(looks_right(&run, &disk, &context));
            }
        }
    }
    assert!(opened > 20 && repaired > 100, "{opened} were opened, {repaired} after a repair");
}

/// Damage of one frame costs one commit: everything else exists after a repair.
#[test]
fn simulated_damage_of_one_frame_loses_at_most_its_commit() {
    let (mut gaps, mut rounds) = (0, 0);
    for seed in 0..JOURNALS {
        let place = tempfile::tempdir().unwrap();
        let mut run = Run::new(seed, Lie::None, place.path());
        run.filled().unwrap();
        let files = run.disk.files_in(&run.directory.join("journal"));
        let raw: Vec<_> = files.into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg")).collect();
        for number in 0..DAMAGES {
            let disk = run.disk.copied();
            let (path, mut bytes) = run.random.pick(&raw).clone();
            let at = 64 + run.random.index(bytes.len() - 64);
            bytes[at] ^= 0x5a;
            disk.put(&path, Some(bytes));
            remove_index(&run.directory);
            let context = format!("journal {seed}, damage {number} of byte {at} of {}", path.display());
            let report = LocalStore::simulated_fsck(&run.directory, Arc::new(disk.clone()), true).unwrap();
            assert!(report.gaps.len() <= 1 && report.contradictions.is_empty(), "{context}: {report:?}");
            let opened = LocalStore::simulated(&run.directory, Arc::new(disk.copied()), run.options.clone());
            let store = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            run.ledger().is_part(&store).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(run.ledger().shorter(&store) <= 1, "{context}: {report:?}");
            store.abandon();
            (gaps, rounds) = (gaps + report.gaps.len(), rounds + 1);
        }
    }
    assert!(gaps > rounds / 10, "{gaps} gaps of {rounds} damages");
}

/// Returns true if the store opens; everything in it must be as recorded.
fn looks_right(run: &Run, disk: &SimulatedDisk, context: &str) -> bool {
    let opened = LocalStore::simulated(&run.directory, Arc::new(disk.copied()), run.options.clone());
    let Ok(store) = opened else { return false };
    run.ledger().is_part(&store).unwrap_or_else(|error| panic!("{context}: {error}"));
    store.abandon();
    true
}
