//! The names of a store's sessions, so that a new one is told from a taken one without reading them all.

use std::collections::BTreeMap;

use super::id::SessionId;
use super::sessions::{MAX_NAME_CHARS, SessionError, name_of};
use super::store::EventStore;

/// Names in use, read from the store when first asked for. What another process, or somebody who writes to the
/// store without asking, calls a session afterwards is not seen.
#[derive(Default)]
pub(crate) struct Names {
    taken: Option<BTreeMap<String, SessionId>>,
    /// The number that a parent's last child got.
    numbers: BTreeMap<String, u64>,
}

impl Names {
    fn taken(&mut self, store: &dyn EventStore) -> Result<&mut BTreeMap<String, SessionId>, SessionError> {
        let taken = match self.taken.take() {
            Some(taken) => taken,
            None => store.entries()?.iter().map(|entry| (name_of(entry), entry.id)).collect(),
        };
        Ok(self.taken.insert(taken))
    }

    /// Takes a name for a session that is about to begin.
    pub(crate) fn take(&mut self, store: &dyn EventStore, name: &str, id: SessionId) -> Result<(), SessionError> {
        let taken = self.taken(store)?;
        // One that somebody removed through the store itself is free again.
        if let Some(holder) = taken.get(name)
            && *holder != id
            && store.entry(*holder)?.is_some_and(|entry| name_of(&entry) == name)
        {
            return Err(SessionError::NameTaken { name: name.to_owned() });
        }
        taken.insert(name.to_owned(), id);
        Ok(())
    }

    /// Takes the first free of `parent-1`, `parent-2`, ...
    pub(crate) fn take_for_child(
        &mut self,
        store: &dyn EventStore,
        parent: &str,
        id: SessionId,
    ) -> Result<String, SessionError> {
        let mut number = self.numbers.get(parent).copied().unwrap_or(0);
        loop {
            number += 1;
            let ending = format!("-{number}");
            let beginning: String = parent.chars().take(MAX_NAME_CHARS - ending.len()).collect();
            let name = beginning + &ending;
            if !self.taken(store)?.contains_key(&name) {
                self.take(store, &name, id)?;
                self.numbers.insert(parent.to_owned(), number);
                return Ok(name);
            }
        }
    }

    /// Gives a name back.
    pub(crate) fn give_back(&mut self, name: &str, id: SessionId) {
        if let Some(taken) = &mut self.taken
            && taken.get(name) == Some(&id)
        {
            taken.remove(name);
        }
    }

    /// Reads the names anew when next asked.
    pub(crate) fn forget(&mut self) {
        self.taken = None;
    }
}
