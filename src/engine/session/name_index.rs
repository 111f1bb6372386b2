use std::collections::{BTreeMap, BTreeSet};

use super::error::{MAX_NAME_CHARS, SessionError, SessionResult};
use crate::engine::store::{EventStore, SessionQuery};

/// Names of sessions that are being created, and the last numbers of children's names.
#[derive(Default)]
pub(crate) struct NameIndex {
    pending: BTreeSet<String>,
    numbers: BTreeMap<String, u64>,
}

impl NameIndex {
    /// Reserves a name for a session that is being created, until it is [settled](Self::settle).
    pub(crate) fn take(&mut self, store: &dyn EventStore, name: &str) -> SessionResult<()> {
        let is_taken = !store.select(SessionQuery::Named(name), 1)?.is_empty();
        if is_taken || !self.pending.insert(name.to_owned()) {
            return Err(SessionError::NameTaken { name: name.to_owned() });
        }
        Ok(())
    }

    pub(crate) fn take_for_child(&mut self, store: &dyn EventStore, parent: &str) -> SessionResult<String> {
        let mut number = self.numbers.get(parent).copied().unwrap_or(0);
        // An imported name may have any characters.
        let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let parent_name: String = parent.chars().filter(fits).skip_while(|c| !c.is_ascii_alphanumeric()).collect();
        let parent_name = if parent_name.is_empty() { "session" } else { &parent_name };
        loop {
            number += 1;
            let ending = format!("-{number}");
            let beginning: String = parent_name.chars().take(MAX_NAME_CHARS - ending.len()).collect();
            let name = beginning + &ending;
            match self.take(store, &name) {
                Ok(()) => {
                    self.numbers.insert(parent.to_owned(), number);
                    return Ok(name);
                }
                Err(SessionError::NameTaken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn settle(&mut self, name: &str) {
        self.pending.remove(name);
    }
}

#[doc(hidden)]
pub fn check_name(name: &str) -> SessionResult<()> {
    let fits = name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if fits { Ok(()) } else { Err(SessionError::BadName { name: name.chars().take(100).collect() }) }
}
