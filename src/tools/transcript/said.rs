//! The texts in the records of a transcript: prompts, answers and reasoning.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::step::text;
use crate::engine::content_ref::CONTENT;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The person who prompted the agent, or the agent that started a subagent.
    User,
    /// The model.
    Assistant,
    /// The model, in its reasoning.
    Reasoning,
    /// The agent's program, such as in instructions and reminders.
    System,
}

impl MessageRole {
    /// Returns the role in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Reasoning => "reasoning",
            Self::System => "system",
        }
    }
}

/// A text in a record.
#[derive(Debug, Clone, PartialEq)]
pub struct SaidText {
    /// Its author.
    pub role: MessageRole,
    /// The text, or the mark of a content in its place.
    pub text: Value,
}

/// The model of a message, and the usage of the model's whole answer: all messages of an answer state the same. Each is
/// null if the transcript does not state it in the message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct MessageUsage {
    /// The model.
    pub model: Option<String>,
    /// The input tokens, including cached ones.
    pub input_tokens: Option<u64>,
    /// The output tokens.
    pub output_tokens: Option<u64>,
    /// The cost in US dollars.
    pub cost: Option<f64>,
}

/// Tags around the text that a person typed.
const TYPED: [&str; 4] = ["task", "user_query", "user_input", "feedback"];
/// Starts of texts that agents add on behalf of the person.
const ADDED: [&str; 11] = [
    "<environment_",
    "<system-reminder>",
    "<system_",
    "<local-command-",
    "<command-",
    "<task-notification>",
    "<user_instructions>",
    "<user_info>",
    "<permissions instructions>",
    "# AGENTS.md instructions",
    "[Request interrupted",
];

/// Returns the texts in a record, in order. Long texts may still be marks of contents.
pub fn said(record: &Value) -> Vec<SaidText> {
    let mut said = Vec::new();
    let kind = text(record, "type");
    let role = role_of(record);
    if record["messageID"].is_string() {
        // A part of a message of OpenCode. Only parts of the model have times.
        let role = match kind {
            "reasoning" => MessageRole::Reasoning,
            "text" if record["synthetic"] == true => MessageRole::System,
            "text" if record["time"]["start"].is_null() => MessageRole::User,
            "text" => MessageRole::Assistant,
            _ => return said,
        };
        add(&mut said, role, &record["text"]);
    } else if kind == "event_msg" {
        // Codex repeats messages as events.
    } else if record["payload"]["type"] == "reasoning" {
        add_all(&mut said, MessageRole::Reasoning, &record["payload"]["summary"]);
    } else if let Some(role) = role {
        let bodies = [record, &record["message"], &record["payload"], &record["llm_message"], &record["data"]];
        for body in bodies {
            for name in ["thoughts", "reasoningText", "reasoning_content", "reasoning"] {
                add_all(&mut said, MessageRole::Reasoning, &body[name]);
            }
        }
        // An ATIF step has its text in `message`.
        let contents = bodies.map(|body| &body["content"]).into_iter().chain([&record["message"]]);
        if let Some(content) = contents.into_iter().find(|content| content.is_array() || is_text(content)) {
            add_all(&mut said, role, content);
        }
    } else {
        add_unnamed(&mut said, record);
    }
    said
}

/// Adds the texts of a record that names no author.
fn add_unnamed(said: &mut Vec<SaidText>, record: &Value) {
    if record["event"] == "model" {
        add(said, MessageRole::Assistant, &record["output"]["completion"]);
    } else if !record["response"].is_null() {
        add(said, MessageRole::Assistant, &record["response"]);
    } else if record["thought"].is_array() {
        add(said, MessageRole::Reasoning, &record["reasoning_content"]);
        add_all(said, MessageRole::Assistant, &record["thought"]);
    } else if record["system_prompt"].is_object() {
        add(said, MessageRole::System, &record["system_prompt"]["text"]);
    } else if !record["epoch"].is_null() && record["messages"].is_array() {
        add(said, MessageRole::User, &record["input"]);
    }
    // SWE-agent's document ends with the prompts.
    said.extend(
        record["history"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|said| said["role"].is_string())
            .flat_map(said_in_history),
    );
}

fn said_in_history(record: &Value) -> Vec<SaidText> {
    let mut said = Vec::new();
    if let Some(role) = role_of(record).filter(|role| *role != MessageRole::Assistant) {
        add_all(&mut said, role, &record["content"]);
    }
    said
}

fn role_of(record: &Value) -> Option<MessageRole> {
    if record["isMeta"] == true || record["isCompactSummary"] == true {
        return Some(MessageRole::System);
    }
    let stated = ["message", "payload", "llm_message"].map(|name| text(&record[name], "role"));
    let is_step = !record["step_id"].is_null();
    let names = [text(record, "role"), if is_step { text(record, "source") } else { "" }];
    let mut names = names.into_iter().chain(stated).chain([text(record, "type")]);
    names.find_map(|name| match name {
        "user" | "user.message" => Some(MessageRole::User),
        "assistant" | "assistant.message" | "gemini" | "agent" => Some(MessageRole::Assistant),
        "system" | "developer" | "system.message" => Some(MessageRole::System),
        _ => None,
    })
}

/// Adds a text, or the texts of a list of parts.
fn add_all(said: &mut Vec<SaidText>, role: MessageRole, content: &Value) {
    add(said, role, content);
    for part in content.as_array().into_iter().flatten() {
        let (role, of_reasoning) = match text(part, "type") {
            "thinking" | "reasoning" => (MessageRole::Reasoning, ["thinking", "reasoning"]),
            _ => (role, ["text", "description"]),
        };
        let texts = [part].into_iter().chain(of_reasoning.iter().map(|name| &part[*name])).chain([&part["text"]]);
        if let Some(text) = texts.into_iter().find(|text| is_text(text)) {
            add(said, role, text);
        }
    }
}

fn add(said: &mut Vec<SaidText>, role: MessageRole, text: &Value) {
    if is_text(text) {
        said.push(SaidText { role, text: text.clone() });
    }
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.get(CONTENT).is_some()
}

/// Returns the author and the typed part of a text. Agents wrap what a person typed, and add texts in their name.
pub fn as_typed(role: MessageRole, text: &str) -> (MessageRole, &str) {
    let text = text.trim();
    if role != MessageRole::User {
        return (role, text);
    }
    let inner = TYPED.iter().find_map(|tag| {
        let (attributes, rest) = text.strip_prefix(&format!("<{tag}"))?.split_once('>')?;
        let is_tag = attributes.is_empty() || attributes.starts_with(' ');
        rest.trim_end().strip_suffix(&format!("</{tag}>")).filter(|_| is_tag)
    });
    match inner {
        Some(inner) => (role, inner.trim()),
        None if ADDED.iter().any(|start| text.starts_with(start)) => (MessageRole::System, text),
        None => (role, text),
    }
}

/// Returns the model and the usage that a record states.
pub fn usage_of(record: &Value) -> MessageUsage {
    let models = [
        &record["message"]["model"],
        &record["model"],
        &record["data"]["model"],
        &record["model_name"],
        &record["modelInfo"]["id"],
        &record["modelInfo"]["modelId"],
    ];
    let usages = [
        &record["message"]["usage"],
        &record["output"]["usage"],
        &record["tokens"],
        &record["metrics"],
        &record["data"],
    ];
    let number = |names: &[&str]| usages.iter().find_map(|usage| names.iter().find_map(|name| usage[*name].as_u64()));
    let cached: u64 = ["cache_read_input_tokens", "cache_creation_input_tokens"]
        .iter()
        .filter_map(|name| record["message"]["usage"][*name].as_u64())
        .fold(0, u64::saturating_add);
    MessageUsage {
        model: models.into_iter().find_map(Value::as_str).map(str::to_owned),
        input_tokens: number(&["input_tokens", "input", "prompt_tokens"]).map(|input| input.saturating_add(cached)),
        output_tokens: number(&["output_tokens", "output", "completion_tokens", "outputTokens"]),
        cost: [&record["extra"]["cost"], &record["metrics"]["cost_usd"]].into_iter().find_map(Value::as_f64),
    }
}
