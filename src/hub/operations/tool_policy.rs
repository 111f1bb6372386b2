//! The policy for the tools of a session. Models have no tool for it: a model must not set its own policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, operations, reading};
use crate::engine::event::ToolPolicySet;
use crate::engine::id::{Seq, SessionId};
use crate::engine::state::State;
use crate::hub::Hub;
use crate::reducers::{PolicyInForce, ToolPolicy, ToolRules};
use crate::tools::{FileWork, process, remove_tool_policy, set_tool_policy, tool_policy_event};

/// The policies that bind a session's calls.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Policies")]
pub struct PolicyDocument {
    /// The session's own policy, or null.
    pub policy: Option<ToolPolicy>,
    /// The position of the event that set it, or null.
    pub since: Option<Seq>,
    /// The calls since then of each tool with a limit.
    pub calls: BTreeMap<String, u64>,
    /// The policies of the session's ancestors, outermost first. They bind its calls, too.
    pub inherited: Vec<ToolPolicy>,
}

impl PolicyDocument {
    /// Returns the policies of a state.
    pub fn of(state: &State) -> Self {
        Self::of_rules(ToolRules::of(state))
    }

    fn of_rules(rules: ToolRules) -> Self {
        let inherited = rules.inherited.into_iter().map(|one| one.policy).collect();
        match rules.own {
            None => Self { policy: None, since: None, calls: BTreeMap::new(), inherited },
            Some(PolicyInForce { policy, since, calls, .. }) => {
                Self { policy: Some(policy), since: Some(since), calls, inherited }
            }
        }
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
        reading(move || Ok(PolicyDocument::of(&session.state()?))).await
    }
}

/// Sets a session's own policy for tools, in place of an earlier one. Each call from then on obeys it, and the policies
/// of the session's ancestors. Setting an equal policy changes nothing; another one counts calls from 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SetPolicy(ToolPolicy);

impl Operation for SetPolicy {
    const NAME: &'static str = "set_policy";
    const ROUTE: Option<OperationRoute> = OperationRoute::put("policy", PATH, 200);
    type Output = PolicyDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<PolicyDocument, OperationError> {
        let (session, hub) = (context.session().await?, context.hub.clone());
        reading(move || {
            let id = Some(session.id());
            Ok(PolicyDocument::of_rules(set_tool_policy(&session, &self.0, |tool| is_tool(&hub, id, tool))?))
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
        reading(move || match remove_tool_policy(&session)? {
            Some(_) => Ok(()),
            None => Err(OperationError::not_found("the session has no policy of its own for tools")),
        })
        .await
    }
}

const PATH: &str = "/v1/sessions/{session}/policy";

/// Checks the policy of a new session, and returns the event that sets it.
pub(super) fn of_new(hub: &Hub, policy: Option<&ToolPolicy>) -> Result<Option<ToolPolicySet>, OperationError> {
    let event = policy.map(|policy| tool_policy_event(policy, |tool| is_tool(hub, None, tool)));
    Ok(event.transpose()?)
}

/// Returns true for the name of a tool, or of a call that only clients or models make.
fn is_tool(hub: &Hub, session: Option<SessionId>, name: &str) -> bool {
    let is_operation = || operations().iter().any(|one| one.tool.is_some_and(|tool| tool.name == name));
    hub.options().tools.find(name, session).is_some()
        || FileWork::is_name(name)
        || name == process::START
        || is_operation()
}
