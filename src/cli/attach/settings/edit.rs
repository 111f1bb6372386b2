//! Adds hooks to the text of settings, and removes them. The rest of the text stays as it is.

use foldspace::tools::AgentKind;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

use super::hooks::{HookCommands, PLUGIN_MARK, is_ours};

/// Reasons why settings can't be edited.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnfitSettings {
    #[error("invalid JSON: {0}")]
    NoJson(String),
    #[error("{0} is not {1}")]
    Unlike(String, &'static str),
    #[error("the file is another plugin")]
    OtherPlugin,
}

const BOM: char = '\u{feff}';

/// Returns the text with the hooks, unchanged if it already has them.
pub(super) fn with_hooks(
    text: Option<&str>,
    agent: AgentKind,
    commands: &HookCommands,
) -> Result<String, UnfitSettings> {
    if agent == AgentKind::OpenCode {
        return match text {
            Some(text) if !text.starts_with(PLUGIN_MARK) => Err(UnfitSettings::OtherPlugin),
            _ => Ok(commands.plugin()),
        };
    }
    let (bom, body) = split_bom(text.unwrap_or_default());
    let root = parse(body)?;
    if has_exactly(&root, agent, commands) {
        return Ok(text.unwrap_or_default().to_owned());
    }
    strip(&root, agent);
    let settings = object(root.object_value_or_create(), "the document")?;
    if agent == AgentKind::Copilot && settings.get("version").is_none() {
        settings.append("version", input(&1.into()));
    }
    let hooks = object(settings.object_value_or_create("hooks"), "\"hooks\"")?;
    for (event, entry) in commands.entries() {
        let entries = hooks.array_value_or_create(event);
        let entries = entries.ok_or_else(|| UnfitSettings::Unlike(format!("{event:?}"), "a list"))?;
        entries.ensure_multiline();
        entries.append(input(&entry));
    }
    Ok(format!("{bom}{root}"))
}

/// Returns the text without the hooks; `None` if the file is our plugin.
pub(super) fn without_hooks(text: &str, agent: AgentKind) -> Result<Option<String>, UnfitSettings> {
    if agent == AgentKind::OpenCode {
        return Ok((!text.starts_with(PLUGIN_MARK)).then(|| text.to_owned()));
    }
    let (bom, body) = split_bom(text);
    let root = parse(body)?;
    strip(&root, agent);
    Ok(Some(format!("{bom}{root}")))
}

fn split_bom(text: &str) -> (&str, &str) {
    match text.strip_prefix(BOM) {
        Some(body) => text.split_at(text.len() - body.len()),
        None => ("", text),
    }
}

fn parse(text: &str) -> Result<CstRootNode, UnfitSettings> {
    // Agents accept only these extensions of JSON.
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    CstRootNode::parse(text, &options).map_err(|error| UnfitSettings::NoJson(error.to_string()))
}

fn object(found: Option<CstObject>, what: &str) -> Result<CstObject, UnfitSettings> {
    found.ok_or_else(|| UnfitSettings::Unlike(what.to_owned(), "an object"))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(values) => {
            CstInputValue::Object(values.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

/// Returns the lists of hooks in the settings, with their events.
fn lists(root: &CstRootNode) -> Vec<(String, CstArray)> {
    let hooks = root.object_value().and_then(|settings| settings.object_value("hooks"));
    let events = hooks.map(|hooks| hooks.properties()).unwrap_or_default();
    events.iter().filter_map(|event| Some((event.decoded_name()?, event.array_value()?))).collect()
}

/// Returns true if our entries are exactly the wanted ones, in any order among other entries.
fn has_exactly(root: &CstRootNode, agent: AgentKind, commands: &HookCommands) -> bool {
    let ours = |entry: &CstNode| !own(entry, agent).is_empty();
    let found = lists(root).into_iter().flat_map(|(event, list)| {
        let entries = list.elements().into_iter().filter(ours);
        entries.map(move |entry| (event.clone(), entry.to_serde_value())).collect::<Vec<_>>()
    });
    let mut wanted: Vec<_> = commands.entries().map(|(event, entry)| (event.to_owned(), Some(entry))).collect();
    for entry in found {
        let Some(at) = wanted.iter().position(|wanted| *wanted == entry) else { return false };
        wanted.remove(at);
    }
    wanted.is_empty()
}

/// Returns our hooks in an entry: the entry itself, or hooks in its list.
fn own(entry: &CstNode, agent: AgentKind) -> Vec<CstNode> {
    let is_hook = |node: &CstNode| {
        let node = node.as_object();
        let command = node.and_then(|hook| hook.get("command").or_else(|| hook.get("bash"))?.value()?.as_string_lit());
        command.and_then(|command| command.decoded_value().ok()).is_some_and(|command| is_ours(&command, agent))
    };
    if is_hook(entry) {
        return vec![entry.clone()];
    }
    let hooks = entry.as_object().and_then(|group| group.array_value("hooks"));
    hooks.map(|hooks| hooks.elements()).unwrap_or_default().into_iter().filter(is_hook).collect()
}

/// Removes our hooks, and lists that become empty.
fn strip(root: &CstRootNode, agent: AgentKind) {
    let Some(settings) = root.object_value() else { return };
    let Some(hooks) = settings.object_value("hooks") else { return };
    let is_bare = |children: Vec<CstNode>| {
        children.iter().all(|node| node.is_token() || node.is_whitespace() || node.is_newline())
    };
    let mut has_changed = false;
    for event in hooks.properties() {
        let Some(list) = event.array_value() else { continue };
        let mut had_own = false;
        for entry in list.elements() {
            let own = own(&entry, agent);
            let group = entry.as_object().and_then(|group| group.array_value("hooks"));
            let all = group.map_or(1, |group| group.elements().len());
            had_own |= !own.is_empty();
            match own.len() {
                0 => {}
                count if count == all => entry.remove(),
                _ => own.into_iter().for_each(CstNode::remove),
            }
        }
        if had_own && is_bare(list.children()) {
            event.remove();
        }
        has_changed |= had_own;
    }
    if has_changed
        && is_bare(hooks.children())
        && let Some(property) = settings.get("hooks")
    {
        property.remove();
    }
}
