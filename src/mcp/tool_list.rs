//! The tools that clients see.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::Tool;
use serde_json::json;

use super::ToolGroup;
use super::calls::SESSION;
use super::client::{McpClient, ServerState};
use super::offered::of_workspace;
use crate::backends::{PythonEvaluator, WorkspaceSpec};
use crate::reducers::ToolRules;
use crate::tools::Effect;

pub(super) fn tools(client: &McpClient) -> Vec<Tool> {
    let (limited, offered, workspace) = (limited(client), client.shared.offered(), client.workspace());
    let may_use = |tool: &&Tool| limited.as_ref().is_none_or(|names| names.contains(&*tool.name));
    let can_work = |tool: &&Tool| client.offers(&tool.name) && can_work(&workspace, &tool.name);
    let mut tools: Vec<Tool> = offered.workspace.iter().filter(can_work).filter(may_use).cloned().collect();
    tools.extend(registered(client).into_iter().filter(|tool| may_use(&tool)));
    if !is_open(&workspace) {
        for hints in tools.iter_mut().filter_map(|tool| tool.annotations.as_mut()) {
            hints.open_world_hint = Some(false);
        }
    }
    if client.reaches_all() {
        tools.iter_mut().filter(|tool| ToolGroup::of(&tool.name).is_some()).for_each(with_session);
        tools.extend(offered.sessions.iter().filter(may_use).cloned());
    }
    tools
}

/// Adds the parameter that selects a session other than the client's own.
fn with_session(tool: &mut Tool) {
    let fields = Arc::make_mut(&mut tool.input_schema).entry("properties").or_insert_with(|| json!({}));
    let about = "Works in another session, by name or id prefix, such as a session made by session_clone.";
    fields[SESSION] = json!({ "type": ["string", "null"], "description": about });
}

/// Returns true if a tool works in a workspace. Calls of other tools are refused with the reason.
fn can_work(spec: &WorkspaceSpec, tool: &str) -> bool {
    match (ToolGroup::of(tool), spec) {
        (Some(ToolGroup::Shell), WorkspaceSpec::Memory) => false,
        (Some(ToolGroup::Shell), WorkspaceSpec::Host(options)) => !options.files_only,
        (Some(ToolGroup::Python), WorkspaceSpec::Memory) => PythonEvaluator::program().is_some(),
        (Some(ToolGroup::PodmanShell), spec) => matches!(spec, WorkspaceSpec::Podman(_)),
        _ => true,
    }
}

/// Returns the tools that programs have registered for the client's session.
fn registered(client: &McpClient) -> Vec<Tool> {
    let session = client.known().map(|session| session.id());
    client.hub().options().tools.describe_registered(session).into_iter().map(of_workspace).collect()
}

pub(super) fn tool(client: &McpClient, name: &str) -> Option<Tool> {
    let offered = client.shared.offered();
    let own = offered.all().find(|tool| tool.name == name).cloned();
    own.or_else(|| registered(client).into_iter().find(|tool| tool.name == name))
}

/// Returns true if a tool only reads. `None` if it does not exist.
pub(super) fn only_reads(shared: &ServerState, name: &str) -> Option<bool> {
    let offered = shared.offered();
    let Some(tool) = offered.all().find(|tool| tool.name == name) else {
        return shared.hub.options().tools.effect_of_registered(name).map(|effect| effect == Effect::ReadOnly);
    };
    Some(tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true)))
}

pub(super) fn has(client: &McpClient, name: &str) -> bool {
    let tools = &client.hub().options().tools;
    let is_for_session = || client.known().is_some_and(|session| tools.find(name, Some(session.id())).is_some());
    client.offers(name) && (tools.find(name, None).is_some() || is_for_session())
}

pub(super) fn has_session_tool(client: &McpClient, name: &str) -> bool {
    client.reaches_all() && limited(client).is_none_or(|names| names.contains(name))
}

fn limited(client: &McpClient) -> Option<BTreeSet<String>> {
    let session = client.known()?;
    let allowed = session.state().ok().and_then(|state| ToolRules::of(&state).tools());
    match (session.limits().tools.clone(), allowed) {
        (Some(limited), Some(allowed)) => Some(&limited & &allowed),
        (limited, allowed) => limited.or(allowed),
    }
}

/// Returns true if commands reach this machine or the network.
fn is_open(spec: &WorkspaceSpec) -> bool {
    match spec {
        WorkspaceSpec::Host(_) => true,
        WorkspaceSpec::Podman(options) => options.network.is_on(),
        WorkspaceSpec::Memory | WorkspaceSpec::Mock(_) => false,
    }
}
