//! Payloads of OpenCode's plugin: the hook's name, its input and output, and the directory.

use serde_json::{Map, Value, json};

use super::kind::AgentKind;
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::tools::transcript::step::{content_text, text};

pub(super) fn read(payload: &Value) -> HookReport {
    let (input, output) = (&payload["input"], &payload["output"]);
    let hook = text(payload, "hook");
    let event = if hook == "event" { text(input, "type") } else { hook };
    let properties = &input["properties"];
    let info = &properties["info"];
    let string = |value: &Value| value.as_str().map(str::to_owned);
    let run = [&input["sessionID"], &properties["sessionID"], &info["id"]].into_iter().find_map(string);
    let run = run.unwrap_or_default();
    let parent = string(&payload["parent"]).or_else(|| string(&info["parentID"]));
    let mut facts = Map::new();
    let stated = [("version", &info["version"]), ("model", &output["message"]["model"]["modelID"])];
    facts.extend(stated.into_iter().filter(|(_, value)| value.is_string()).map(|(n, v)| (n.to_owned(), v.clone())));
    HookReport {
        agent: AgentKind::OpenCode.name().to_owned(),
        subagent: None,
        run,
        parent,
        directory: string(&payload["directory"]).or_else(|| string(&info["directory"])),
        facts,
        kind: event_kind(event, input, output),
    }
}

fn event_kind(event: &str, input: &Value, output: &Value) -> HookKind {
    let properties = &input["properties"];
    match event {
        "session.created" => HookKind::RunBegan,
        "session.deleted" => HookKind::RunEnded { reason: Some("deleted".to_owned()) },
        "chat.message" => HookKind::Prompted {
            prompt: content_text(&output["parts"]),
            id: output["message"]["id"].as_str().map(str::to_owned),
        },
        "tool.execute.before" => HookKind::CallBegan(call(input, &output["args"])),
        "tool.execute.after" => HookKind::CallEnded(call(input, &input["args"]), ended(output)),
        "message.part.updated" if properties["part"]["state"]["status"] == "error" => {
            let part = &properties["part"];
            let end = ReportedEnd::failed(text(&part["state"], "error"));
            HookKind::CallEnded(call(part, &part["state"]["input"]), end)
        }
        "permission.asked" => HookKind::Asked,
        "permission.replied" if properties["reply"] != "reject" => HookKind::Allowed,
        "session.idle" => HookKind::Paused { background: None },
        _ => HookKind::Other,
    }
}

fn call(input: &Value, args: &Value) -> ReportedCall {
    let id = input["callID"].as_str().map(str::to_owned);
    ReportedCall::new(id, text(input, "tool").to_owned(), args.clone())
}

fn ended(output: &Value) -> ReportedEnd {
    let metadata = &output["metadata"];
    ReportedEnd {
        exit_code: metadata["exit"].as_i64(),
        child: metadata["sessionId"].as_str().map(str::to_owned),
        ..ReportedEnd::ok(json!({ "title": output["title"], "output": output["output"], "metadata": metadata }))
    }
}
