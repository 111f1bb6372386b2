//! `commands`: one row for each command that foldspace ran, and each evaluation.

use std::collections::VecDeque;

use super::Table;
use super::content::stored;
use crate::engine::clock::Timestamp;
use crate::engine::event::{CommandResult, EvalResult, Event, RecordedOutput};
use crate::engine::id::{Digest, Seq};
use crate::engine::recorded::EventRef;
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, owned, scan, text};
use crate::sql::wanted::{Column, Pushed, Wanted};
use crate::sql::world::Reading;

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static COMMANDS: Table = Table {
    name: "commands",
    columns: &[
        column("session TEXT", Pushed::Session),
        column("seq INTEGER", Pushed::Seq),
        column("time TEXT", Pushed::No),
        column("call INTEGER", Pushed::Call),
        column("agent TEXT", Pushed::No),
        column("kind TEXT", Pushed::Kind),
        column("command TEXT", Pushed::No),
        column("cwd TEXT", Pushed::No),
        column("exit_code INTEGER", Pushed::No),
        column("timed_out INTEGER", Pushed::No),
        column("cancelled INTEGER", Pushed::No),
        column("micros INTEGER", Pushed::No),
        column("stdout TEXT", Pushed::No),
        column("stderr TEXT", Pushed::No),
        column("inherited INTEGER", Pushed::No),
    ],
    needs: None,
    open: |world, wanted| Ok(Box::new(Walk::new(world, &wanted, Commands { wanted: wanted.clone() })?)),
};

struct Commands {
    wanted: Wanted,
}

struct CommandRow {
    seq: Seq,
    time: Timestamp,
    call: Option<Seq>,
    agent: String,
    kind: &'static str,
    /// The command, or the content that has the code.
    command: Result<String, Digest>,
    cwd: Option<String>,
    exit_code: i32,
    timed_out: bool,
    cancelled: bool,
    micros: u64,
    stdout: RecordedOutput,
    stderr: RecordedOutput,
}

impl Commands {
    fn row(&self, event: &EventRef<'_>) -> Option<CommandRow> {
        if self.wanted.kind.as_deref().is_some_and(|kind| kind != event.kind) {
            return None;
        }
        let (EventRef { seq, time, call, .. }, agent) = (*event, event.agent.to_owned());
        if let Some(ran) = event.decoded::<CommandResult>() {
            let CommandResult { command, cwd, exit_code, timed_out, cancelled, micros, stdout, stderr, .. } = ran;
            let (kind, command, cwd) = (CommandResult::KIND, Ok(command.to_string()), Some(cwd.to_string()));
            let row = CommandRow {
                seq,
                time,
                call,
                agent,
                kind,
                command,
                cwd,
                exit_code,
                timed_out,
                cancelled,
                micros,
                stdout,
                stderr,
            };
            return Some(row);
        }
        let EvalResult { code, exit_code, timed_out, cancelled, micros, stdout, stderr, .. } = event.decoded()?;
        let (kind, command, cwd) = (EvalResult::KIND, Err(code), None);
        Some(CommandRow {
            seq,
            time,
            call,
            agent,
            kind,
            command,
            cwd,
            exit_code,
            timed_out,
            cancelled,
            micros,
            stdout,
            stderr,
        })
    }
}

/// Returns a stored text; NULL if it is missing.
fn printed(of: &Reading, content: &Digest) -> Result<Cell<'static>, SqlError> {
    let bytes = stored(|| Ok(of.session.content(content)?))?;
    Ok(bytes.map_or(NULL, |bytes| owned(String::from_utf8_lossy(&bytes))))
}

impl SessionRows for Commands {
    type Row = CommandRow;

    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<CommandRow>,
    ) -> Result<Option<Seq>, SqlError> {
        scan(of, (from, self.wanted.until), limit, rows, &mut |event| self.row(event))
    }

    fn number(&self, row: &CommandRow) -> u64 {
        row.seq
    }

    fn cell<'a>(&'a self, of: &'a Reading, row: &'a CommandRow, column: &'static str) -> Result<Cell<'a>, SqlError> {
        Ok(match column {
            "seq" => number(row.seq),
            "time" => owned(row.time),
            "call" => row.call.map_or(NULL, number),
            "agent" => text(&row.agent),
            "kind" => text(row.kind),
            "command" => match &row.command {
                Ok(command) => text(command),
                Err(code) => return printed(of, code),
            },
            "cwd" => row.cwd.as_deref().map_or(NULL, text),
            "exit_code" => number(row.exit_code),
            "timed_out" => number(u64::from(row.timed_out)),
            "cancelled" => number(u64::from(row.cancelled)),
            "micros" => number(row.micros),
            "stdout" => return printed(of, &row.stdout.content),
            "stderr" => return printed(of, &row.stderr.content),
            "inherited" => number(u64::from(row.seq <= of.inherited)),
            _ => NULL,
        })
    }
}
