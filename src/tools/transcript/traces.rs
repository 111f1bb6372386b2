//! Exporting sessions as OTLP traces, with the names of OpenTelemetry's semantic conventions for generative AI.

use serde_json::{Value, json};

use super::family::{ExportedEvent, ExportedRun};
use crate::engine::clock::Timestamp;
use crate::engine::event::CallStatus;
use crate::engine::id::{Digest, Seq};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::tools::rerun::past::RecordedCall;

/// The kind of a span for internal work.
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// Returns a session and its children as one trace: an `ExportTraceServiceRequest` in JSON. Each session and each call
/// is a span, and an own event is an event of the span of its call or session. The ids of the spans are deterministic.
///
/// # Errors
/// [`SessionError`]: a session can't be read.
pub fn traces_of(session: &Session, sessions: &Sessions) -> Result<Value, SessionError> {
    let run = ExportedRun::read(session.clone(), sessions)?;
    let mut spans = Vec::new();
    add(&run, &session.id().to_string(), None, &mut spans)?;
    let resource = json!({ "attributes": [text("service.name", "foldspace")] });
    let scope = json!({ "name": "foldspace", "version": env!("CARGO_PKG_VERSION") });
    Ok(json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }] }))
}

fn add(run: &ExportedRun, trace: &str, parent: Option<String>, spans: &mut Vec<Value>) -> Result<(), SessionError> {
    let (session, (agent, model)) = (&run.session, run.agent());
    let id = span_id(session, 0);
    let first = session.event(run.from + 1)?.time;
    let last = session.state()?.time();
    let mut attributes = vec![
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.agent.name", agent),
        text("gen_ai.conversation.id", &session.id().to_string()),
        text("session", &session.id().to_string()),
    ];
    attributes.extend(model.map(|model| text("gen_ai.request.model", model)));
    let name = format!("invoke_agent {agent}");
    spans.push(span((trace, &id), parent, &name, (nanos(first), nanos(last.max(first))), attributes, json!({})));
    with_events(spans, run.events_of(None));
    for call in &run.calls {
        spans.push(of_call(session, call, trace, &id));
        with_events(spans, run.events_of(Some(call.call)));
    }
    for (child, call) in &run.children {
        let parent = call.map_or_else(|| id.clone(), |call| span_id(session, call));
        add(child, trace, Some(parent), spans)?;
    }
    Ok(())
}

/// Adds own events to the last span.
fn with_events(spans: &mut [Value], events: &[ExportedEvent]) {
    let event = |event: &ExportedEvent| {
        let attributes = [text("data", &event.data.to_string()), number("seq", event.seq)];
        json!({ "timeUnixNano": nanos(event.at).to_string(), "name": event.kind, "attributes": attributes })
    };
    if let Some(span) = spans.last_mut().filter(|_| !events.is_empty()) {
        span["events"] = events.iter().map(event).collect();
    }
}

fn of_call(session: &Session, call: &RecordedCall, trace: &str, parent: &str) -> Value {
    let given = call.id.clone().unwrap_or_else(|| call.call.to_string());
    let mut attributes = vec![
        text("gen_ai.operation.name", "execute_tool"),
        text("gen_ai.tool.name", &call.tool),
        text("gen_ai.tool.call.id", &given),
        text("session", &session.id().to_string()),
        text("agent", &call.agent),
        text("tool", &call.tool),
        number("call", call.call),
    ];
    let begin = nanos(call.at);
    let (end, status) = match &call.outcome {
        None => (begin, json!({})),
        Some((_, end)) => {
            attributes.push(text("status", end.status.word()));
            attributes.push(number("micros", end.micros));
            attributes.extend(end.result["exit_code"].as_i64().map(|code| number("process.exit.code", code)));
            let status = match end.status {
                CallStatus::Ok => json!({ "code": OK }),
                _ => json!({ "code": ERROR, "message": end.message }),
            };
            (begin.saturating_add(end.micros.saturating_mul(1000)), status)
        }
    };
    let name = format!("execute_tool {}", call.tool);
    let id = span_id(session, call.call);
    span((trace, &id), Some(parent.to_owned()), &name, (begin, end), attributes, status)
}

fn span(
    (trace, id): (&str, &str),
    parent: Option<String>,
    name: &str,
    (begin, end): (u64, u64),
    attributes: Vec<Value>,
    status: Value,
) -> Value {
    json!({
        "traceId": trace, "spanId": id, "parentSpanId": parent.unwrap_or_default(), "name": name, "kind": INTERNAL,
        "startTimeUnixNano": begin.to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes,
        "status": status,
    })
}

fn span_id(session: &Session, call: Seq) -> String {
    Digest::of(format!("foldspace span\n{}\n{call}", session.id()).as_bytes()).to_string()[..16].to_owned()
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Returns a number attribute. OTLP's JSON has 64-bit integers as strings.
fn number(key: &str, value: impl ToString) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}
