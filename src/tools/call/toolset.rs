//! Sets of tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tool::{ErasedTool, Tool, ToolDescription};
use crate::engine::error::ValueError;

/// The tools that a session offers, by name.
#[derive(Clone, Default)]
pub struct Tools(BTreeMap<&'static str, Arc<dyn ErasedTool>>);

impl Tools {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`ValueError`] when its name is taken or can't be used.
    pub fn with<T: Tool>(mut self, tool: T) -> Result<Self, ValueError> {
        let fits = (1..=64).contains(&T::NAME.len()) && T::NAME.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !fits {
            let what = format!("tool name {:?} must have 1 to 64 letters, digits and underscores", T::NAME);
            return Err(ValueError::new(what));
        }
        if self.0.insert(T::NAME, Arc::new(tool)).is_some() {
            return Err(ValueError::new(format!("there is a tool called {} already", T::NAME)));
        }
        Ok(self)
    }

    /// Describes each tool, sorted by name.
    pub fn describe(&self) -> Vec<ToolDescription> {
        self.0.values().map(|tool| tool.describe()).collect()
    }

    /// Their names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Those of them that have these names.
    #[must_use]
    pub fn only(&self, names: &BTreeSet<String>) -> Self {
        let wanted = self.0.iter().filter(|(name, _)| names.contains(**name));
        Self(wanted.map(|(name, tool)| (*name, Arc::clone(tool))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn ErasedTool>> {
        self.0.get(name)
    }
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
