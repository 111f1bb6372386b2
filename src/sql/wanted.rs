//! The rows that a query wants from a table.

use std::collections::BTreeMap;

use crate::engine::id::Seq;

/// Columns that a table compares itself, for equality.
const COMPARED: [&str; 9] = ["session", "kind", "path", "name", "digest", "of_session", "of_name", "of_digest", "at"];
/// Columns with a position.
const POSITIONS: [&str; 2] = ["seq", "call"];

/// The constraints of a query on a table. The table may return other rows, too: SQLite checks the constraints again,
/// except those on arguments.
pub(super) struct Wanted {
    pub(super) equal: BTreeMap<&'static str, String>,
    pub(super) kinds: Option<Vec<String>>,
    pub(super) from: Seq,
    pub(super) until: Seq,
    /// True if no row can match: a comparison with NULL.
    pub(super) is_none: bool,
    /// The names of the columns that the query reads.
    pub(super) columns: Vec<&'static str>,
}

impl Wanted {
    pub(super) fn all(columns: Vec<&'static str>) -> Self {
        Self { equal: BTreeMap::new(), kinds: None, from: 1, until: Seq::MAX, is_none: false, columns }
    }

    /// Returns true if tables apply an operator, of `=`, `<`, `[` (at most), `>` and `]` (at least), to a column.
    pub(super) fn applies(column: &str, operator: char) -> bool {
        POSITIONS.contains(&column) || (operator == '=' && COMPARED.contains(&column))
    }

    /// Adds a constraint that tables apply. `is_position` is true for the column with the position of the row, which
    /// the event of a call is after.
    pub(super) fn add(&mut self, column: &'static str, operator: char, value: String, is_position: bool) {
        if !POSITIONS.contains(&column) {
            self.equal.insert(column, value);
        } else if let Ok(number) = value.parse::<i64>() {
            let seq = |number: i64| Seq::try_from(number).unwrap_or(0);
            let from = match operator {
                '=' | ']' => seq(number),
                '>' => seq(number.saturating_add(1)),
                _ => 0,
            };
            let until = match operator {
                '=' | '[' if is_position => seq(number),
                '<' if is_position => seq(number.saturating_sub(1)),
                _ => Seq::MAX,
            };
            (self.from, self.until) = (self.from.max(from), self.until.min(until));
        }
    }

    /// Returns the value that one of two columns must have: an argument, or the column of the rows.
    pub(super) fn either(&self, argument: &str, column: &str) -> Option<&str> {
        self.equal.get(argument).or_else(|| self.equal.get(column)).map(String::as_str)
    }

    /// Returns true if the query reads one of these columns.
    pub(super) fn reads(&self, names: &[&str]) -> bool {
        self.columns.iter().any(|column| names.contains(column))
    }
}
