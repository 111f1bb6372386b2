//! The tools with their schemas, shared by all clients.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::ToolGroup;
use crate::hub::operations::{OperationEffect, OperationEntry, OperationTool, TooLong, operations};
use crate::tools::{Effect, ToolDescription, Tools};

pub(super) struct Offered {
    pub(super) workspace: Vec<Tool>,
    pub(super) sessions: Vec<Tool>,
}

impl Offered {
    /// Describes the workspace tools and session tools of `groups`.
    pub(super) fn new(tools: &Tools, groups: &BTreeSet<ToolGroup>) -> Self {
        let known = tools.describe().into_iter();
        let workspace = known
            .filter(|tool| ToolGroup::of(&tool.name).is_none_or(|group| groups.contains(&group)))
            .map(of_workspace)
            .collect();
        let sessions = if groups.contains(&ToolGroup::Sessions) { session_tools() } else { Vec::new() };
        Self { workspace, sessions }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Tool> {
        self.workspace.iter().chain(&self.sessions)
    }
}

/// Returns the operations that are tools.
pub(super) fn operation_tools() -> impl Iterator<Item = (&'static OperationEntry, OperationTool)> {
    operations().iter().filter_map(|entry| Some((entry, entry.tool?)))
}

fn session_tools() -> Vec<Tool> {
    let mut tools: Vec<Tool> = operation_tools().map(|(entry, tool)| offered(entry, tool)).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

fn hints(effect: OperationEffect) -> ToolAnnotations {
    let hints = ToolAnnotations::new();
    match effect {
        OperationEffect::Looks => hints.read_only(true).destructive(false).idempotent(true).open_world(false),
        OperationEffect::Adds => hints.read_only(false).destructive(false).idempotent(false).open_world(false),
        OperationEffect::Changes => hints.read_only(false).destructive(true).idempotent(false).open_world(false),
        // The command has the same access as the session's own commands.
        OperationEffect::Runs => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
    }
}

fn offered(entry: &'static OperationEntry, tool: OperationTool) -> Tool {
    let mut params = root(entry.params, SchemaSettings::default());
    params.remove("description");
    if let Some(fields) = params.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !tool.hidden.contains(&&**name));
        let (name, about) = tool.session;
        fields.shift_insert(0, name.to_owned(), json!({ "type": ["string", "null"], "description": about }));
    }
    let mut output = root(entry.output, SchemaSettings::default().for_serialize());
    if let (TooLong::Cut(_), Some(Value::Object(fields))) = (tool.too_long, output.get_mut("properties")) {
        let about = "Fields that were cut because the result is too long, with the amount that remains of each. \
                     Omitted if nothing was cut.";
        let list = json!({ "type": "array", "items": { "type": "string" }, "description": about });
        fields.insert("shortened".to_owned(), list);
    }
    described(tool.name, &*entry.about, params.into(), output.into(), hints(tool.effect))
}

fn root(make: fn(&mut SchemaGenerator) -> Schema, settings: SchemaSettings) -> JsonObject {
    let mut generator = settings.into_generator();
    let schema = make(&mut generator);
    let mut definitions = generator.take_definitions(true);
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next());
    let own = name.and_then(|name| definitions.shift_remove(name));
    let mut schema = own.unwrap_or(schema.into()).as_object_mut().map(std::mem::take).unwrap_or_default();
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    schema
}

pub(super) fn of_workspace(tool: ToolDescription) -> Tool {
    let group = ToolGroup::of(&tool.name);
    let runs = !matches!(group, Some(ToolGroup::Files));
    // A repeated edit may match again, and a repeated write append again; other repeated calls change nothing.
    let is_idempotent = tool.effect == Effect::ReadOnly || matches!(&*tool.name, "rm" | "which" | "env");
    let hints = ToolAnnotations::new()
        .read_only(tool.effect == Effect::ReadOnly)
        .destructive(tool.effect == Effect::Destructive)
        .idempotent(is_idempotent)
        .open_world(runs);
    described(tool.name, tool.description, tool.params, tool.output, hints)
}

fn described(
    name: impl Into<Cow<'static, str>>,
    description: impl Into<Cow<'static, str>>,
    params: Schema,
    output: Schema,
    hints: ToolAnnotations,
) -> Tool {
    let mut params = object(params);
    // Some clients expect it even for a tool without parameters.
    Arc::make_mut(&mut params).entry("properties").or_insert_with(|| json!({}));
    Tool::new(name, description, params).with_raw_output_schema(object(output)).with_annotations(hints)
}

fn object(mut schema: Schema) -> Arc<JsonObject> {
    RecursiveTransform(without_width).transform(&mut schema);
    // A boolean schema (`true`) becomes an empty object.
    Arc::new(schema.as_object_mut().map(std::mem::take).unwrap_or_default())
}

/// Removes the number formats, since clients complain about unknown formats.
fn without_width(schema: &mut Schema) {
    let format = schema.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| ["uint", "int", "double", "float"].iter().any(|width| format.starts_with(width))) {
        schema.remove("format");
    }
}
