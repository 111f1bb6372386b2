//! The constraints of a query on a table.

use crate::engine::id::Seq;

/// A constraint that a table can apply itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// SQLite applies it.
    No,
    /// A session, by its exact name.
    Session,
    /// A session, by name or by the beginning of its id: an argument.
    OfSession,
    /// The position of the row, exact or in a range.
    Seq,
    /// The call of the row, which begins at this position or later.
    Call,
    Kind,
    Path,
    Name,
    Digest,
    /// A position of the session: an argument.
    At,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// The name and the type, for SQLite.
    pub(super) declaration: &'static str,
    pub(super) pushed: Pushed,
}

impl Column {
    pub(super) fn name(&self) -> &'static str {
        self.declaration.split(' ').next().unwrap_or_default()
    }

    /// Returns true for an argument: `files('demo', 12)`.
    pub(super) fn is_argument(&self) -> bool {
        self.declaration.ends_with(" HIDDEN")
    }
}

/// The rows that a query wants from a table, and perhaps others: SQLite checks them again, except for arguments.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) session: Option<String>,
    pub(super) of_session: Option<String>,
    pub(super) from: Seq,
    pub(super) until: Seq,
    pub(super) kind: Option<String>,
    pub(super) path: Option<String>,
    pub(super) name: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) at: Option<String>,
    /// True if no row can match: a comparison with NULL.
    pub(super) is_none: bool,
    /// The columns that the query reads, as bits.
    pub(super) columns: u64,
}

impl Wanted {
    pub(super) fn all(columns: u64) -> Self {
        let (from, until) = (1, Seq::MAX);
        let (session, of_session, kind, path, name, digest, at) = (None, None, None, None, None, None, None);
        Self { session, of_session, from, until, kind, path, name, digest, at, is_none: false, columns }
    }

    /// Adds a constraint, with an operator of `=`, `<`, `[` (at most), `>` and `]` (at least).
    pub(super) fn add(&mut self, pushed: Pushed, operator: char, value: String) {
        match pushed {
            Pushed::No => {}
            Pushed::Seq | Pushed::Call => {
                if let Ok(number) = value.parse() {
                    self.bound(operator, number, pushed == Pushed::Seq);
                }
            }
            Pushed::Session => self.session = Some(value),
            Pushed::OfSession => self.of_session = Some(value),
            Pushed::Kind => self.kind = Some(value),
            Pushed::Path => self.path = Some(value),
            Pushed::Name => self.name = Some(value),
            Pushed::Digest => self.digest = Some(value),
            Pushed::At => self.at = Some(value),
        }
    }

    /// Narrows the range of positions; only its beginning if `is_position` is false.
    fn bound(&mut self, operator: char, number: i64, is_position: bool) {
        let seq = Seq::try_from(number).unwrap_or(0);
        let from = match operator {
            '=' | ']' => seq,
            '>' => Seq::try_from(number.saturating_add(1)).unwrap_or(0),
            _ => 0,
        };
        let until = match operator {
            '=' | '[' if is_position => seq,
            '<' if is_position => seq.saturating_sub(1),
            _ => Seq::MAX,
        };
        (self.from, self.until) = (self.from.max(from), self.until.min(until));
    }

    /// Returns true if the query reads one of these columns.
    pub(super) fn reads(&self, columns: &[Column], names: &[&str]) -> bool {
        let is_read = |at: usize| self.columns & (1 << at.min(63)) != 0;
        columns.iter().enumerate().any(|(at, column)| names.contains(&column.name()) && is_read(at))
    }
}
