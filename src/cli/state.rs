use foldspace::event::CallFinished;
use foldspace::hub::operations::{self, SliceDocument, known_slice};
use foldspace::reducers::{Mounts, ToolCalls, Usage};
use foldspace::tools::running_calls;
use foldspace::view;
use foldspace::{Seq, Session, VirtualFileSystem};
use serde_json::{Value, json};

use super::{AtArg, BOLD, Cell, DIM, Failure, Globals, ODD, Out, TextTable, events, open, position, text, tree};
use crate::terminal::style::Tone;

/// Shows the slices of a session's state, or one of them
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Shows the state as it was at", "Shows the state as it was before")))]
pub(super) struct StateArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The slice to show; without one, all are listed
    slice: Option<String>,
    #[command(flatten)]
    at: AtArg,
}

impl StateArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let found = open::session(globals, &self.session)?;
        let state = self.at.state(&found.session)?;
        match &self.slice {
            None => list(&found.name, &state, out)?,
            Some(wanted) => {
                let name = known_slice(&state, wanted)?;
                match out.is_json() {
                    true => out.document(&view::slice(&state, &name)?)?,
                    false => show(&found.session, &state, &name, out)?,
                }
            }
        }
        Ok(())
    }
}

fn list(session: &str, state: &foldspace::State, out: &mut Out) -> Result<(), Failure> {
    let document = operations::state(session, state)?;
    match out.is_json() {
        true => out.document(&document),
        false => show_list(session, state, &document.slices, out),
    }
}

fn show_list(session: &str, state: &foldspace::State, rows: &[SliceDocument], out: &mut Out) -> Result<(), Failure> {
    let time = if state.seq() == 0 { String::new() } else { format!(", {}", text::exact_moment(state.time())) };
    out.line(format!("{} at {}{time}", out.paint(BOLD, text::one_line(session, 80)), state.seq()))?;
    if state.unreadable() > 0 {
        let events = text::count(state.unreadable(), "event");
        out.line(out.paint(ODD, format!("incomplete: the changes of {events} are lost or from a newer program")))?;
    }
    let mut table = TextTable::with_titles(&["slice", "on rewind", ">as JSON", "digest"]);
    for row in rows {
        table.row([
            Cell::left(row.slice.as_str()),
            Cell::left(json!(row.on_rewind).as_str().unwrap_or_default()),
            Cell::right(text::size(row.json_bytes as u64)),
            Cell::left(row.digest.to_string()).styled(DIM),
        ]);
    }
    table.show(out)
}

fn show(session: &Session, state: &foldspace::State, name: &str, out: &mut Out) -> Result<(), Failure> {
    match name {
        "VirtualFileSystem" => show_files(&VirtualFileSystem::of(state), out),
        "ToolCalls" => show_calls(session, state, out),
        "Usage" => show_usage(state, out),
        "Mounts" => show_mounts(state, out),
        _ => {
            let text = serde_json::to_string_pretty(&view::slice(state, name)?).unwrap_or_default();
            out.line(out.content(&text).into_owned())
        }
    }
}

fn show_files(files: &VirtualFileSystem, out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::default();
    for (path, entry) in files.iter() {
        table.row(tree::cells(out, &path.to_string(), entry));
    }
    table.show(out)
}

fn result_of(session: &Session, finished: Seq) -> Value {
    let end = session.event(finished).ok().and_then(|event| event.typed::<CallFinished>()?.ok());
    end.map_or(Value::Null, |end| end.event.result)
}

fn show_calls(session: &Session, state: &foldspace::State, out: &mut Out) -> Result<(), Failure> {
    let Some(calls) = state.slice::<ToolCalls>() else { return Ok(()) };
    let (total, known) = (text::count(calls.total, "call"), calls.iter().count() as u64);
    out.line(if known < calls.total { format!("{total}, the last {known}:") } else { total })?;
    let (mut table, running) = (TextTable::default(), running_calls(session));
    for call in calls.iter() {
        let (status, style) = match call.status {
            Some(status) => {
                let result = result_of(session, call.finished);
                (events::ending(status, &result), events::ending_tone(status, &result))
            }
            None if running.contains(&call.call) => ("running".to_owned(), Tone::Noted),
            None => ("interrupted".to_owned(), Tone::Odd),
        };
        let duration = call.status.map_or(String::new(), |_| text::duration(call.micros));
        table.row([
            Cell::right(call.call),
            Cell::left(text::moment(call.started_at)).styled(DIM),
            Cell::left(status).styled(style),
            Cell::right(duration),
            Cell::left(if call.agent.is_empty() { "-".to_owned() } else { text::one_line(&call.agent, 40) }),
            Cell::left(text::one_line(&call.tool, 100)),
            Cell::left(text::one_line(&call.message, 100)),
        ]);
    }
    table.show(out)
}

fn show_usage(state: &foldspace::State, out: &mut Out) -> Result<(), Failure> {
    let Some(usage) = state.slice::<Usage>() else { return Ok(()) };
    let mut table = TextTable::default();
    let rows = [
        ("events", usage.events.to_string()),
        ("calls", usage.calls.to_string()),
        ("  with a result", usage.calls_ok.to_string()),
        ("  with an error", usage.calls_failed.to_string()),
        ("  interrupted", usage.calls_interrupted.to_string()),
        ("time in calls", text::duration(usage.call_micros)),
        ("entries written", usage.writes.to_string()),
        ("bytes written", text::size(usage.bytes_written)),
        ("entries removed", usage.deletes.to_string()),
    ];
    rows.into_iter().for_each(|(name, value)| table.row([Cell::left(name), Cell::right(value)]));
    table.show(out)
}

fn show_mounts(state: &foldspace::State, out: &mut Out) -> Result<(), Failure> {
    let Some(mounts) = state.slice::<Mounts>() else { return Ok(()) };
    for mount in mounts.iter() {
        let (host, path) = (text::one_line(&mount.host_path, 4096), mount.mount_path.rooted());
        let (files, bytes) = (text::count(mount.files, "file"), text::size(mount.bytes));
        out.line(format!("{} at {path}: {files}, {bytes}", out.paint(BOLD, host)))?;
        for entry in &mount.preview.entries {
            out.line(format!("  {}", text::one_line(entry, 200)))?;
        }
        if mount.preview.more > 0 {
            out.line(format!("  and {} more", mount.preview.more))?;
        }
    }
    Ok(())
}
