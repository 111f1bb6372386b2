//! Calls for people.

use anstyle::Style;
use foldspace::view::{Call, CallOutcome, CallPathChange};

use super::events;
use super::output::NOTED;
use super::text;

/// How a call stands; who looks is told how its command ended where that did not do well.
pub(super) fn ending(call: &Call, shared: bool) -> String {
    match &call.outcome {
        Some(CallOutcome { end, .. }) => events::ending(end.status, &end.result),
        None => call.status(shared).to_owned(),
    }
}

/// The style of how a call stands.
pub(super) fn style(call: &Call) -> Style {
    match &call.outcome {
        Some(CallOutcome { end, .. }) => events::ending_style(end.status, &end.result),
        None => NOTED,
    }
}

/// How long it took; empty while that is not known.
pub(super) fn duration(call: &Call) -> String {
    call.outcome.as_ref().map_or(String::new(), |outcome| text::duration(outcome.end.micros))
}

/// Paths that are named of what a call changed.
const NAMED: usize = 3;

/// Returns the changes, as `+2 ~1 src/a.py, src/b.py, src/c.py`: how many entries came, changed and went, and the first of
/// them; empty when it changed nothing. A path that stands in the line already is not named again.
pub(super) fn changes(call: &Call, subject: &str) -> String {
    let count = |which: CallPathChange, sign: char| {
        let count = call.changes.values().filter(|change| **change == which).count();
        (count > 0).then(|| format!("{sign}{count}"))
    };
    let counts = [(CallPathChange::Added, '+'), (CallPathChange::Changed, '~'), (CallPathChange::Removed, '-')];
    let mut words: Vec<String> = counts.into_iter().filter_map(|(which, sign)| count(which, sign)).collect();
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
