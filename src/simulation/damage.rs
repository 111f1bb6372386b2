//! Damage that no crash makes: it must be told, and never shows another history.

use std::sync::Arc;

use super::run::Run;
use crate::engine::store::LocalStore;

/// Flips a bit in a copy of the journal, and looks what is said of it.
pub(super) fn check(run: &mut Run) -> Result<(), String> {
    let journal = run.directory.join("journal");
    let files = run.disk.files_in(&journal);
    if files.is_empty() {
        return Ok(());
    }
    let disk = run.disk.copied();
    let (path, mut bytes) = run.random.pick(&files).clone();
    if bytes.is_empty() {
        return Ok(());
    }
    let (at, bit) = (run.random.below(bytes.len()), run.random.below(8));
    bytes[at] ^= 1 << bit;
    let place = format!("bit {bit} of byte {at} of {}", path.display());
    disk.put(&path, Some(bytes));
    let mut is_told = run.fsck(&disk).map_or(true, |report| !report.problems.is_empty());
    if run.random.once_in(2) {
        let index = run.directory.join("index");
        index.exists().then(|| std::fs::remove_dir_all(&index).unwrap());
    }
    let opened = LocalStore::simulated(&run.directory, Arc::new(disk), run.options.clone());
    let is_whole = match &opened {
        Ok(store) => run.ledger().is_part(store).map_err(|error| format!("{place}: {error}"))?,
        Err(_) => true,
    };
    is_told |= opened.is_err();
    opened.into_iter().for_each(LocalStore::abandon);
    if is_whole || is_told { Ok(()) } else { Err(format!("{place} is not told")) }
}
