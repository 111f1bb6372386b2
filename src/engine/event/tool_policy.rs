//! Event of a session's policy for tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Event of a policy for tools that is set or removed. In a child's first commit it also has the policies that bind the
/// child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPolicySet {
    /// The session's own policy as JSON; null removes it.
    pub policy: Value,
    /// The present policies of the parent, outermost first, if they differ from those in the child's past; they replace
    /// those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Vec<Value>>,
}
