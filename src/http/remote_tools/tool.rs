//! The tools that a program registers at the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::RemoteContext;
use super::wire::ToolOffer;
use crate::engine::error::ValueError;
use crate::tools::{ErasedTool, Tool, check_name};

/// The tools that a program registers: the owner of the store calls them back, see
/// [`HttpClient::register_tools`](crate::http::HttpClient::register_tools).
#[derive(Clone, Default)]
pub struct RemoteTools(pub(super) BTreeMap<&'static str, Arc<dyn ErasedTool<RemoteContext>>>);

impl RemoteTools {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. A call is dropped when it is cancelled or times out.
    ///
    /// # Errors
    /// [`ValueError`] if its name is taken or invalid.
    pub fn with<T: Tool<RemoteContext>>(mut self, tool: T) -> Result<Self, ValueError> {
        check_name(T::NAME)?;
        if self.0.insert(T::NAME, Arc::new(tool)).is_some() {
            return Err(ValueError::new(format!("there is a tool called {} already", T::NAME)));
        }
        Ok(self)
    }

    pub(super) fn offers(&self) -> Vec<ToolOffer> {
        self.0.values().map(|tool| offer(tool.as_ref())).collect()
    }
}

fn offer(tool: &dyn ErasedTool<RemoteContext>) -> ToolOffer {
    let description = tool.describe();
    ToolOffer {
        name: description.name.into_owned(),
        description: description.description.into_owned(),
        effect: description.effect,
        params: description.params,
        output: description.output,
        limit_ms: tool.limit().map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    }
}

impl std::fmt::Debug for RemoteTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
