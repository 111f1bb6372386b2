//! Damage that no crash causes: it must be reported, and must never show another history.

use std::path::Path;
use std::sync::Arc;

use super::disk::SimulatedDisk;
use super::random::Random;
use super::run::Run;
use crate::engine::store::LocalStore;

/// Damages a file in a copy of the journal, and checks that this is reported.
pub(super) fn check(run: &mut Run) -> Result<(), String> {
    let files = run.disk.files_in(&run.directory.join("journal"));
    if files.is_empty() {
        return Ok(());
    }
    let disk = run.disk.copied();
    let (path, bytes) = run.random.pick(&files).clone();
    let (what, must_be_told) = damage(&mut run.random, &disk, &path, bytes);
    // Without its index, a journal can lose a whole end unnoticed.
    let has_index = run.random.once_in(2);
    if !has_index {
        remove_index(&run.directory);
    }
    let fsck = run.fsck(&disk);
    let mut is_told = fsck.map_or(true, |report| !report.problems.is_empty());
    let opened = LocalStore::simulated(&run.directory, Arc::new(disk), run.options.clone());
    is_told |= opened.is_err();
    let is_whole = opened.as_ref().map_or(Ok(true), |store| run.ledger().is_part(store));
    opened.into_iter().for_each(LocalStore::abandon);
    let is_whole = is_whole.map_err(|error| format!("{what}: {error}"))?;
    if is_whole || is_told || !(has_index || must_be_told) { Ok(()) } else { Err(format!("{what}: not reported")) }
}

/// Causes some damage; returns its description, and true if the journal alone must show it.
fn damage(random: &mut Random, disk: &SimulatedDisk, path: &Path, mut bytes: Vec<u8>) -> (String, bool) {
    let name = path.display();
    match random.index(6) {
        0 => {
            disk.put(path, None);
            (format!("without {name}"), false)
        }
        1 => {
            let length = *random.pick(&[0, 0, 64, bytes.len() / 2, bytes.len().saturating_sub(1)]);
            bytes.truncate(length);
            disk.put(path, Some(bytes));
            (format!("{length} bytes of {name}"), false)
        }
        _ => {
            let (at, bit) = (random.index(bytes.len()), random.index(8));
            bytes[at] ^= 1 << bit;
            disk.put(path, Some(bytes));
            (format!("bit {bit} of byte {at} of {name} flipped"), true)
        }
    }
}

pub(super) fn remove_index(directory: &Path) {
    let index = directory.join("index");
    if index.exists() {
        std::fs::remove_dir_all(&index).unwrap();
    }
}
