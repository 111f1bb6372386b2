//! `calls`: one row for each call of a tool.

use std::cell::OnceCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

use super::Table;
use crate::engine::event::CallFinished;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, owned, text};
use crate::sql::wanted::{Column, Pushed, Wanted};
use crate::sql::world::Reading;
use crate::view::{CallFilter, CallRow, CallRows, subject};

/// Limit for the events of a piece.
const EVENTS: Seq = 50_000;
/// Limit for the characters of a summary.
const SUMMARY_MAX: usize = 500;

const fn column(declaration: &'static str) -> Column {
    Column { declaration, pushed: Pushed::No }
}

pub(super) static CALLS: Table = Table {
    name: "calls",
    columns: &[
        Column { declaration: "session TEXT", pushed: Pushed::Session },
        Column { declaration: "call INTEGER", pushed: Pushed::Seq },
        column("time TEXT"),
        column("agent TEXT"),
        column("tool TEXT"),
        column("summary TEXT"),
        column("status TEXT"),
        column("failed INTEGER"),
        column("exit_code INTEGER"),
        column("finished INTEGER"),
        column("micros INTEGER"),
        column("changed INTEGER"),
        column("params TEXT"),
        column("result TEXT"),
        column("message TEXT"),
        column("digest TEXT"),
        column("outcome TEXT"),
        column("inherited INTEGER"),
    ],
    needs: None,
    open: |world, wanted| {
        let has_digests = wanted.reads(CALLS.columns, &["summary", "params", "digest", "outcome"]);
        let table = Calls { wanted: wanted.clone(), has_digests, filter: CallFilter::default() };
        Ok(Box::new(Walk::new(world, &wanted, table)?))
    },
};

struct Calls {
    wanted: Wanted,
    /// True if the query reads parameters or digests.
    has_digests: bool,
    filter: CallFilter,
}

struct CallOfTable {
    row: CallRow,
    /// The outcome, read once if it is wanted.
    end: OnceCell<Option<CallFinished>>,
}

impl CallOfTable {
    fn end(&self, of: &Reading) -> Result<Option<&CallFinished>, SessionError> {
        if self.end.get().is_none() {
            let event = self.row.finished.map(|at| of.session.event(at)).transpose()?;
            // Only the first value counts.
            drop(self.end.set(event.and_then(|event| event.view().decoded())));
        }
        Ok(self.end.get().and_then(Option::as_ref))
    }
}

impl SessionRows for Calls {
    type Row = CallOfTable;

    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<CallOfTable>,
    ) -> Result<Option<Seq>, SqlError> {
        let last = self.wanted.until.min(of.head);
        if from > last {
            return Ok(None);
        }
        // A call that has not ended is checked when its row is read.
        let reader =
            CallRows::new(&self.filter, BTreeSet::new()).map_err(|error| SqlError::invalid(error.to_string()))?;
        let reader = if self.has_digests { reader.with_digests() } else { reader };
        let next = reader.visit(&of.session, (from, from.saturating_add(EVENTS - 1)), &mut |row| {
            let is_last = row.call >= last;
            if row.call <= last {
                rows.push_back(CallOfTable { row, end: OnceCell::new() });
            }
            if is_last || rows.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(next.filter(|next| *next <= last))
    }

    fn number(&self, row: &CallOfTable) -> u64 {
        row.row.call
    }

    fn cell<'a>(&'a self, of: &'a Reading, row: &'a CallOfTable, column: &'static str) -> Result<Cell<'a>, SqlError> {
        let call = &row.row;
        Ok(match column {
            "call" => number(call.call),
            "time" => owned(call.started_at),
            "agent" => text(&call.agent),
            "tool" => text(&call.tool),
            "summary" => owned(subject(&of.session, &call.params, SUMMARY_MAX)),
            "status" => text(match call.status {
                Some(status) => status.word(),
                None if of.is_running(call.call) => "running",
                None => "interrupted",
            }),
            "failed" => number(u64::from(call.failed && (call.status.is_some() || !of.is_running(call.call)))),
            "exit_code" => call.exit_code.map_or(NULL, number),
            "finished" => call.finished.map_or(NULL, number),
            "micros" => call.finished.map_or(NULL, |_| number(call.micros)),
            "changed" => number(call.changed),
            "params" => owned(&call.params),
            "result" => row.end(of)?.map_or(NULL, |end| owned(&end.result)),
            "message" => row.end(of)?.map_or(NULL, |end| text(&end.message)),
            "digest" => text(&call.key),
            "outcome" => call.finished.map_or(NULL, |_| text(&call.outcome)),
            "inherited" => number(u64::from(call.call <= of.inherited)),
            _ => NULL,
        })
    }
}
