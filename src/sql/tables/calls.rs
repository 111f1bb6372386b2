//! `calls`: one row for each call of a tool.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::SqlTable;
use crate::engine::event::CallFinished;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::sql::error::SqlError;
use crate::sql::walk::{NULL, Row, RowQueue, SqlCell, number, owned, text};
use crate::sql::wanted::Wanted;
use crate::sql::world::SessionReading;
use crate::view::{CallFilter, CallRow, CallRows, subject};

/// Limit for the events of a piece.
const EVENTS: Seq = 50_000;
/// Limit for the characters of a summary.
const SUMMARY_MAX: usize = 500;

pub(super) static CALLS: SqlTable = SqlTable {
    name: "calls",
    columns: "session TEXT, call INTEGER, time TEXT, agent TEXT, tool TEXT, summary TEXT, status TEXT, \
              failed INTEGER, exit_code INTEGER, finished INTEGER, micros INTEGER, changed INTEGER, params TEXT, \
              result TEXT, message TEXT, digest TEXT, outcome TEXT, inherited INTEGER",
    needs: None,
    read,
};

fn read(
    of: &SessionReading,
    wanted: &Wanted,
    (from, limit): (Seq, usize),
    rows: &mut RowQueue,
) -> Result<Option<Seq>, SqlError> {
    let last = wanted.until.min(of.entry().head);
    if from > last {
        return Ok(None);
    }
    // Calls that have not ended are looked up when their rows are read.
    let (all, has_ended) = (CallFilter::default(), BTreeSet::new());
    let calls = CallRows::new(&all, has_ended).map_err(|error| SqlError::invalid(error.to_string()))?;
    let has_digests = wanted.reads(&["summary", "params", "digest", "outcome"]);
    let calls = if has_digests { calls.with_digests() } else { calls };
    let next = calls.visit(of.session()?, (from, from.saturating_add(EVENTS - 1)), &mut |row| {
        let is_last = row.call >= last;
        if row.call <= last {
            rows.push_back(Box::new(row));
        }
        if is_last || rows.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(next.filter(|next| *next <= last))
}

fn end(of: &SessionReading, call: &CallRow) -> Result<Option<CallFinished>, SessionError> {
    let session = of.session()?;
    let event = call.finished.map(|at| session.event(at)).transpose()?;
    Ok(event.and_then(|event| event.view().decoded()))
}

impl Row for CallRow {
    fn number(&self) -> u64 {
        self.call
    }

    fn cell<'a>(&'a self, of: &'a SessionReading, (_, column): (usize, &str)) -> Result<SqlCell<'a>, SqlError> {
        Ok(match column {
            "call" => number(self.call),
            "time" => owned(self.started_at),
            "agent" => text(&self.agent),
            "tool" => text(&self.tool),
            "summary" => owned(subject(of.session()?, &self.params, SUMMARY_MAX)),
            "status" => text(match self.status {
                Some(status) => status.word(),
                None if of.is_running(self.call)? => "running",
                None => "interrupted",
            }),
            "failed" => {
                let is_running = self.status.is_none() && of.is_running(self.call)?;
                number(u64::from(self.failed && !is_running))
            }
            "exit_code" => self.exit_code.map_or(NULL, number),
            "finished" => self.finished.map_or(NULL, number),
            "micros" => self.finished.map_or(NULL, |_| number(self.micros)),
            "changed" => number(self.changed),
            "params" => owned(&self.params),
            "result" => end(of, self)?.map_or(NULL, |end| owned(end.result)),
            "message" => end(of, self)?.map_or(NULL, |end| owned(end.message)),
            "digest" => text(&self.key),
            "outcome" => self.finished.map_or(NULL, |_| text(&self.outcome)),
            _ => number(u64::from(self.call <= of.inherited())),
        })
    }
}
