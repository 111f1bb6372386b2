use foldspace::event::{CallStarted, CommandDecided, DeleteEntry, HttpExchange, WriteFile};
use foldspace::reducers::Change;
use foldspace::tools::PlannedChange;
use foldspace::view::{self, Call, ObservedCalls, Position};
use foldspace::{Event, Recorded, Session, VirtualFileSystem};
use serde_json::{Map, Value, json};

use super::{BOLD, DIM, Exit, Failure, Globals, NOTED, Out, calls, diffs, events, exchange, open, play, text, thread};

/// Shows an event, or a call with its parameters, result and changes
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The number of the event or call; -1 is the last but one
    #[arg(value_name = "SEQ", allow_hyphen_values = true)]
    seq: Position,
    /// Plays the recording of the command's terminal; q or Ctrl-C ends it
    #[arg(long, conflicts_with = "json")]
    play: bool,
    /// Plays it TIMES as fast
    #[arg(long, value_name = "TIMES", default_value = "1", requires = "play", value_parser = play::speed)]
    speed: f64,
}

struct ShowTarget {
    event: Recorded,
    call: Option<(Call, Vec<Recorded>)>,
    changes: Vec<Change>,
}

impl ShowArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let found = open::session(globals, &self.session)?;
        let session = &found.session;
        let seq = self.seq.event(session)?;
        let sight = ShowTarget::of(session, session.event(seq)?)?;
        if self.play {
            out.go_live_for_good()?;
            return play::play(session, sight.concerned(), self.speed);
        }
        match out.is_json() {
            true => out.document(&sight.as_json(session)?)?,
            false => sight.show(session, out)?,
        }
        Ok(Exit::Ok)
    }
}

impl ShowTarget {
    fn of(session: &Session, event: Recorded) -> Result<Self, Failure> {
        let is_call = *event.event.kind == *CallStarted::KIND;
        let mut call = if is_call { view::call_at(session, event.seq)? } else { None };
        call.iter_mut().for_each(|(call, _)| call.make_whole(session));
        let mut target = Self { event, call, changes: Vec::new() };
        target.changes = changes(session, target.concerned())?;
        Ok(target)
    }

    /// Returns the event, or all events of the call.
    fn concerned(&self) -> &[Recorded] {
        self.call.as_ref().map_or(std::slice::from_ref(&self.event), |(_, events)| events)
    }

    fn as_json(&self, session: &Session) -> Result<Value, Failure> {
        let call = self.call.as_ref().map(|(known, events)| {
            let mut call = json!(known);
            call["result"] = json!(known.end.as_ref().map(|end| &end.result));
            call["events"] = events.iter().map(|event| json!(view::event(session, &event.view()))).collect();
            call
        });
        let changes: Result<Vec<_>, _> = self.changes.iter().map(|change| view::change(session, change)).collect();
        let event = view::event(session, &self.event.view());
        let by = ObservedCalls::of(session)?.by(self.call.as_ref().map(|(call, _)| call.call), self.event.seq);
        let messages = view::messages(session, &self.event.view(), true);
        let exchange = self.event.view().decoded::<HttpExchange>();
        let bodies = exchange.map(|exchange| exchange::bodies(session, &exchange)).transpose()?;
        let mut shown = json!({ "event": event, "call": call, "messages": messages, "by": by, "changes": changes? });
        bodies.into_iter().for_each(|bodies| shown["bodies"] = bodies);
        Ok(shown)
    }

    fn show(&self, session: &Session, out: &mut Out) -> Result<(), Failure> {
        match &self.call {
            Some((call, events)) => show_call(session, call, events, out)?,
            None => show_event(session, &self.event, out)?,
        }
        for change in &self.changes {
            out.line("")?;
            diffs::show_change(session, change, out)?;
        }
        Ok(())
    }
}

fn changes(session: &Session, events: &[Recorded]) -> Result<Vec<Change>, Failure> {
    let is_change = |event: &&Recorded| [WriteFile::KIND, DeleteEntry::KIND].contains(&&*event.event.kind);
    let Some(first) = events.iter().find(is_change) else { return Ok(Vec::new()) };
    let before = VirtualFileSystem::of(&session.state_at(first.seq - 1)?);
    let mut after: VirtualFileSystem = before.clone();
    for event in events {
        if let Some(change) = PlannedChange::of(&event.view()).filter(|change| change.link().is_none()) {
            change.apply_to(&mut after, event.time);
        }
    }
    Ok(before.diff(&after))
}

fn show_event(session: &Session, event: &Recorded, out: &mut Out) -> Result<(), Failure> {
    let kind = text::one_line(&event.event.kind, 100);
    out.line(format!("{}  {}", out.paint(BOLD, format!("event {}", event.seq)), out.paint(NOTED, kind)))?;
    field(out, "time", &text::exact_moment(event.time))?;
    if let Some(call) = event.call {
        field(out, "call", &call.to_string())?;
    }
    if !event.agent.is_empty() {
        field(out, "agent", &text::one_line(&event.agent, 200))?;
    }
    let by = if event.call.is_none() { ObservedCalls::of(session)?.by(None, event.seq) } else { Vec::new() };
    for by in by {
        field(out, "by", &format!("#{} {} {}", by.call, text::one_line(&by.agent, 40), text::one_line(&by.run, 100)))?;
    }
    let messages = view::messages(session, &event.view(), true);
    if let Some(first) = messages.first() {
        field(out, "run", &text::one_line(&first.run, 100))?;
        return messages.iter().try_for_each(|message| thread::show(message, out));
    }
    if let Some(exchange) = event.view().decoded() {
        return exchange::show(session, &exchange, out);
    }
    out.line("")?;
    let value = view::whole(session, &session.event_json(&event.view()));
    show_value(out, &value)
}

fn show_call(session: &Session, call: &Call, events: &[Recorded], out: &mut Out) -> Result<(), Failure> {
    let title = out.paint(BOLD, format!("call {}", call.call));
    out.line(format!("{title}  {}", out.paint(NOTED, text::one_line(&call.tool, 100))))?;
    let status = out.paint(calls::tone(call), calls::ending(call));
    let lasted = call.micros.map_or(String::new(), |micros| format!(" in {}", text::duration(micros)));
    field(out, "status", &format!("{status}{lasted}"))?;
    field(out, "time", &text::exact_moment(call.started_at))?;
    if !call.agent.is_empty() {
        field(out, "agent", &text::one_line(&call.agent, 200))?;
    }
    if let Some(by) = ObservedCalls::of(session)?.mention(call.call) {
        let model = by.model.map_or(String::new(), |model| format!(" with {}", text::one_line(&model, 100)));
        field(out, "run", &format!("{}{model}", text::one_line(&by.run, 100)))?;
        field(out, "prompt", &text::one_line(&by.prompt, 200))?;
    }
    out.line(out.paint(BOLD, "\nparameters"))?;
    show_value(out, &call.params)?;
    if let Some(names) = inherited(session, events)? {
        let count = text::count(names.len() as u64, "variable");
        out.line(out.paint(BOLD, format!("\nenvironment, {count}")))?;
        block(out, &names.join(" "))?;
    }
    if !call.message.is_empty() {
        out.line(out.paint(BOLD, "\nmessage"))?;
        block(out, &call.message)?;
    }
    if let Some(result) = call.end.as_ref().map(|end| &end.result).filter(|result| !result.is_null()) {
        out.line(out.paint(BOLD, "\nresult"))?;
        show_value(out, result)?;
    }
    out.line(out.paint(BOLD, "\nevents"))?;
    for event in events {
        let view = event.view();
        let kind = out.paint(events::tone_of(view.kind), format!("{:<14}", text::one_line(view.kind, 100)));
        out.line(format!("  {:>4}  {kind}  {}", event.seq, events::gist(session, &view)).trim_end())?;
    }
    Ok(())
}

/// Returns the names of the variables that the call's command inherited on the host.
fn inherited(session: &Session, events: &[Recorded]) -> Result<Option<Vec<String>>, Failure> {
    let decided = events.iter().filter_map(|event| event.typed::<CommandDecided>()?.ok());
    let Some(kept) = decided.filter_map(|decided| decided.event.environment).next() else { return Ok(None) };
    let variables = serde_json::from_slice::<Map<String, Value>>(&session.content(&kept)?);
    Ok(variables.ok().map(|variables| variables.into_iter().map(|(name, _)| name).collect()))
}

fn field(out: &mut Out, name: &str, value: &str) -> Result<(), Failure> {
    out.line(format!("  {}  {value}", out.paint(DIM, format!("{name:<6}"))))
}

fn show_value(out: &mut Out, value: &Value) -> Result<(), Failure> {
    for (name, text) in text::value_lines(value) {
        let line = format!("{}{}", out.paint(DIM, name), out.content(&text));
        out.line(line.trim_end())?;
    }
    Ok(())
}

fn block(out: &mut Out, text: &str) -> Result<(), Failure> {
    text.lines().try_for_each(|line| out.line(format!("    {}", out.content(line))))
}
