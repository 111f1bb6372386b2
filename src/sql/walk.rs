//! The rows of a table over the wanted sessions, read piece by piece.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use super::error::SqlError;
use super::wanted::Wanted;
use super::world::{SessionReading, World};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::Seq;

/// Rows of the first piece: many queries want few.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 4096;

/// A value of a row.
pub(super) type SqlCell<'a> = ToSqlOutput<'a>;

pub(super) const NULL: SqlCell<'static> = ToSqlOutput::Owned(Value::Null);

pub(super) fn text(text: &str) -> SqlCell<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

pub(super) fn owned(text: impl ToString) -> SqlCell<'static> {
    ToSqlOutput::Owned(Value::Text(text.to_string()))
}

pub(super) fn number(number: impl TryInto<i64>) -> SqlCell<'static> {
    ToSqlOutput::Owned(Value::Integer(number.try_into().unwrap_or(i64::MAX)))
}

/// A row of a session. `session` is a column of all tables, so that rows lack it.
pub(super) trait Row {
    /// Returns a number that no other row of the session has.
    fn number(&self) -> u64;

    /// Returns a column, by its place and its name.
    fn cell<'a>(&'a self, of: &'a SessionReading, column: (usize, &str)) -> Result<SqlCell<'a>, SqlError>;
}

/// The values of a row that were read at once.
impl Row for (u64, Vec<SqlCell<'static>>) {
    fn number(&self) -> u64 {
        self.0
    }

    fn cell<'a>(&'a self, _: &'a SessionReading, (at, _): (usize, &str)) -> Result<SqlCell<'a>, SqlError> {
        Ok(match self.1.get(at) {
            Some(ToSqlOutput::Owned(value)) => ToSqlOutput::Borrowed(value.into()),
            _ => NULL,
        })
    }
}

pub(super) type RowQueue = VecDeque<Box<dyn Row>>;

/// Reads rows of a session from a position on, about as many as given. Returns where to continue.
pub(super) type Read = fn(&SessionReading, &Wanted, (Seq, usize), &mut RowQueue) -> Result<Option<Seq>, SqlError>;

pub(super) struct Walk {
    read: Read,
    wanted: Wanted,
    world: Arc<World>,
    /// The sessions still to read, by their places in the list.
    left: Range<usize>,
    reading: Option<SessionReading>,
    next: Option<Seq>,
    limit: usize,
    waiting: RowQueue,
    row: Option<Box<dyn Row>>,
}

impl Walk {
    pub(super) fn new(world: &Arc<World>, wanted: Wanted, read: Read) -> Result<Self, SqlError> {
        let named = match (wanted.equal.get("of_session"), wanted.equal.get("session")) {
            (Some(given), _) => Some(world.find(given)?),
            (None, Some(name)) => world.named(name),
            (None, None) => None,
        };
        let left = match named {
            _ if wanted.is_none => 0..0,
            Some(at) => at..at + 1,
            None if wanted.equal.contains_key("session") => 0..0,
            None => 0..world.entries.len(),
        };
        let (world, waiting) = (Arc::clone(world), VecDeque::new());
        Ok(Self { read, wanted, world, left, reading: None, next: None, limit: ROWS_FIRST, waiting, row: None })
    }

    /// Moves to the next row. Returns false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, SqlError> {
        loop {
            self.row = self.waiting.pop_front();
            if self.row.is_some() {
                return Ok(true);
            }
            self.world.check()?;
            if let (Some(reading), Some(from)) = (&self.reading, self.next) {
                let read = (self.read)(reading, &self.wanted, (from, self.limit), &mut self.waiting);
                self.limit = (self.limit * 4).min(ROWS_MAX);
                self.next = match read {
                    // The session was removed, or lacks the position.
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    read => read?,
                };
            } else {
                let Some(at) = self.left.next() else { return Ok(false) };
                (self.reading, self.next) = (Some(SessionReading::new(&self.world, at)), Some(self.wanted.from));
            }
        }
    }

    /// Returns a number of the row that no other row of the table has.
    pub(super) fn id(&self) -> i64 {
        let (at, row) = (self.reading.as_ref().map_or(0, |of| of.at as i64), self.row.as_ref());
        at << 40 | row.map_or(0, |row| row.number() as i64)
    }

    /// Returns a column of the row, by its place and its name.
    pub(super) fn cell(&self, column: (usize, &str)) -> Result<SqlCell<'_>, SqlError> {
        match (&self.reading, &self.row) {
            (Some(of), Some(_)) if column.1 == "session" => Ok(text(of.name())),
            (Some(of), Some(row)) => row.cell(of, column),
            _ => Ok(NULL),
        }
    }
}
