//! The difference between the ends of a step, two positions, or two sessions.

use foldspace::{Slice, VirtualFileSystem, view};

use super::file::patches;
use crate::terminal::text;
use crate::tui::model::{Failure, HistoryPosition, Leash, SessionHistory, Sheet, ShownStep, Tone};

pub(crate) fn diff(
    past: &SessionHistory,
    step: &ShownStep,
    compared: Option<&(HistoryPosition, HistoryPosition)>,
    leash: &Leash,
) -> Result<Sheet, Failure> {
    let (title, old, new) = match compared {
        None => (format!("difference {}..{}", step.before, step.after), step.old.clone(), step.new.clone()),
        Some((from, to)) => {
            let name = |place: &HistoryPosition| format!("{}@{}", text::one_line(place.past.name(), 60), place.seq);
            let title = format!("difference {}..{}", name(from), name(to));
            (title, from.past.state(from.seq, leash)?, to.past.state(to.seq, leash)?)
        }
    };
    let changes = VirtualFileSystem::of(&old).diff(&VirtualFileSystem::of(&new));
    let mut sheet = Sheet::new(format!("{title}: {}", text::count(changes.len() as u64, "entry")));
    let mut others = Vec::new();
    for slice in new.slices() {
        leash.holds()?;
        if slice.name != VirtualFileSystem::NAME && view::slice(&old, &slice.name)? != view::slice(&new, &slice.name)? {
            others.push(slice.name);
        }
    }
    if !others.is_empty() {
        sheet.add(Tone::Dim, format!("slices that differ: {}", others.join(", ")));
    }
    for change in &changes {
        if sheet.is_full() || leash.is_cancelled() {
            break;
        }
        patches(past, change, &mut sheet)?;
    }
    if changes.is_empty() {
        sheet.add(Tone::Dim, "the files are the same");
    }
    Ok(sheet)
}
