//! The tools as clients see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;

use super::client::{McpClient, ServerState};
use super::{ToolGroup, session_tools};
use crate::backends::WorkspaceSpec;
use crate::tools::{Effect, ToolDescription};

/// All tools of a server with their schemas, which are the same for every client.
pub(super) struct Offered {
    workspace: Vec<Tool>,
    sessions: Vec<Tool>,
}

impl Offered {
    fn new(shared: &ServerState) -> Self {
        let groups = &shared.options.groups;
        let known = shared.hub.options().tools.describe().into_iter();
        let workspace = known
            .filter(|tool| ToolGroup::of(tool.name).is_none_or(|group| groups.contains(&group)))
            .map(of_workspace)
            .collect();
        let sessions = if groups.contains(&ToolGroup::Sessions) { session_tools::tools() } else { Vec::new() };
        Self { workspace, sessions }
    }

    fn of(shared: &ServerState) -> &Self {
        shared.offered.get_or_init(|| Self::new(shared))
    }
}

/// Returns the tools that a client may call: of the workspace's tools those that are offered and that its session may use, and those for
/// sessions.
pub(super) fn tools(client: &McpClient) -> Vec<Tool> {
    let (limited, offered, workspace) = (limited(client), Offered::of(&client.shared), client.workspace());
    let may_use = |tool: &&Tool| limited.as_ref().is_none_or(|names| names.contains(&*tool.name));
    let can_work = |tool: &&Tool| client.offers(&tool.name) && can_work(&workspace, &tool.name);
    let mut tools: Vec<Tool> = offered.workspace.iter().filter(can_work).filter(may_use).cloned().collect();
    if !is_open(&workspace) {
        for hints in tools.iter_mut().filter_map(|tool| tool.annotations.as_mut()) {
            hints.open_world_hint = Some(false);
        }
    }
    if client.reaches_all() {
        tools.extend(offered.sessions.iter().filter(may_use).cloned());
    }
    tools
}

/// Tells whether a tool can do anything in a workspace. A call of one that can't is told why.
fn can_work(spec: &WorkspaceSpec, tool: &str) -> bool {
    match (ToolGroup::of(tool), spec) {
        (Some(ToolGroup::Shell | ToolGroup::Python), WorkspaceSpec::Memory) => false,
        (Some(ToolGroup::PodmanShell), spec) => matches!(spec, WorkspaceSpec::Podman(_)),
        _ => true,
    }
}

/// The tool of that name, if it is offered.
pub(super) fn tool(client: &McpClient, name: &str) -> Option<Tool> {
    let offered = Offered::of(&client.shared);
    offered.workspace.iter().chain(&offered.sessions).find(|tool| tool.name == name).cloned()
}

/// Tells whether the tool of that name only reads; none where it is not offered.
pub(super) fn only_reads(shared: &ServerState, name: &str) -> Option<bool> {
    let offered = Offered::of(shared);
    let tool = offered.workspace.iter().chain(&offered.sessions).find(|tool| tool.name == name)?;
    Some(tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint == Some(true)))
}

/// Tells whether a workspace's tool of that name is there and offered.
pub(super) fn has(client: &McpClient, name: &str) -> bool {
    client.offers(name) && client.hub().options().tools.names().any(|known| known == name)
}

/// Tells whether the client may use the tool of that name for sessions, if there is one.
pub(super) fn has_session_tool(client: &McpClient, name: &str) -> bool {
    client.reaches_all() && limited(client).is_none_or(|names| names.contains(name))
}

/// The only tools that the client's session may use, where that is limited.
fn limited(client: &McpClient) -> Option<BTreeSet<String>> {
    client.known()?.limits().tools.clone()
}

/// Tells whether commands reach anything but the workspace: this machine, or the network.
fn is_open(spec: &WorkspaceSpec) -> bool {
    match spec {
        WorkspaceSpec::Host(_) => true,
        WorkspaceSpec::Podman(options) => options.network,
        WorkspaceSpec::Memory | WorkspaceSpec::Mock(_) => false,
    }
}

fn of_workspace(tool: ToolDescription) -> Tool {
    let group = ToolGroup::of(tool.name);
    let runs = !matches!(group, Some(ToolGroup::Files));
    // What can't be done twice fails the second time, and a failure changes nothing. An edit may fit again.
    let is_idempotent = tool.effect == Effect::ReadOnly || matches!(tool.name, "write_file" | "rm");
    let hints = ToolAnnotations::new()
        .read_only(tool.effect == Effect::ReadOnly)
        .destructive(tool.effect == Effect::Destructive)
        .idempotent(is_idempotent)
        .open_world(runs);
    described(tool.name, tool.description, &tool.params, &tool.output, hints)
}

/// A tool with its schemas.
pub(super) fn described(
    name: &'static str,
    description: &'static str,
    params: &Schema,
    output: &Schema,
    hints: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, object(params)).with_raw_output_schema(object(output)).with_annotations(hints)
}

/// A schema as JSON.
fn object(schema: &Schema) -> Arc<JsonObject> {
    let mut schema = schema.clone();
    RecursiveTransform(without_width).transform(&mut schema);
    match schema.as_value() {
        Value::Object(fields) => Arc::new(fields.clone()),
        // `true`: anything.
        _ => Arc::default(),
    }
}

/// Takes the width of a number in Rust from its schema: clients do not know such formats, and complain of each.
fn without_width(schema: &mut Schema) {
    let format = schema.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| ["uint", "int", "double", "float"].iter().any(|width| format.starts_with(width))) {
        schema.remove("format");
    }
}
