//! Calls as text for people.

use foldspace::view::{Call, CallChanges};

use super::{events, text};
use crate::terminal::style::Tone;

pub(super) fn ending(call: &Call) -> String {
    call.end.as_ref().map_or_else(|| call.status.to_owned(), |end| events::ending(end.status, &end.result))
}

pub(super) fn tone(call: &Call) -> Tone {
    call.end.as_ref().map_or(Tone::Noted, |end| events::ending_tone(end.status, &end.result))
}

pub(super) fn duration(call: &Call) -> String {
    call.micros.map_or(String::new(), text::duration)
}

const NAMED: usize = 3;

pub(super) fn changes(call: &Call, subject: &str) -> String {
    let shared = call.shared.iter().filter(|shared| !shared.paths.is_empty()).map(|shared| {
        let with: Vec<String> = shared.with.iter().map(|call| format!("#{call}")).collect();
        let with = if with.is_empty() { String::new() } else { format!(" shared with {}", with.join(", ")) };
        format!("~{}{}{with}", shared.paths.len(), if shared.in_doubt { " perhaps" } else { "" })
    });
    let own = Some(own_changes(call, subject)).filter(|own| !own.is_empty());
    let marks = [(call.not_kept.len(), "not kept"), (call.lost.len(), "gone for good")];
    let marks = marks.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    own.into_iter().chain(shared).chain(marks).collect::<Vec<_>>().join("  ")
}

fn own_changes(call: &Call, subject: &str) -> String {
    let CallChanges { added, changed, removed } = call.changed;
    let counts = [('+', added), ('~', changed), ('-', removed)].into_iter().filter(|(_, count)| *count > 0);
    let mut words: Vec<String> = counts.map(|(sign, count)| format!("{sign}{count}")).collect();
    let mut names: Vec<String> = call.changes.keys().map(|path| text::one_line(&path.to_string(), 80)).collect();
    if matches!(&names[..], [only] if subject == only || subject.ends_with(&format!("/{only}"))) {
        return words.concat();
    }
    if names.len() > NAMED {
        names.truncate(NAMED);
        names.push("...".to_owned());
    }
    words.extend((!names.is_empty()).then(|| names.join(", ")));
    words.join(" ")
}
