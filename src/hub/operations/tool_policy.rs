//! The policy for the tools of a session. Models have no tool for it: a model must not set its own policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, operations, reading};

use crate::engine::event::ToolPolicySet;
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::hub::Hub;
use crate::reducers::{ToolPolicy, ToolRules};
use crate::tools::{FileWork, set_tool_policy, tool_policy_event};

/// The policies that bind a session's calls.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Policies")]
pub struct PolicyDocument {
    /// The session's own policy, or null.
    pub policy: Option<ToolPolicy>,
    /// The policies of the session's ancestors, outermost first.
    pub inherited: Vec<ToolPolicy>,
}

impl From<ToolRules> for PolicyDocument {
    fn from(ToolRules { own, inherited, .. }: ToolRules) -> Self {
        let inherited = inherited.into_iter().map(|one| one.policy).collect();
        Self { policy: own.map(|own| own.policy), inherited }
    }
}

/// Returns the policies that bind a session's calls: its own, and those of its ancestors.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowPolicy {}

impl Operation for ShowPolicy {
    const NAME: &'static str = "show_policy";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("policy", PATH);
    type Output = PolicyDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<PolicyDocument, OperationError> {
        let session = context.session().await?;
        reading(move || Ok(ToolRules::of(&session.state()?).into())).await
    }
}

/// Sets the session's own policy, in place of an earlier one.
impl Operation for ToolPolicy {
    const NAME: &'static str = "set_policy";
    const ROUTE: Option<OperationRoute> = OperationRoute::put("policy", PATH, 200);
    type Output = PolicyDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<PolicyDocument, OperationError> {
        let (session, hub) = (context.session().await?, context.hub.clone());
        reading(move || {
            let is_tool = |tool: &str| is_tool(&hub, Some(session.id()), tool);
            Ok(set_tool_policy(&session, Some(&self), is_tool)?.into())
        })
        .await
    }
}

/// Removes a session's own policy for tools. The policies of its ancestors stay.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovePolicy {}

impl Operation for RemovePolicy {
    const NAME: &'static str = "remove_policy";
    const ROUTE: Option<OperationRoute> = OperationRoute::delete("policy", PATH, 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let session = context.session().await?;
        reading(move || match ToolRules::of(&session.state()?).own {
            Some(_) => set_tool_policy(&session, None, |_| true).map(drop).map_err(Into::into),
            None => Err(OperationError::not_found("no policy for tools is set in this session")),
        })
        .await
    }
}

const PATH: &str = "/v1/sessions/{session}/policy";

/// Checks the policy of a new session, and returns the event that sets it.
#[doc(hidden)]
pub fn policy_of_new(hub: &Hub, policy: Option<&ToolPolicy>) -> Result<Option<ToolPolicySet>, OperationError> {
    let event = policy.map(|policy| tool_policy_event(policy, |tool| is_tool(hub, None, tool)));
    Ok(event.transpose()?)
}

/// Sets the policy of a session that was just created; a retry replaces no later policy.
#[doc(hidden)]
pub fn begin_policy(session: &Session, policy: Option<&ToolPolicy>) -> Result<(), OperationError> {
    match policy {
        Some(policy) if ToolRules::of(&session.state()?).changed == 0 => {
            Ok(set_tool_policy(session, Some(policy), |_| true).map(drop)?)
        }
        _ => Ok(()),
    }
}

/// Returns true for the name of a tool, or of a call that only clients or models make.
fn is_tool(hub: &Hub, session: Option<SessionId>, name: &str) -> bool {
    let is_operation = || operations().iter().any(|one| one.tool.is_some_and(|tool| tool.name == name));
    hub.options().tools.find(name, session).is_some() || FileWork::is_name(name) || is_operation()
}
