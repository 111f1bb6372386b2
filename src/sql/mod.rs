//! SQL over the histories of a store: SQLite's engine on virtual tables that read the sessions. Nothing is copied, and
//! nothing can be written. docs/sql.md describes the tables.

mod as_parquet;
mod error;
mod module;
mod own_tables;
mod tables;
#[cfg(test)]
mod tests;
mod walk;
mod wanted;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, ErrorCode, Statement};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::engine::id::SessionId;
use crate::engine::session::sessions::Sessions;
pub use error::SqlError;
use module::add_tables;
use own_tables::add_own_table;
use tables::{CREATE_VIEWS, TABLES, VIEWS};
use world::World;

/// Limit for the memory of SQLite in a process, in bytes.
const MEMORY: usize = 256 << 20;
/// Limit for a value or a row, in bytes.
const VALUE_MAX: usize = 16 << 20;
/// Limit for a query, in bytes.
const QUERY_MAX: usize = 100_000;
/// Steps of SQLite between two checks of the limits.
const STEPS: i32 = 10_000;
/// Limit for the kinds and slices that a query uses as tables.
const OWN_TABLES: usize = 20;

/// The limits of a query.
#[derive(Debug, Clone, Copy)]
pub struct SqlLimits {
    /// Limit for the returned rows.
    pub rows: usize,
    /// Limit for the returned values in bytes.
    pub bytes: usize,
    /// Limit for the time.
    pub time: Duration,
}

impl Default for SqlLimits {
    fn default() -> Self {
        Self { rows: 10_000, bytes: 16 << 20, time: Duration::from_secs(30) }
    }
}

/// The rows that a query returned.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SqlAnswer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows: a text, a number or null for each column; a blob as hexadecimal digits.
    #[schemars(extend("items" = { "type": "array", "items": { "type": ["string", "number", "null"] } }))]
    pub rows: Vec<Vec<Value>>,
    /// True if there are more rows, over a limit.
    pub truncated: bool,
}

/// Runs a query over the sessions, or over only one of them.
///
/// # Errors
/// The query is invalid, does not only read, exceeds a limit or is cancelled; or a session can't be read.
pub fn query(
    sessions: &Sessions,
    only: Option<SessionId>,
    text: &str,
    limits: SqlLimits,
    is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<SqlAnswer, SqlError> {
    if text.len() > QUERY_MAX || text.contains('\0') {
        return Err(SqlError::invalid(format!("a query has at most {QUERY_MAX} bytes, and no NUL")));
    }
    let world = Arc::new(World::new(sessions, only, limits.time, Box::new(is_cancelled))?);
    let connection = opened(&world).map_err(sql_error)?;
    // SQLite has only the text of a table's error.
    answer(&connection, &world, text, limits).map_err(|error| world.failure().unwrap_or(error))
}

/// Opens an empty database in memory, with the tables and without any other ability.
fn opened(world: &Arc<World>) -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.query_row(&format!("PRAGMA hard_heap_limit = {MEMORY}"), [], |_| Ok(()))?;
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    let limits = [
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX),
        (Limit::SQLITE_LIMIT_COLUMN, 256),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
    ];
    for (limit, value) in limits {
        connection.set_limit(limit, i32::try_from(value).unwrap_or(i32::MAX))?;
    }
    add_tables(&connection, world)?;
    connection.execute_batch(CREATE_VIEWS)?;
    let watched = Arc::clone(world);
    let is_over = move || watched.check().map_err(|error| watched.fail(error)).is_err();
    connection.progress_handler(STEPS, Some(is_over))?;
    confine(&connection)?;
    Ok(connection)
}

/// Lets statements only read.
fn confine(connection: &Connection) -> rusqlite::Result<()> {
    connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
        AuthAction::Function { function_name: "load_extension" } => Authorization::Deny,
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive | AuthAction::Function { .. } => {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }))
}

fn answer(connection: &Connection, world: &World, text: &str, limits: SqlLimits) -> Result<SqlAnswer, SqlError> {
    let mut statement = prepared(connection, world, text)?;
    let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let (mut rows, mut bytes, mut truncated) = (Vec::new(), 0, false);
    let mut found = statement.query([]).map_err(sql_error)?;
    while let Some(row) = found.next().map_err(sql_error)? {
        let cells = (0..columns.len()).map(|at| row.get_ref(at).map(value));
        let values = cells.collect::<rusqlite::Result<Vec<_>>>().map_err(sql_error)?;
        bytes += values.iter().map(|value| 8 + value.as_str().map_or(0, str::len)).sum::<usize>();
        if bytes > limits.bytes && rows.is_empty() {
            return Err(SqlError::TooLarge { what: "a row", limit: limits.bytes });
        }
        truncated = rows.len() == limits.rows || bytes > limits.bytes;
        if truncated {
            break;
        }
        rows.push(values);
    }
    Ok(SqlAnswer { columns, rows, truncated })
}

/// Prepares the only statement of a query. If it lacks a table, adds those of the kinds and slices that it names.
fn prepared<'a>(connection: &'a Connection, world: &World, text: &str) -> Result<Statement<'a>, SqlError> {
    let prepare = || {
        let mut statements = Batch::new(connection, text);
        let statement = statements.next()?;
        let is_alone = statement.as_ref().is_none_or(Statement::readonly) && matches!(statements.next(), Ok(None));
        Ok::<_, rusqlite::Error>((statement, is_alone))
    };
    let prepared = prepare().or_else(|error| {
        let added = own_names(world, text).into_iter().map(|name| add_own_table(connection, &name, confine));
        match added.collect::<rusqlite::Result<Vec<_>>>()?.contains(&true) {
            true => prepare(),
            false => Err(error),
        }
    });
    match prepared {
        Ok((None, _)) => Err(SqlError::invalid("the query is empty")),
        Ok((Some(statement), true)) => Ok(statement),
        Ok((Some(_), false)) => Err(SqlError::NotReading),
        // SQLite has no place for the error of an unknown table.
        Err(rusqlite::Error::SqliteFailure(code, Some(reason))) if code.extended_code == 1 => {
            let names: Vec<&str> = TABLES.iter().map(|table| table.name).chain(VIEWS).collect();
            let names = format!("the tables are {}, and recorded kinds and slices: \"plan.step\"", names.join(", "));
            Err(SqlError::Invalid { reason, hint: Some(names) })
        }
        Err(error) => Err(sql_error(error)),
    }
}

/// Returns the names in a query that may be those of kinds and slices: built-in ones, and all in double quotes.
fn own_names(world: &World, text: &str) -> BTreeSet<String> {
    let words = |part: &str| {
        let words = part.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.filter(|word| world.is_built_in(word)).map(str::to_owned).collect::<Vec<_>>()
    };
    let parts = text.split('"').enumerate();
    let names = parts.flat_map(|(at, part)| if at % 2 == 1 { vec![part.to_owned()] } else { words(part) });
    let is_new = |name: &String| !TABLES.iter().map(|table| table.name).chain(VIEWS).any(|known| known == name);
    names.filter(is_new).take(OWN_TABLES).collect()
}

fn value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(blob) => blob.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// Returns the error of a query for an error of SQLite.
fn sql_error(error: rusqlite::Error) -> SqlError {
    match (error.sqlite_error_code(), error) {
        (Some(ErrorCode::AuthorizationForStatementDenied), _) => SqlError::NotReading,
        (Some(ErrorCode::OutOfMemory), _) => SqlError::TooLarge { what: "the memory", limit: MEMORY },
        (Some(ErrorCode::TooBig), _) => SqlError::TooLarge { what: "a value or row", limit: VALUE_MAX },
        (_, rusqlite::Error::SqlInputError { msg, sql, offset, .. }) => {
            let rest = usize::try_from(offset).ok().and_then(|offset| sql.get(offset..)).unwrap_or_default();
            let near: String = rest.chars().take(40).collect();
            SqlError::invalid(if near.is_empty() { msg } else { format!("{msg}, at: {near}") })
        }
        (_, rusqlite::Error::SqliteFailure(_, Some(message))) => SqlError::invalid(message),
        (_, error) => SqlError::invalid(error.to_string()),
    }
}
