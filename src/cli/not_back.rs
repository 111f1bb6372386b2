use foldspace::EntryPath;

use super::{Failure, Out, text};

/// The largest number of paths of one kind that are listed.
pub(super) const SHOWN: usize = 50;
/// The largest number of characters shown of a path.
const PATH_CHARS: usize = 200;

/// Prints the entries that a rewind or an undo could not restore, and the entries that it removed for good.
pub(super) fn tell_not_back(left: &[EntryPath], lost: &[EntryPath], out: &mut Out) -> Result<(), Failure> {
    for (word, paths) in [("left    ", left), ("lost    ", lost)] {
        paths
            .iter()
            .take(SHOWN)
            .try_for_each(|path| out.line(format!("{word} {}", text::one_line(&path.to_string(), PATH_CHARS))))?;
    }
    not_back(left, lost).iter().try_for_each(|line| out.line(line))
}

/// Returns one line for the entries not restored, and one for those removed for good.
pub(super) fn not_back(left: &[EntryPath], lost: &[EntryPath]) -> Vec<String> {
    let kinds = [
        (left, "not as it was", "which can't be recreated"),
        (lost, "gone for good", "since the contents were never stored"),
    ];
    let kinds = kinds.into_iter().filter(|(paths, ..)| !paths.is_empty());
    kinds.map(|(paths, what, why)| format!("{what}: {}, {why}", text::count(paths.len() as u64, "entry"))).collect()
}

/// Prints the hard links that became separate files.
pub(super) fn tell_apart(apart: &[EntryPath], out: &mut Out) -> Result<(), Failure> {
    if apart.is_empty() {
        return Ok(());
    }
    let first: Vec<String> = apart.iter().take(SHOWN).map(ToString::to_string).collect();
    out.line(format!("not as it was: hard links that are separate files now: {} ({})", apart.len(), first.join(", ")))
}
