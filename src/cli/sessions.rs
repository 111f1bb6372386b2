//! `foldspace sessions`: all sessions.

use foldspace::hub::operations::{SessionDocument, listed};

use super::Globals;
use super::exit::{Exit, Failure};
use super::output::{BOLD, DIM, Out};
use super::table::{Cell, TextTable};
use super::{open, text};

/// Lists the sessions, the oldest first
#[derive(Debug, clap::Args)]
pub(super) struct SessionsArgs {}

impl SessionsArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let opened = open::reading(globals)?;
        let rows = listed(&opened.sessions, &opened.sessions.list()?);
        match out.is_json() {
            true => out.document(&rows)?,
            false => show(&rows, out)?,
        }
        Ok(Exit::Ok)
    }
}

fn show(rows: &[SessionDocument], out: &mut Out) -> Result<(), Failure> {
    if rows.is_empty() {
        return out.line("no sessions");
    }
    let mut table = TextTable::with_titles(&["name", "id", "backend", ">events", ">calls", "updated"]);
    for row in rows {
        table.row([
            Cell::left(text::one_line(&row.name, 80)).styled(BOLD),
            Cell::left(row.session.short()).styled(DIM),
            Cell::left(text::one_line(&row.backend, 20)),
            Cell::right(row.events),
            Cell::right(row.calls.map_or_else(|| "?".to_owned(), |calls| calls.to_string())),
            Cell::left(text::moment(row.updated)),
        ]);
    }
    table.show(out)
}
