//! Tools that other programs register while they are connected.

use std::sync::Arc;

use super::Hub;
use super::operations::operations;
use crate::engine::error::ValueError;
use crate::engine::id::SessionId;
use crate::tools::{ErasedTool, Registration, check_name};

impl Hub {
    /// Offers tools in one session, or in all, until the result is dropped. Their names must be unused.
    #[doc(hidden)]
    pub fn register(
        &self,
        session: Option<SessionId>,
        tools: Vec<(String, Arc<dyn ErasedTool>)>,
    ) -> Result<Registration, ValueError> {
        let verbs = || operations().iter().filter_map(|verb| verb.tool);
        for (at, (name, _)) in tools.iter().enumerate() {
            check_name(name)?;
            if self.options().tools.names().any(|known| known == name) || verbs().any(|tool| tool.name == name) {
                return Err(ValueError::new(format!("tool {name} already exists; choose another name")));
            }
            if tools[..at].iter().any(|(other, _)| other == name) {
                return Err(ValueError::new(format!("tool {name} is registered twice")));
            }
        }
        self.shared.registrations.add(session, tools)
    }
}
