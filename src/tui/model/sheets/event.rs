//! An event as JSON, or a call with all of its events.

use foldspace::event::{CallFinished, CallStarted};
use foldspace::view::RunMessage;
use foldspace::{Recorded, Seq};
use serde_json::Value;

use crate::terminal::{events, text};
use crate::tui::model::{Failure, Leash, SessionHistory, Sheet, ShownStep, Tone};

const EVENTS_MAX: usize = 500;

pub(crate) fn event(past: &SessionHistory, seq: Seq) -> Result<Sheet, Failure> {
    let event = past.event(seq)?;
    let mut sheet = Sheet::new(format!("event {seq}: {}", text::one_line(&event.event.kind, 100)));
    about(&event, &mut sheet);
    let messages = past.messages(&event.view())?;
    messages.iter().for_each(|said| message(said, &mut sheet));
    if messages.is_empty() {
        value(&past.json(&event.view()), &mut sheet);
    }
    Ok(sheet)
}

fn message(message: &RunMessage, sheet: &mut Sheet) {
    let about: Vec<String> = message.usage.model.clone().into_iter().chain(events::usage(message)).collect();
    sheet.add(Tone::Bold, format!("{}  {}", message.role.word(), about.join(", ")).trim_end());
    if let Some(claim) = &message.claim {
        sheet.add(Tone::Bad, format!("  claims success after {}: #{} {}", claim.ended, claim.call, claim.command));
    }
    sheet.block(Tone::Plain, "  ", &message.text);
    if message.cut {
        sheet.add(Tone::Dim, "  the rest is not stored");
    }
}

fn about(event: &Recorded, sheet: &mut Sheet) {
    sheet.add(Tone::Dim, format!("time   {}", text::exact_moment(event.time)));
    if let Some(call) = event.call {
        sheet.add(Tone::Dim, format!("call   {call}"));
    }
    if !event.agent.is_empty() {
        sheet.add(Tone::Dim, format!("agent  {}", event.agent));
    }
}

pub(crate) fn call(past: &SessionHistory, step: &ShownStep, leash: &Leash) -> Result<Sheet, Failure> {
    let started = past.event(step.cursor)?;
    let end = past.end_of(step.cursor, leash)?;
    let known = started.typed::<CallStarted>().and_then(Result::ok).map(|call| call.event);
    let tool = known.as_ref().map_or("?", |call| call.tool.as_str());
    let status = match &end.outcome {
        Some(outcome) => format!("{} in {}", outcome.ending, text::duration(outcome.micros)),
        None => past.unfinished(step.cursor).to_owned(),
    };
    let mut sheet = Sheet::new(format!("call {}: {}, {status}", step.cursor, text::one_line(tool, 100)));
    about(&started, &mut sheet);
    sheet.add(Tone::Bold, "parameters");
    let whole = past.json(&started.view());
    value(whole.get("params").unwrap_or(&Value::Null), &mut sheet);
    if end.outcome.is_some() {
        let finished = past.event(end.last)?;
        let message = finished.typed::<CallFinished>().and_then(Result::ok).map(|end| end.event.message);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            sheet.add(Tone::Bold, "message");
            sheet.block(Tone::Bad, "  ", &message);
        }
        sheet.add(Tone::Bold, "result");
        value(past.json(&finished.view()).get("result").unwrap_or(&Value::Null), &mut sheet);
    }
    sheet.add(Tone::Bold, "events");
    let mut listed = 0;
    past.visit(step.cursor, step.after, &mut |event| {
        if event.call == Some(step.cursor) {
            listed += 1;
            sheet.add(Tone::Plain, format!("  {:>5}  {:<14} {}", event.seq, event.kind, past.gist_of(event)));
        }
        listed < EVENTS_MAX && !leash.is_cancelled()
    })?;
    Ok(sheet)
}

fn value(value: &Value, sheet: &mut Sheet) {
    for (name, text) in text::value_lines(value) {
        sheet.add(Tone::Plain, format!("{name}{text}"));
    }
}
