//! Messages made of calls and outcomes, as Cline, Cursor, Goose and samples of Inspect have them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::codex::stated_code;
use super::json_piece::packed;
use super::step::{EndedCall, StepKind, StepReceiver, content_text, params_of, text, time_of};
use super::{SourceRun, Transcript, TranscriptFormat};
use crate::engine::id::Digest;
use crate::tools::rerun::foreign::ForeignTool;

/// The number of calls read from a message.
pub(super) const CALLS_MAX: usize = 256;
/// The number of calls waiting for an outcome. They are searched linearly.
pub(super) const OPEN_MAX: usize = 1000;

/// The facts in a document besides its messages. A single message lacks these facts.
struct MessageForm<'h> {
    format: TranscriptFormat,
    agent: &'static str,
    /// The JSON pointer to the messages; empty if the document is the list of messages.
    messages: &'static str,
    id: &'h Value,
    began: &'h Value,
    directory: Option<&'h str>,
    version: &'h Value,
}

fn form_of(head: &Value) -> Option<MessageForm<'_>> {
    let is_message = |value: &Value, content: &Value| {
        matches!(text(value, "role"), "user" | "assistant") && (content.is_array() || content.is_string())
    };
    let form = |format, agent, messages| MessageForm {
        format,
        agent,
        messages,
        id: &Value::Null,
        began: &Value::Null,
        directory: None,
        version: &Value::Null,
    };
    let (first, goose, cline) = (&head[0], &head["working_dir"], &head["sessionId"]);
    let opening = &head["messages"][0];
    if goose.is_string() && head["conversation"].is_array() {
        let form = form(TranscriptFormat::Goose, "goose", "/conversation");
        return Some(MessageForm { id: &head["id"], began: &head["created_at"], directory: goose.as_str(), ..form });
    }
    if cline.is_string() && head["version"].is_number() && is_message(opening, &opening["content"]) {
        let form = form(TranscriptFormat::Cline, "cline", "/messages");
        let (began, version) = (&opening["ts"], &head["origin"]["version"]);
        return Some(MessageForm { id: cline, began, directory: head["cwd"].as_str(), version, ..form });
    }
    if first["role"] == "user" && is_message(first, &first["content"]) && is_task(&first["content"]) {
        let form = form(TranscriptFormat::Cline, "cline", "");
        return Some(MessageForm { began: &first["ts"], directory: stated_directory(&first["content"]), ..form });
    }
    let is_line = head.get("type").is_none() && is_message(head, &head["message"]["content"]);
    is_line.then(|| form(TranscriptFormat::Cursor, "cursor", ""))
}

fn is_task(content: &Value) -> bool {
    let shown = content_text(content);
    ["<task>", "<user_message>", "<environment_details>"].iter().any(|tag| shown.contains(tag))
}

/// Returns the working directory named in the environment details.
fn stated_directory(content: &Value) -> Option<&str> {
    let texts = content.as_array().map_or_else(Vec::new, |parts| parts.iter().map(|part| text(part, "text")).collect());
    texts.into_iter().find_map(|text| {
        let (_, rest) = text.split_once("# Current Work")?;
        let (_, rest) = rest.lines().next()?.split_once("Directory (")?;
        Some(rest.split_once(") Files")?.0)
    })
}

/// Returns the run of a message in a line.
pub(super) fn run_of_line(line: &Value, place: Option<&str>) -> Option<(TranscriptFormat, SourceRun)> {
    run_of(line, place).filter(|(format, _)| *format == TranscriptFormat::Cursor)
}

/// Returns the run of a document or a line. `place` is the id in the path of its file, for formats without one.
pub(super) fn run_of(head: &Value, place: Option<&str>) -> Option<(TranscriptFormat, SourceRun)> {
    let form = form_of(head)?;
    let id = match form.id.as_str().or(place) {
        Some(id) => id.to_owned(),
        // The first message stays the same as the run grows.
        None => Digest::of(head.get(0).unwrap_or(head).to_string().as_bytes()).to_string()[..16].to_owned(),
    };
    let directory = form.directory.map(str::to_owned);
    let run = SourceRun { agent: form.agent.to_owned(), id, parent: None, began: time_of(form.began), directory };
    Some((form.format, run))
}

/// A call without an outcome.
struct WaitingCall {
    id: String,
    /// True if the transcript lacks an id for the call. The next outcome without an id belongs to it.
    is_numbered: bool,
    is_shell: bool,
}

#[derive(Default)]
pub(super) struct MessageReader {
    begun: u64,
    open: VecDeque<WaitingCall>,
}

impl Transcript for MessageReader {
    fn line(&mut self, mut head: Value, steps: &mut StepReceiver<'_>) {
        let Some(form) = form_of(&head) else { return self.message(head, steps) };
        // Leave out the title, totals and change times: they change as the run grows.
        let stated = [("cwd", form.directory), ("version", form.version.as_str())];
        let facts = stated.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        steps.give(time_of(form.began), StepKind::Facts(facts.collect()));
        let messages = form.messages;
        match head.pointer_mut(messages).map(Value::take) {
            Some(Value::Array(messages)) => messages.into_iter().for_each(|message| self.message(message, steps)),
            Some(message) => self.message(message, steps),
            None => {}
        }
    }
}

impl MessageReader {
    pub(super) fn message(&mut self, message: Value, steps: &mut StepReceiver<'_>) {
        let at = ["ts", "created", "timestamp"].iter().find_map(|name| time_of(&message[*name]));
        let models = [&message["modelInfo"]["id"], &message["modelInfo"]["modelId"], &message["model"]];
        steps.facts(at, models.into_iter().find(|model| model.is_string()).map(|model| ("model", model)));
        if message["role"] == "assistant" {
            // The outcome of a call without an id is in the next message, or missing.
            self.open.retain(|call| !call.is_numbered);
        }
        let content = if message["message"].is_object() { &message["message"]["content"] } else { &message["content"] };
        let (mut begun, mut is_call, mut has_more) = (Vec::new(), false, content.is_string());
        for part in content.as_array().into_iter().flatten() {
            if begun.len() < CALLS_MAX
                && let Some(call) = begun_in(part)
            {
                begun.push(call);
            } else if let Some(ended) = self.ended_in(part) {
                is_call = true;
                steps.end(at, ended);
            } else {
                has_more = true;
            }
        }
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        has_more |= begun.len() + calls.len() > CALLS_MAX;
        begun.extend(calls.iter().filter_map(begun_in).take(CALLS_MAX));
        if message["role"] == "tool"
            && let Some(ended) = self.end(message["tool_call_id"].as_str(), content, &message["error"]["message"])
        {
            return steps.end(at, ended);
        }
        if has_more || begun.is_empty() && !is_call {
            steps.record(at, message);
        }
        for (id, tool, params) in begun {
            self.begun += 1;
            let (is_numbered, is_shell) = (id.is_none(), ForeignTool::named(&tool) == Some(ForeignTool::Shell));
            let id = id.unwrap_or_else(|| format!("call-{}", self.begun));
            self.open.push_back(WaitingCall { id: id.clone(), is_numbered, is_shell });
            if self.open.len() > OPEN_MAX {
                self.open.pop_front();
            }
            steps.begin_edit(at, id, tool, params);
        }
    }

    /// Returns the outcome that a part of a message states.
    fn ended_in(&mut self, part: &Value) -> Option<EndedCall> {
        let has_failed =
            |is_so: bool, error: &Value| if is_so && error.is_null() { true.into() } else { error.clone() };
        match text(part, "type") {
            "tool_result" => {
                let failure = has_failed(part["is_error"] == true, &Value::Null);
                self.end(part["tool_use_id"].as_str(), &part["content"], &failure)
            }
            "toolResponse" => {
                let answer = &part["toolResult"];
                let value = if answer.get("value").is_some() { &answer["value"] } else { answer };
                self.end(part["id"].as_str(), value, &has_failed(value["isError"] == true, &answer["error"]))
            }
            _ => None,
        }
    }

    /// Returns the end of a call. `failure` is null, an error message, or true if the answer contains the message.
    fn end(&mut self, id: Option<&str>, answer: &Value, failure: &Value) -> Option<EndedCall> {
        let at = self.open.iter().position(|call| id.map_or(call.is_numbered, |id| call.id == id));
        let call = at.and_then(|at| self.open.remove(at));
        let id = id.or(call.as_ref().map(|call| &*call.id))?;
        // Cline's answers are JSON in a string.
        let packed = answer.as_str().and_then(packed);
        let items = packed.as_ref().unwrap_or(answer);
        let items = items.as_array().map_or_else(|| vec![items], |items| items.iter().collect());
        let failed = items.iter().find(|item| item["success"] == false && item["query"].is_string());
        let content = if answer.is_object() { &answer["content"] } else { answer };
        let results = items.iter().map(|item| text(item, "result")).collect::<String>();
        let shown = if results.is_empty() { content_text(content) } else { results };
        let is_shell = call.as_ref().is_some_and(|call| call.is_shell);
        let code = answer["structuredContent"]["exit_code"].as_i64();
        let code = code.or_else(|| if is_shell { told_code(&shown) } else { None });
        if code.is_none() && (!failure.is_null() || failed.is_some()) {
            let error = failure.as_str().or_else(|| failed?["error"].as_str());
            return Some(EndedCall::failed(id, error.unwrap_or(&shown)));
        }
        let mut result = if answer.is_object() { answer.clone() } else { json!({ "content": answer }) };
        if content.as_array().is_some_and(|parts| parts.iter().all(|part| part["text"].is_string())) {
            result["content"] = shown.into();
        }
        Some(EndedCall::ok(id, result).with_code(code))
    }
}

/// The id, tool and parameters of a call.
pub(super) type AskedCall = (Option<String>, String, Value);

/// Returns the call that a part of a message states.
pub(super) fn begun_in(part: &Value) -> Option<AskedCall> {
    let asked = &part["toolCall"];
    let asked = if asked.get("value").is_some() { &asked["value"] } else { asked };
    let (tool, params) = match text(part, "type") {
        "tool_use" => (&part["name"], &part["input"]),
        "toolRequest" => (&asked["name"], &asked["arguments"]),
        _ if part["function"].is_object() => (&part["function"]["name"], &part["function"]["arguments"]),
        _ => (&part["function"], &part["arguments"]),
    };
    Some((part["id"].as_str().map(str::to_owned), tool.as_str()?.to_owned(), params_of(params)))
}

/// Returns the exit code stated in the text of a command's outcome.
fn told_code(shown: &str) -> Option<i64> {
    let told = shown.split_once("Command exited with code ");
    let told = told.and_then(|(_, rest)| rest.split(|c: char| c != '-' && !c.is_ascii_digit()).next()?.parse().ok());
    told.or_else(|| stated_code(shown))
}
