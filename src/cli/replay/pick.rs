//! Asks for a session if none is named.

use std::sync::Arc;

use foldspace::hub::operations::listed;
use foldspace::store::SessionEntry;

use super::mind;
use super::outside::DebuggerSignals;
use crate::cli::{Failure, Signals, block_on, text};
use crate::tui::{self, Picker};

/// Shows the sessions, latest first, and returns the chosen name; `None` if the person leaves.
pub(crate) fn pick(mut entries: Vec<SessionEntry>) -> Result<Option<String>, Failure> {
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.updated));
    let cells = entries.iter().map(listed).map(|row| {
        vec![
            row.name,
            row.session.short(),
            row.backend,
            text::count(row.events, "event"),
            row.calls.map_or_else(String::new, |calls| text::count(calls, "call")),
            text::moment(row.updated),
        ]
    });
    let picker = Picker::new("Sessions, the latest first", cells.collect());
    let colour = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    let signals = Arc::new(DebuggerSignals::default());
    let picked = block_on(async {
        tokio::spawn(mind(Signals::listen(), Arc::clone(&signals)));
        tui::pick(picker, colour, &signals.told)
    })?;
    let picked = picked.map_err(|error| Failure::io("use", "the terminal", &error))?;
    Ok(picked.and_then(|row| entries.get(row)).map(SessionEntry::name))
}
