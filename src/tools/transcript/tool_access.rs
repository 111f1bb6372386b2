//! The changes that agents' tools may make.

use crate::tools::rerun::foreign::ForeignTool;

/// The changes that a tool may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAccess {
    /// No changes, whatever the parameters are.
    Reads,
    /// Changes to the files that its parameters name, and only if it succeeds.
    Edits,
    /// Any changes.
    Writes,
}

impl ToolAccess {
    /// Returns the access of a tool by its name. An unknown tool may change anything.
    pub(crate) fn of(tool: &str) -> Self {
        match ForeignTool::named(tool) {
            Some(ForeignTool::Reads) => Self::Reads,
            Some(tool) if !tool.changes_when_failing() => Self::Edits,
            Some(_) | None => Self::Writes,
        }
    }
}
