//! The rows of tables, read from the sessions piece by piece.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::error::SqlError;
use super::wanted::Wanted;
use super::world::{Reading, World};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;

/// Rows of the first piece: many queries want few.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 4096;
/// Limit for the events of a piece, after which the limits of the query are checked again.
const EVENTS_MAX: usize = 50_000;
/// Limit for the payloads of the rows of a piece.
const BYTES_MAX: usize = 4 << 20;

/// A value of a row.
pub(super) type Cell<'a> = ToSqlOutput<'a>;

pub(super) fn text(text: &str) -> Cell<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

pub(super) fn owned(text: impl ToString) -> Cell<'static> {
    ToSqlOutput::Owned(Value::Text(text.to_string()))
}

pub(super) fn number(number: impl TryInto<i64>) -> Cell<'static> {
    ToSqlOutput::Owned(Value::Integer(number.try_into().unwrap_or(i64::MAX)))
}

pub(super) const NULL: Cell<'static> = ToSqlOutput::Owned(Value::Null);

/// Rows of a table, one after the other.
pub(super) trait Rows {
    /// Moves to the next row. Returns false at the end.
    fn advance(&mut self) -> Result<bool, SqlError>;

    /// Returns a number of the row that no other row of the table has.
    fn id(&self) -> i64;

    /// Returns a column of the row.
    fn cell(&self, column: &'static str) -> Result<Cell<'_>, SqlError>;
}

/// A table that has rows for each session.
pub(super) trait SessionRows {
    type Row;

    /// Reads rows of a session from a position on: about `limit`. Returns where to continue.
    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<Self::Row>,
    ) -> Result<Option<Seq>, SqlError>;

    /// Returns a number of the row that no other row of the session has.
    fn number(&self, row: &Self::Row) -> u64;

    /// Returns a column of the row, except the session's name.
    fn cell<'a>(&'a self, of: &'a Reading, row: &'a Self::Row, column: &'static str) -> Result<Cell<'a>, SqlError>;
}

/// The rows of a table over the wanted sessions.
pub(super) struct Walk<T: SessionRows> {
    table: T,
    world: Arc<World>,
    /// The sessions still to read, by their places in the list.
    left: Range<usize>,
    first: Seq,
    reading: Option<Reading>,
    next: Option<Seq>,
    limit: usize,
    waiting: VecDeque<T::Row>,
    row: Option<T::Row>,
}

impl<T: SessionRows> Walk<T> {
    pub(super) fn new(world: &Arc<World>, wanted: &Wanted, table: T) -> Result<Self, SqlError> {
        let left = wanted_sessions(world, wanted)?;
        let (world, first) = (Arc::clone(world), wanted.from);
        let (reading, next, limit, waiting, row) = (None, None, ROWS_FIRST, VecDeque::new(), None);
        Ok(Self { table, world, left, first, reading, next, limit, waiting, row })
    }
}

/// Returns the places of the sessions whose rows a query wants.
pub(super) fn wanted_sessions(world: &World, wanted: &Wanted) -> Result<Range<usize>, SqlError> {
    let all = 0..world.entries.len();
    let named = match (wanted.is_none, &wanted.session, &wanted.of_session) {
        (true, ..) => None,
        (_, None, None) => return Ok(all),
        (_, _, Some(given)) => Some(world.find(given)?),
        (_, Some(name), None) => world.entries.iter().position(|(known, _)| **known == **name),
    };
    Ok(named.map_or(0..0, |at| at..at + 1))
}

impl<T: SessionRows> Rows for Walk<T> {
    fn advance(&mut self) -> Result<bool, SqlError> {
        loop {
            self.row = self.waiting.pop_front();
            if self.row.is_some() {
                return Ok(true);
            }
            self.world.check()?;
            match (&self.reading, self.next) {
                (Some(reading), Some(from)) => {
                    let read = self.table.read(reading, from, self.limit, &mut self.waiting);
                    self.limit = (self.limit * 4).min(ROWS_MAX);
                    self.next = match read {
                        // Removed while it was read.
                        Err(error) if error.kind() == ErrorKind::NotFound => None,
                        read => read?,
                    };
                }
                _ => {
                    let Some(ordinal) = self.left.next() else { return Ok(false) };
                    (self.reading, self.next) = (self.world.open(ordinal)?, Some(self.first));
                }
            }
        }
    }

    fn id(&self) -> i64 {
        let (ordinal, row) = (self.reading.as_ref().map_or(0, |of| of.ordinal as u64), self.row.as_ref());
        (ordinal << 40 | row.map_or(0, |row| self.table.number(row))) as i64
    }

    fn cell(&self, column: &'static str) -> Result<Cell<'_>, SqlError> {
        match (&self.reading, &self.row) {
            (Some(of), Some(_)) if column == "session" => Ok(text(&of.name)),
            (Some(of), Some(row)) => self.table.cell(of, row, column),
            _ => Ok(NULL),
        }
    }
}

/// Reads events of a session into rows, up to the limits of a piece. Returns where to continue.
pub(super) fn scan<R>(
    of: &Reading,
    (from, until): (Seq, Seq),
    limit: usize,
    rows: &mut VecDeque<R>,
    take: &mut dyn FnMut(&EventRef<'_>) -> Option<R>,
) -> Result<Option<Seq>, SqlError> {
    let (mut seen, mut bytes, mut next) = (0, 0, None);
    of.session.visit_between(from, until.min(of.head), &mut |event| {
        if seen == EVENTS_MAX || rows.len() >= limit || bytes > BYTES_MAX {
            next = Some(event.seq);
            return ControlFlow::Break(());
        }
        seen += 1;
        if let Some(row) = take(event) {
            bytes += event.payload.len();
            rows.push_back(row);
        }
        ControlFlow::Continue(())
    })?;
    Ok(next)
}
