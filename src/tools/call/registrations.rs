//! Tools of connected programs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::tool::{Effect, ErasedTool};
use crate::engine::error::ValueError;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;

/// Maximum number of registered tools of all programs.
const TOOLS_MAX: usize = 1024;

/// Tools that programs have registered, for all sessions or for one.
#[derive(Default)]
pub struct Registrations {
    tools: Mutex<Vec<RegisteredTool>>,
    changed: watch::Sender<u64>,
}

struct RegisteredTool {
    name: String,
    session: Option<SessionId>,
    /// The number of its registration.
    number: u64,
    tool: Arc<dyn ErasedTool>,
}

/// Offers tools until it is dropped.
pub struct Registration {
    registrations: Arc<Registrations>,
    number: u64,
}

impl Registrations {
    /// Registers tools; fails if a name is taken in one of the sessions.
    pub fn add(
        self: &Arc<Self>,
        session: Option<SessionId>,
        added: Vec<(String, Arc<dyn ErasedTool>)>,
    ) -> Result<Registration, ValueError> {
        let mut tools = lock(&self.tools);
        if tools.len() + added.len() > TOOLS_MAX {
            return Err(ValueError::new(format!("programs may register at most {TOOLS_MAX} tools in all")));
        }
        let meets = |other: Option<SessionId>| session.is_none() || other.is_none() || session == other;
        let is_taken = |name: &String| tools.iter().any(|known| known.name == *name && meets(known.session));
        if let Some((name, _)) = added.iter().find(|(name, _)| is_taken(name)) {
            return Err(ValueError::new(format!("another program has already registered the tool {name}")));
        }
        let mut number = 0;
        self.changed.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        tools.extend(added.into_iter().map(|(name, tool)| RegisteredTool { name, session, number, tool }));
        drop(tools);
        Ok(Registration { registrations: Arc::clone(self), number })
    }

    pub(super) fn find(&self, name: &str, session: Option<SessionId>) -> Option<Arc<dyn ErasedTool>> {
        let tools = lock(&self.tools);
        let found = tools.iter().find(|known| known.name == name && known.is_for(session));
        found.map(|known| Arc::clone(&known.tool))
    }

    /// Returns the tools of a session, sorted by name.
    pub(super) fn of(&self, session: Option<SessionId>, only: Option<&BTreeSet<String>>) -> Vec<Arc<dyn ErasedTool>> {
        let tools = lock(&self.tools);
        let mut found: Vec<_> = tools.iter().filter(|known| known.is_for(session)).collect();
        found.retain(|known| only.is_none_or(|names| names.contains(&known.name)));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.into_iter().map(|known| Arc::clone(&known.tool)).collect()
    }

    /// Returns the effect of a tool with that name in any session; of several, the first that is not read-only.
    pub(super) fn effect(&self, name: &str) -> Option<Effect> {
        let tools = lock(&self.tools);
        let mut effects = tools.iter().filter(|known| known.name == name).map(|known| known.tool.effect());
        let first = effects.next()?;
        Some(effects.fold(first, |one, other| if one == Effect::ReadOnly { other } else { one }))
    }

    /// Returns a receiver that is notified when tools are added or removed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl RegisteredTool {
    fn is_for(&self, session: Option<SessionId>) -> bool {
        self.session.is_none() || self.session == session
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.registrations.tools).retain(|known| known.number != self.number);
        self.registrations.changed.send_modify(|last| *last += 1);
    }
}
