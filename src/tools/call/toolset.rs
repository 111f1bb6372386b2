//! Sets of tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::registrations::Registrations;
use super::tool::{Effect, ErasedTool, Tool, ToolDescription};
use crate::backends::Workspace;
use crate::engine::error::ValueError;
use crate::engine::id::SessionId;

/// The tools that a session offers, by name.
#[derive(Clone, Default)]
pub struct Tools {
    own: BTreeMap<&'static str, Arc<dyn ErasedTool>>,
    /// Tools of other programs, in a hub.
    registered: Option<Arc<Registrations>>,
    /// Names of the registered tools to offer; `None` for all.
    only: Option<BTreeSet<String>>,
}

impl Tools {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`ValueError`] if its name is taken or invalid.
    pub fn with<T: Tool>(mut self, tool: T) -> Result<Self, ValueError> {
        check_name(T::NAME)?;
        if self.own.insert(T::NAME, Arc::new(tool)).is_some() {
            return Err(ValueError::new(format!("tool {} exists already", T::NAME)));
        }
        Ok(self)
    }

    /// Makes a set of one tool.
    pub(crate) fn of_one(name: &'static str, tool: Arc<dyn ErasedTool>) -> Self {
        Self { own: BTreeMap::from([(name, tool)]), ..Self::default() }
    }

    /// Describes each tool, sorted by name, except the tools of other programs.
    pub fn describe(&self) -> Vec<ToolDescription> {
        self.own.values().map(|tool| tool.describe()).collect()
    }

    /// Returns the names of these tools, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.own.keys().copied()
    }

    /// Returns the set of the tools with these names.
    #[must_use]
    pub fn only(&self, names: &BTreeSet<String>) -> Self {
        let wanted = self.own.iter().filter(|(name, _)| names.contains(**name));
        let own = wanted.map(|(name, tool)| (*name, Arc::clone(tool))).collect();
        let limited = self.only.as_ref().map(|only| only & names);
        Self { own, registered: self.registered.clone(), only: Some(limited.unwrap_or_else(|| names.clone())) }
    }

    /// Returns the set with the tools that programs register in addition.
    #[doc(hidden)]
    pub fn and_registered(&self, registered: Arc<Registrations>) -> Self {
        Self { registered: Some(registered), ..self.clone() }
    }

    /// Describes the tools that programs have registered for a session, or for all.
    #[doc(hidden)]
    pub fn describe_registered(&self, session: Option<SessionId>) -> Vec<ToolDescription> {
        let registered = self.registered.as_ref().map(|all| all.of(session, self.only.as_ref()));
        registered.into_iter().flatten().map(|tool| tool.describe()).collect()
    }

    /// Returns the effect of a tool that a program has registered for any session.
    #[doc(hidden)]
    pub fn effect_of_registered(&self, name: &str) -> Option<Effect> {
        self.registered.as_ref()?.effect(name)
    }

    /// Describes each tool that a session offers.
    #[doc(hidden)]
    pub fn describe_for(&self, session: Option<SessionId>) -> Vec<ToolDescription> {
        let mut all = self.describe();
        all.extend(self.describe_registered(session));
        all
    }

    /// Describes each tool that a session offers and that works in its workspace.
    pub(crate) fn describe_in(&self, workspace: &dyn Workspace, session: SessionId) -> Vec<ToolDescription> {
        let own = self.own.values().filter(|tool| tool.works_in(workspace));
        own.map(|tool| tool.describe()).chain(self.describe_registered(Some(session))).collect()
    }

    /// Finds a tool that a session offers; without a session, a tool for all sessions.
    #[doc(hidden)]
    pub fn find(&self, name: &str, session: Option<SessionId>) -> Option<Arc<dyn ErasedTool>> {
        if let Some(own) = self.own.get(name) {
            return Some(Arc::clone(own));
        }
        let registered = self.registered.as_ref()?;
        let is_allowed = self.only.as_ref().is_none_or(|names| names.contains(name));
        if is_allowed { registered.find(name, session) } else { None }
    }
}

/// Checks the name of a tool.
pub fn check_name(name: &str) -> Result<(), ValueError> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(ValueError::new(format!("tool name {shown:?} must have 1 to 64 letters, digits and underscores")))
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.own.keys()).finish()
    }
}
