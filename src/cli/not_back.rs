use foldspace::EntryPath;
use foldspace::reducers::EffectEntry;

use super::{Failure, Out, text};

/// The largest number of paths of one kind that are listed.
pub(super) const SHOWN: usize = 50;
/// The largest number of characters shown of a path.
const PATH_CHARS: usize = 200;
/// The largest number of characters shown of an effect.
const EFFECT_CHARS: usize = 300;

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

/// Returns a line about an effect: `git push origin main (done, call 12)`.
pub(super) fn effect_line(effect: &EffectEntry) -> String {
    let at = effect.call.map_or_else(|| format!("event {}", effect.seq), |call| format!("call {call}"));
    let undo = if effect.undo.is_empty() { String::new() } else { format!("; {}", effect.undo) };
    text::one_line(&format!("{} ({}, {at}{undo})", effect.words(), effect.outcome.word()), EFFECT_CHARS)
}

/// Prints the effects outside of the workspace that are not taken back.
pub(super) fn tell_effects(effects: &[EffectEntry], out: &mut Out) -> Result<(), Failure> {
    effects.iter().take(SHOWN).try_for_each(|effect| out.line(format!("stays    {}", effect_line(effect))))?;
    match effects.len() {
        0 => Ok(()),
        count => out.line(format!("not taken back: {} outside of the workspace", text::count(count as u64, "effect"))),
    }
}

/// Prints the hard links that became separate files.
pub(super) fn tell_apart(apart: &[EntryPath], out: &mut Out) -> Result<(), Failure> {
    if apart.is_empty() {
        return Ok(());
    }
    let first: Vec<String> = apart.iter().take(SHOWN).map(ToString::to_string).collect();
    out.line(format!("not as it was: hard links that are separate files now: {} ({})", apart.len(), first.join(", ")))
}
