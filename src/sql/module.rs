//! The tables as SQLite's virtual tables: the plan of a query on one, and its cursor.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use super::tables::{SqlTable, TABLES};
use super::walk::Walk;
use super::wanted::Wanted;
use super::world::World;

/// Adds the tables to a connection.
pub(super) fn add_tables(connection: &Connection, world: &Arc<World>) -> Result<()> {
    let module: &'static Module<'static, HistoryTable> = const { &Module::eponymous_only_module() };
    TABLES.iter().try_for_each(|table| connection.create_module(table.name, module, Some((*table, Arc::clone(world)))))
}

/// A table of a connection. SQLite uses the first field.
#[repr(C)]
struct HistoryTable {
    base: sqlite3_vtab,
    table: &'static SqlTable,
    columns: Arc<[&'static str]>,
    world: Arc<World>,
}

fn is_argument(column: &str) -> bool {
    column.starts_with("of_") || column == "at"
}

#[expect(unsafe_code, reason = "the trait demands a struct with C's layout that begins with the base")]
unsafe impl VTab<'_> for HistoryTable {
    type Aux = (&'static SqlTable, Arc<World>);
    type Cursor = HistoryCursor;

    fn connect(
        connection: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let Some((table, world)) = aux else { return Err(Error::ModuleError("no such table".to_owned())) };
        connection.config(VTabConfig::Innocuous)?;
        let declaration = CString::new(format!("CREATE TABLE x({})", table.columns))?;
        let (base, columns, world) = (sqlite3_vtab::default(), table.names().collect(), Arc::clone(world));
        Ok((declaration.into(), Self { base, table, columns, world }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut plan = info.col_used().to_string();
        let mut taken = Vec::new();
        let given = info.constraints().map(|given| (given.column(), code(&given.operator()), given.is_usable()));
        for (at, (column, operator, is_usable)) in given.collect::<Vec<_>>().into_iter().enumerate() {
            let name = usize::try_from(column).ok().and_then(|column| self.columns.get(column).copied());
            let Some((name, operator)) = name.zip(operator).filter(|(name, code)| Wanted::applies(name, *code)) else {
                continue;
            };
            if info.collation(at)? != "BINARY" {
                continue;
            }
            if !is_usable && (is_argument(name) || self.table.needs == Some(name)) {
                // Another order of the join has the value.
                return Ok(false);
            }
            if is_usable {
                let takes_list = name == "kind" && info.set_in_constraint(at, true)?;
                plan.push_str(&format!(" {}{column}", if takes_list { 'i' } else { operator }));
                taken.push((name, operator));
                let mut usage = info.constraint_usage(at);
                usage.set_argv_index(c_int::try_from(taken.len()).unwrap_or(c_int::MAX));
                usage.set_omit(is_argument(name));
            }
        }
        let has = |name: &str| taken.iter().any(|(taken, _)| taken.trim_start_matches("of_") == name);
        if let Some(needed) = self.table.needs.filter(|needed| !has(needed)) {
            return Err(Error::ModuleError(format!("{0} needs an argument: {0}({needed})", self.table.name)));
        }
        info.set_order_by_consumed(has("session") && self.is_order_of_rows(info));
        self.estimate(info, &taken);
        info.set_idx_str(&plan);
        Ok(true)
    }

    fn open(&mut self) -> Result<HistoryCursor> {
        let (base, table, columns) = (sqlite3_vtab_cursor::default(), self.table, Arc::clone(&self.columns));
        Ok(HistoryCursor { base, table, columns, world: Arc::clone(&self.world), walk: None, is_at_end: true })
    }
}

impl HistoryTable {
    /// Returns true if the rows of a session come in the wanted order: by their position.
    fn is_order_of_rows(&self, info: &IndexInfo) -> bool {
        let mut orders = info.order_bys();
        let (first, others) = (orders.next(), orders.count());
        let name = |at: c_int| usize::try_from(at).ok().and_then(|at| self.columns.get(at).copied());
        let is_position = |at| name(at) == Some(self.table.position());
        first.is_some_and(|by| others == 0 && !by.is_order_by_desc() && is_position(by.column()))
    }

    /// Estimates the rows to read and to return from the sizes of the sessions.
    fn estimate(&self, info: &mut IndexInfo, taken: &[(&str, char)]) {
        let all = self.world.entries.iter().map(|(_, entry)| entry.head).sum::<u64>() as f64;
        let (mut read, mut part) = (all.max(1.0), 1.0);
        for (name, operator) in taken {
            match (name.trim_start_matches("of_"), operator) {
                ("session", _) => read /= self.world.entries.len().max(1) as f64,
                ("digest", _) if self.table.needs.is_some() => read = 1.0,
                (position, '=') if position == self.table.position() => read = 1.0,
                ("seq" | "call", _) => read /= 2.0,
                ("path", _) => part /= 100.0,
                _ => part /= 10.0,
            }
        }
        info.set_estimated_cost(read + 10.0);
        info.set_estimated_rows((read * part).max(1.0) as i64);
    }
}

/// Returns the code of an operator in plans; `None` for one that tables never apply.
fn code(operator: &IndexConstraintOp) -> Option<char> {
    Some(match operator {
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => '=',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => '<',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => '[',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => '>',
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => ']',
        _ => return None,
    })
}

/// A cursor of a table. SQLite uses the first field.
#[repr(C)]
struct HistoryCursor {
    base: sqlite3_vtab_cursor,
    table: &'static SqlTable,
    columns: Arc<[&'static str]>,
    world: Arc<World>,
    walk: Option<Walk>,
    is_at_end: bool,
}

impl HistoryCursor {
    /// Reads the constraints of a plan with their values.
    fn wanted(&self, plan: &str, values: &Filters<'_>) -> Result<Wanted> {
        let mut words = plan.split(' ');
        let used = words.next().and_then(|word| word.parse().ok()).unwrap_or(u64::MAX);
        let is_used = |(at, _): &(usize, &&'static str)| used & (1 << at) != 0;
        let mut wanted = Wanted::all(self.columns.iter().enumerate().filter(is_used).map(|(_, name)| *name).collect());
        for (at, (word, value)) in words.zip(values.iter()).enumerate() {
            let column = word.get(1..).and_then(|column| column.parse::<usize>().ok());
            let Some(column) = column.and_then(|column| self.columns.get(column).copied()) else { continue };
            let operator = word.chars().next().unwrap_or('=');
            if operator == 'i' {
                let kinds = values.in_values(at)?.map(|kind| Ok(text_of(kind).unwrap_or_default()));
                wanted.kinds = Some(kinds.collect()?);
            } else if let Some(value) = text_of(value) {
                wanted.add(column, operator, value, column == self.table.position());
            } else {
                wanted.is_none |= value == ValueRef::Null && !is_argument(column);
            }
        }
        Ok(wanted)
    }
}

/// Returns a text or a whole number as a text.
fn text_of(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
    }
}

#[expect(unsafe_code, reason = "the trait demands a struct with C's layout that begins with the base")]
unsafe impl VTabCursor for HistoryCursor {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let wanted = self.wanted(plan.unwrap_or_default(), values)?;
        let walk = Walk::new(&self.world, wanted, self.table.read);
        self.walk = Some(walk.map_err(|error| self.world.fail(error))?);
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        let more = self.walk.as_mut().map_or(Ok(false), Walk::advance);
        self.is_at_end = !more.map_err(|error| self.world.fail(error))?;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.is_at_end
    }

    fn column(&self, context: &mut Context, at: c_int) -> Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let (Some(walk), Some(column)) = (&self.walk, self.columns.get(at)) else { return Ok(()) };
        let cell = walk.cell((at, column)).map_err(|error| self.world.fail(error))?;
        context.set_result(&cell)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.walk.as_ref().map_or(0, Walk::id))
    }
}
