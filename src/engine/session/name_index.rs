use std::collections::{BTreeMap, BTreeSet};

use super::error::{MAX_NAME_CHARS, SessionError, SessionResult};
use crate::engine::event::SessionStarted;
use crate::engine::id::SessionId;
use crate::engine::store::{EventStore, SessionEntry};

/// Session names in use, read from the store on first use, or on every use if another process owns it. Names that are
/// written to the store directly are not seen.
#[derive(Default)]
pub struct NameIndex {
    known: Option<BTreeMap<String, SessionId>>,
    pending: BTreeSet<String>,
    numbers: BTreeMap<String, u64>,
}

impl NameIndex {
    fn known(&mut self, store: &dyn EventStore) -> SessionResult<&mut BTreeMap<String, SessionId>> {
        let known = match self.known.take().filter(|_| store.check_own().is_ok()) {
            Some(known) => known,
            None => store.entries()?.iter().map(|entry| (name_of(entry), entry.id)).collect(),
        };
        Ok(self.known.insert(known))
    }

    /// Reserves a name for a session that is being created, until it is [settled](Self::settle).
    pub(crate) fn take(&mut self, store: &dyn EventStore, name: &str) -> SessionResult<()> {
        if self.holder(store, name)?.is_some() || !self.pending.insert(name.to_owned()) {
            return Err(SessionError::NameTaken { name: name.to_owned() });
        }
        Ok(())
    }

    /// Returns the session of that name.
    pub fn holder(&mut self, store: &dyn EventStore, name: &str) -> SessionResult<Option<SessionId>> {
        let Some(holder) = self.known(store)?.get(name).copied() else { return Ok(None) };
        // The name of a session that was removed directly from the store is free again.
        let has_name = store.entry(holder)?.is_some_and(|entry| name_of(&entry) == name);
        Ok(has_name.then_some(holder))
    }

    /// Returns true if a session other than `id` has the name.
    pub fn has_other(&mut self, store: &dyn EventStore, name: &str, id: SessionId) -> SessionResult<bool> {
        Ok(self.holder(store, name)?.is_some_and(|holder| holder != id))
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

    pub(crate) fn settle(&mut self, name: &str, id: SessionId, has_begun: bool) {
        self.pending.remove(name);
        if let Some(known) = self.known.as_mut().filter(|_| has_begun) {
            known.insert(name.to_owned(), id);
        }
    }

    pub(crate) fn free(&mut self, name: &str, id: SessionId) {
        if let Some(known) = &mut self.known
            && known.get(name) == Some(&id)
        {
            known.remove(name);
        }
    }

    /// Adds the name of a session that an import has created.
    pub(crate) fn add(&mut self, name: &str, id: SessionId) {
        if let Some(known) = &mut self.known {
            known.insert(name.to_owned(), id);
        }
    }
}

/// Returns the name of a session; the beginning of its id if its first event can't be read.
pub fn name_of(entry: &SessionEntry) -> String {
    match entry.origin.typed::<SessionStarted>() {
        Some(Ok(started)) => started.event.name,
        _ => entry.id.short(),
    }
}

#[doc(hidden)]
pub fn check_name(name: &str) -> SessionResult<()> {
    let fits = name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if fits { Ok(()) } else { Err(SessionError::BadName { name: name.chars().take(100).collect() }) }
}
