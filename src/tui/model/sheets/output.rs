//! The output of a call.

use foldspace::event::{CallFinished, CommandResult, EvalResult, RecordedOutput, TerminalRecorded};
use foldspace::{Event, Recorded, Seq};
use serde_json::Value;

use crate::terminal::text;
use crate::tui::model::{Failure, Leash, SessionHistory, Sheet, ShownStep, Tone};

const BYTES_MAX: usize = 1 << 20;

pub(crate) fn output(past: &SessionHistory, step: &ShownStep, leash: &Leash) -> Result<Sheet, Failure> {
    let event = past.event(step.cursor)?;
    let Some(call) = event.call else {
        let mut sheet = Sheet::new("output");
        sheet.add(Tone::Dim, "this event belongs to no call");
        return Ok(sheet);
    };
    let mut sheet = Sheet::new(format!("output of call {call}"));
    let end = past.end_of(call, leash)?;
    let printing = printing(past, call, end.last, leash)?;
    for (event, next) in printing.iter().zip(printing.iter().skip(1).map(Some).chain([None])) {
        leash.holds()?;
        if let Some(Ok(command)) = event.typed::<CommandResult>() {
            let command = command.event;
            sheet.add(Tone::Noted, format!("$ {}", text::one_line(&command.command.to_string(), 1000)));
            let terminal = next.and_then(|next| next.typed::<TerminalRecorded>()?.ok());
            match &terminal {
                Some(recorded) => terminal_text(past, &command.stdout, &recorded.event, &mut sheet)?,
                None => stream(past, &command.stdout, "  ", Tone::Plain, &mut sheet)?,
            }
            stream(past, &command.stderr, "! ", Tone::Odd, &mut sheet)?;
            let code = command.exit_code;
            let tone = if code == 0 { Tone::Good } else { Tone::Bad };
            sheet.add(tone, format!("exit {code} in {}", text::duration(command.micros)));
        }
        if let Some(Ok(code)) = event.typed::<EvalResult>() {
            let code = code.event;
            stream(past, &code.stdout, "  ", Tone::Plain, &mut sheet)?;
            stream(past, &code.stderr, "! ", Tone::Odd, &mut sheet)?;
            sheet.add(Tone::Dim, format!("{} exit {}", code.language, code.exit_code));
        }
    }
    if sheet.lines.is_empty() {
        result(past, &past.event(end.last)?, &mut sheet);
    }
    Ok(sheet)
}

fn printing(past: &SessionHistory, call: Seq, last: Seq, leash: &Leash) -> Result<Vec<Recorded>, Failure> {
    let mut found = Vec::new();
    past.visit(call, last, &mut |event| {
        let kinds = [CommandResult::KIND, EvalResult::KIND, TerminalRecorded::KIND];
        if event.call == Some(call) && kinds.contains(&event.kind) {
            found.push(event.to_recorded());
        }
        !leash.is_cancelled()
    })?;
    Ok(found)
}

/// Shows the text of a terminal, without its control sequences.
fn terminal_text(
    past: &SessionHistory,
    output: &RecordedOutput,
    recorded: &TerminalRecorded,
    sheet: &mut Sheet,
) -> Result<(), Failure> {
    let bytes = past.content(&output.content)?;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(BYTES_MAX)]);
    let text = anstream::adapter::strip_str(&shown).to_string().replace("\r\n", "\n");
    // Text after a carriage return overwrites the text before it.
    let lines: Vec<&str> =
        text.lines().map(|line| line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or("")).collect();
    sheet.block(Tone::Plain, "  ", &lines.join("\n"));
    let TerminalRecorded { rows, columns, .. } = recorded;
    sheet.add(Tone::Dim, format!("on a terminal of {columns}x{rows}; `foldspace show --play` plays it"));
    Ok(())
}

fn stream(
    past: &SessionHistory,
    output: &RecordedOutput,
    sign: &str,
    tone: Tone,
    sheet: &mut Sheet,
) -> Result<(), Failure> {
    if output.kept == 0 {
        return Ok(());
    }
    let bytes = past.content(&output.content)?;
    let shown = &bytes[..bytes.len().min(BYTES_MAX)];
    sheet.block(tone, sign, &String::from_utf8_lossy(shown));
    let more = output.bytes.saturating_sub(shown.len() as u64);
    if more > 0 {
        sheet.add(Tone::Odd, format!("... {} more were printed", text::size(more)));
    }
    Ok(())
}

fn result(past: &SessionHistory, last: &Recorded, sheet: &mut Sheet) {
    let Some(Ok(end)) = last.typed::<CallFinished>() else {
        return sheet.add(
            Tone::Dim,
            format!("the call has no outcome: it is {}", past.unfinished(last.call.unwrap_or(last.seq))),
        );
    };
    if !end.event.message.is_empty() {
        sheet.block(Tone::Bad, "! ", &end.event.message);
    }
    match past.json(&last.view()).get("result") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => sheet.block(Tone::Plain, "", text),
        Some(value) => sheet.block(Tone::Plain, "", &serde_json::to_string_pretty(value).unwrap_or_default()),
    }
    if sheet.lines.is_empty() {
        sheet.add(Tone::Dim, "no result");
    }
}
