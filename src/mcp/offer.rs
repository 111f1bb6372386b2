//! The tools as clients see them.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::Schema;
use serde_json::Value;

use super::client::Client;
use super::{ToolGroup, orchestrate};
use crate::backends::WorkspaceSpec;
use crate::tools::{Effect, ToolDescription};

/// What a client may call: of the workspace's tools those that are offered and that its session may use, and those for
/// sessions.
pub(super) fn tools(client: &Client) -> Vec<Tool> {
    let limited = limited(client);
    let may_use = |name: &str| limited.as_ref().is_none_or(|names| names.contains(name));
    let world = is_open(&client.workspace());
    let known = client.hub().options().tools.describe();
    let offered = known.into_iter().filter(|tool| client.options().offers(tool.name) && may_use(tool.name));
    let mut tools: Vec<Tool> = offered.map(|tool| of_workspace(tool, world)).collect();
    if client.options().reaches_all() {
        tools.extend(orchestrate::tools().into_iter().filter(|tool| may_use(&tool.name)));
    }
    tools
}

/// Whether a workspace's tool of that name is there and offered.
pub(super) fn has(client: &Client, name: &str) -> bool {
    client.options().offers(name) && client.hub().options().tools.names().any(|known| known == name)
}

/// Whether the client may use the tool of that name for sessions, if there is one.
pub(super) fn has_session_tool(client: &Client, name: &str) -> bool {
    client.options().reaches_all() && limited(client).is_none_or(|names| names.contains(name))
}

/// The only tools that the client's session may use, where that is limited.
fn limited(client: &Client) -> Option<BTreeSet<String>> {
    client.known()?.limits().tools.clone()
}

/// Whether commands reach anything but the workspace: this machine, or the network.
fn is_open(spec: &WorkspaceSpec) -> bool {
    match spec {
        WorkspaceSpec::Host(_) => true,
        WorkspaceSpec::Podman(options) => options.network,
        WorkspaceSpec::Memory | WorkspaceSpec::Mock(_) => false,
    }
}

fn of_workspace(tool: ToolDescription, world: bool) -> Tool {
    let group = ToolGroup::of(tool.name);
    let runs = !matches!(group, Some(ToolGroup::Files));
    // What can't be done twice fails the second time, and a failure changes nothing. An edit may fit again.
    let is_idempotent = tool.effect == Effect::ReadOnly || matches!(tool.name, "write_file" | "rm");
    let hints = ToolAnnotations::new()
        .read_only(tool.effect == Effect::ReadOnly)
        .destructive(tool.effect == Effect::Destructive)
        .idempotent(is_idempotent)
        .open_world(runs && world);
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

fn object(schema: &Schema) -> Arc<JsonObject> {
    match schema.as_value() {
        Value::Object(fields) => Arc::new(fields.clone()),
        // `true`: anything.
        _ => Arc::default(),
    }
}
