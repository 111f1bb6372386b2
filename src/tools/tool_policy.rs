//! Policies for tools: set for a session, and removed.

use crate::engine::error::ValueError;
use crate::engine::event::ToolPolicySet;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{ToolPolicy, ToolRules};
use crate::tools::error::WorkspaceError;

/// Sets a session's own policy. The policies of its ancestors bind it, too. The same policy again changes nothing;
/// another one counts calls from 0. Returns all policies.
///
/// # Errors
/// [`ToolPolicy::check`], and errors of the store. Nothing is recorded then.
pub fn set_tool_policy(
    session: &Session,
    policy: &ToolPolicy,
    is_tool: impl Fn(&str) -> bool,
) -> Result<ToolRules, WorkspaceError> {
    session.check_own()?;
    let event = tool_policy_event(policy, is_tool)?;
    let rules = ToolRules::of(&session.state()?);
    if rules.own.as_ref().is_some_and(|own| own.policy == *policy) {
        return Ok(rules);
    }
    record(session, &event)
}

/// Removes a session's own policy. Returns the remaining policies, of its ancestors; `None` if it has no own policy.
///
/// # Errors
/// Errors of the store.
pub fn remove_tool_policy(session: &Session) -> Result<Option<ToolRules>, WorkspaceError> {
    session.check_own()?;
    match ToolRules::of(&session.state()?).own {
        Some(_) => record(session, &ToolPolicySet { policy: serde_json::Value::Null, inherited: None }).map(Some),
        None => Ok(None),
    }
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

fn record(session: &Session, event: &ToolPolicySet) -> Result<ToolRules, WorkspaceError> {
    let mut commit = session.commit();
    commit.push(event).map_err(SessionError::from)?;
    session.record(commit)?;
    Ok(ToolRules::of(&session.state()?))
}
