//! Tools of agents, by what they may change.

use crate::tools::rerun::foreign::ForeignTool;

/// The changes that a tool may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAccess {
    /// Nothing, whatever it is given.
    Reads,
    /// The files that its parameters name, and only if it succeeds.
    Edits,
    /// Anything.
    Writes,
}

impl ToolAccess {
    /// Returns the access of a tool, by its name. A tool that is not known may change anything.
    pub(crate) fn of(tool: &str) -> Self {
        match ForeignTool::named(tool) {
            Some(ForeignTool::Reads) => Self::Reads,
            Some(tool) if !tool.changes_when_failing() => Self::Edits,
            Some(_) | None => Self::Writes,
        }
    }
}
