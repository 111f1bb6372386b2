//! Policies for tools: set for a session, and removed.

use serde_json::Value;

use crate::engine::error::ValueError;
use crate::engine::event::ToolPolicySet;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{ToolPolicy, ToolRules};
use crate::tools::error::WorkspaceError;

/// Sets a session's own policy, or removes it; the policies of its ancestors bind it, too. The same policy again changes
/// nothing; another one counts calls from 0. `is_tool` returns true for an existing tool.
///
/// # Errors
/// [`ToolPolicy::check`], and errors of the store. Nothing is recorded then.
pub fn set_tool_policy(
    session: &Session,
    policy: Option<&ToolPolicy>,
    is_tool: impl Fn(&str) -> bool,
) -> Result<ToolRules, WorkspaceError> {
    session.check_own()?;
    let event = match policy {
        Some(policy) => tool_policy_event(policy, is_tool)?,
        None => ToolPolicySet { policy: Value::Null, inherited: None },
    };
    let rules = ToolRules::of(&session.state()?);
    if rules.own.as_ref().map(|own| &own.policy) == policy {
        return Ok(rules);
    }
    let mut commit = session.commit();
    commit.push(&event).map_err(SessionError::from)?;
    session.record(commit)?;
    Ok(ToolRules::of(&session.state()?))
}

/// Returns the event of a policy, for a new child.
///
/// # Errors
/// [`ToolPolicy::check`].
pub fn tool_policy_event(policy: &ToolPolicy, is_tool: impl Fn(&str) -> bool) -> Result<ToolPolicySet, ValueError> {
    policy.check(is_tool)?;
    let policy = serde_json::to_value(policy).map_err(|error| ValueError::new(error.to_string()))?;
    Ok(ToolPolicySet { policy, inherited: None })
}
