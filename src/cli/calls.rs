//! Calls for people.

use anstyle::Style;
use foldspace::view::{Call, CallOutcome};

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
