//! Kinds of events and slices as tables: views over `events` and `slices`, with a column for each field of the data.

use rusqlite::hooks::{AuthContext, Authorization};
use rusqlite::{Connection, Result};

/// Limit for the fields that become columns, and for the rows that are searched for them.
const FIELDS: usize = 100;

/// Adds the view of a slice, or else of a kind of events. Returns false if neither was recorded.
pub(super) fn add_own_table(
    connection: &Connection,
    name: &str,
    confine: fn(&Connection) -> Result<()>,
) -> Result<bool> {
    let slices = ("slices", "name", "value", "session, seq, value");
    let events = ("events", "kind", "data", "session, seq, time, call, agent, data");
    for (table, key, data, columns) in [slices, events] {
        let rows = format!("SELECT {data} FROM {table} WHERE {key} = ?1 LIMIT {FIELDS}");
        if !connection.prepare(&rows)?.exists([name])? {
            continue;
        }
        let fields = format!(
            "SELECT DISTINCT field.key FROM ({rows}) AS row, json_each(row.{data}) AS field \
             WHERE typeof(field.key) = 'text' ORDER BY field.id LIMIT {}",
            FIELDS + 1
        );
        let mut fields = connection.prepare(&fields)?;
        let fields = fields.query_map([name], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>>>()?;
        // More are names of things, as in a map of files.
        let fields = if fields.len() > FIELDS { Vec::new() } else { fields };
        let is_new = |field: &&String| !columns.split(", ").any(|column| column.eq_ignore_ascii_case(field));
        let column = |field: &String| {
            let path = quoted(&format!("$.{}", quoted(field, '"')), '\'');
            format!(", {data} ->> {path} AS {}", quoted(field, '"'))
        };
        let fields: String = fields.iter().filter(is_new).map(column).collect();
        let view = quoted(name, '"');
        let rows = format!("SELECT {columns}{fields} FROM {table} WHERE {key} = {}", quoted(name, '\''));
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        let added = connection.execute_batch(&format!("CREATE TEMP VIEW {view} AS {rows}"));
        confine(connection)?;
        added?;
        return Ok(true);
    }
    Ok(false)
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}
