//! `foldspace sessions`: all sessions.

use foldspace::{SessionEntry, SessionStarted, Usage, name_of};
use serde_json::{Value, json};

use super::Globals;
use super::exit::{Exit, Failure};
use super::open::{self, Opened};
use super::output::{BOLD, DIM, Out};
use super::table::{Cell, Table};
use super::text;

/// Lists the sessions, the oldest first
#[derive(Debug, clap::Args)]
pub(super) struct Sessions {}

/// What is told of a session.
struct Row {
    entry: SessionEntry,
    name: String,
    backend: String,
    calls: u64,
}

impl Sessions {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let entries = opened.sessions.list()?;
        let rows: Result<Vec<Row>, Failure> = entries.into_iter().map(|entry| row(&opened, entry)).collect();
        let rows = rows?;
        match out.is_json() {
            true => out.document(&rows.iter().map(as_json).collect::<Vec<Value>>())?,
            false => show(&rows, out)?,
        }
        Ok(Exit::Ok)
    }
}

fn row(opened: &Opened, entry: SessionEntry) -> Result<Row, Failure> {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
    let state = opened.sessions.session(entry.id)?.state()?;
    Ok(Row {
        name: name_of(&entry),
        backend: started.map_or(String::new(), |started| started.event.backend),
        calls: state.slice::<Usage>().map_or(0, |usage| usage.calls),
        entry,
    })
}

fn as_json(row: &Row) -> Value {
    json!({
        "session": row.entry.id,
        "name": row.name,
        "backend": row.backend,
        "events": row.entry.head,
        "calls": row.calls,
        "created": row.entry.origin.time,
        "updated": row.entry.updated,
    })
}

fn show(rows: &[Row], out: &mut Out) -> Result<(), Failure> {
    if rows.is_empty() {
        return out.line("no sessions");
    }
    let mut table = Table::with_titles(&["name", "id", "backend", ">events", ">calls", "updated"]);
    for row in rows {
        table.row([
            Cell::left(text::one_line(&row.name, 80)).styled(BOLD),
            Cell::left(row.entry.id.short()).styled(DIM),
            Cell::left(text::one_line(&row.backend, 20)),
            Cell::right(row.entry.head),
            Cell::right(row.calls),
            Cell::left(text::moment(row.entry.updated)),
        ]);
    }
    table.show(out)
}
