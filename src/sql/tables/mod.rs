//! The tables.

mod calls;
mod events;
mod files;
mod session_list;

use super::walk::Read;

/// A table: its columns, and its rows for a query.
pub(super) struct SqlTable {
    pub(super) name: &'static str,
    /// The columns with their types, for SQLite. Hidden ones are arguments: `files('demo', 12)`.
    pub(super) columns: &'static str,
    /// The argument without which the table has no rows.
    pub(super) needs: Option<&'static str>,
    pub(super) read: Read,
}

impl SqlTable {
    /// Returns the names of the columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(", ").map(|column| column.split(' ').next().unwrap_or_default())
    }

    /// Returns the column with the position of a row.
    pub(super) fn position(&self) -> &'static str {
        if self.name == calls::CALLS.name { "call" } else { "seq" }
    }
}

pub(super) static TABLES: [&SqlTable; 6] =
    [&session_list::SESSIONS, &events::EVENTS, &calls::CALLS, &files::FILES, &files::CONTENT, &files::SLICES];

/// The tables that are views of others, by their names.
pub(super) const VIEWS: [&str; 2] = ["commands", "changes"];

/// Creates the views. SQLite adds a query's constraints to theirs.
pub(super) const CREATE_VIEWS: &str = "
CREATE TEMP VIEW commands AS SELECT session, seq, time, call, agent, kind,
    iif(kind = 'EvalResult', (SELECT text FROM content(data ->> '$.code')),
        (SELECT group_concat(value, ' ') FROM json_each(data, '$.command'))) AS command,
    data ->> '$.cwd' AS cwd, data ->> '$.exit_code' AS exit_code, data ->> '$.timed_out' AS timed_out,
    data ->> '$.cancelled' AS cancelled, data ->> '$.micros' AS micros,
    (SELECT text FROM content(data ->> '$.stdout.content')) AS stdout,
    (SELECT text FROM content(data ->> '$.stderr.content')) AS stderr, inherited
FROM events WHERE kind IN ('CommandResult', 'EvalResult');
CREATE TEMP VIEW changes AS SELECT session, seq, time, call, agent, path,
    CASE WHEN kind = 'DeleteEntry' THEN 'deleted' WHEN kind = 'LinkFile' THEN 'linked'
        WHEN data ->> '$.mode' = 'create' THEN 'created' ELSE 'changed' END AS kind,
    data ->> '$.node' AS type, data ->> '$.size' AS size,
    nullif(data ->> '$.content', '0000000000000000000000000000000000000000000000000000000000000000') AS digest, inherited
FROM events WHERE kind IN ('WriteFile', 'DeleteEntry', 'LinkFile')";
