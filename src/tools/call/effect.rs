//! Effect that a tool may have.

use serde::Serialize;

/// What a tool may do to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It only looks.
    ReadOnly,
    /// It adds, and takes nothing away.
    Additive,
    /// It may change or remove what is there.
    Destructive,
}
