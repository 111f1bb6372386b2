//! Every slice, with what changed in it at the step.

use std::collections::BTreeSet;

use foldspace::reducers::Change;
use foldspace::{Slice, VirtualFileSystem, view};
use serde_json::Value;

use crate::terminal::text;
use crate::tui::model::{Failure, JsonDifference, Sheet, ShownStep, Target, Tone, differences, pointer_to};

const SHOWN_MAX: usize = 500;
const VALUE_MAX: usize = 300;

pub(crate) fn changed_slices(step: &ShownStep) -> Result<Vec<(String, Vec<JsonDifference>)>, Failure> {
    let slices = step.new.slices().into_iter();
    slices.map(|slice| Ok((slice.name.clone(), changes_of(step, &slice.name)?))).collect()
}

pub(crate) fn changes_of(step: &ShownStep, name: &str) -> Result<Vec<JsonDifference>, Failure> {
    if name == VirtualFileSystem::NAME {
        // Its JSON may be large, and its differences are known.
        return Ok(step.changes.iter().map(of_file).collect());
    }
    Ok(differences(&view::slice(&step.old, name)?, &view::slice(&step.new, name)?))
}

fn of_file(change: &Change) -> JsonDifference {
    let (before, after) = change.sides();
    let json = |entry| serde_json::to_value(entry).ok();
    let pointer = pointer_to("", &change.path().to_string());
    JsonDifference { pointer, before: before.and_then(json), after: after.and_then(json) }
}

pub(crate) fn slices(step: &ShownStep, open: &BTreeSet<String>) -> Result<Sheet, Failure> {
    let changed = changed_slices(step)?;
    let count = changed.iter().filter(|(_, differences)| !differences.is_empty()).count() as u64;
    let mut sheet = Sheet::new(format!("slices at {}: {} changed", step.after, count));
    for (name, differences) in &changed {
        let (sign, tone) = if differences.is_empty() { (' ', Tone::Plain) } else { ('*', Tone::Bold) };
        let words = match differences.len() as u64 {
            0 => String::new(),
            some => format!("  {}", text::count(some, "change")),
        };
        if sign == '*' {
            sheet.notice();
        }
        let is_open = open.contains(name);
        let fold = if is_open { 'v' } else { '>' };
        sheet.add_for(tone, format!("{sign} {fold} {name}{words}"), Some(Target::Slice(name.clone())));
        differences.iter().take(SHOWN_MAX).for_each(|difference| show(difference, &mut sheet));
        if differences.len() > SHOWN_MAX {
            sheet.add(Tone::Odd, format!("    ... and {} more", differences.len() - SHOWN_MAX));
        }
        if is_open {
            let whole = serde_json::to_string_pretty(&view::slice(&step.new, name)?).unwrap_or_default();
            sheet.block(Tone::Plain, "      ", &whole);
        }
    }
    sheet.first = 0;
    Ok(sheet)
}

fn show(difference: &JsonDifference, sheet: &mut Sheet) {
    let short = |value: &Option<Value>| match value {
        Some(value) => text::one_line(&value.to_string(), VALUE_MAX),
        None => String::new(),
    };
    // People read paths, not JSON pointers.
    let pointer = difference.pointer.replace("~1", "/").replace("~0", "~");
    let (before, after) = (short(&difference.before), short(&difference.after));
    match difference.sign() {
        '+' => sheet.add(Tone::Good, format!("    + {pointer}: {after}")),
        '-' => sheet.add(Tone::Bad, format!("    - {pointer}: {before}")),
        _ => sheet.add(Tone::Odd, format!("    ~ {pointer}: {before} -> {after}")),
    }
}
