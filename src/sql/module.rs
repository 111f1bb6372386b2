//! The tables as SQLite's virtual tables: the plan of a query on one, and its cursor.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use super::tables::{TABLES, Table};
use super::walk::Rows;
use super::wanted::{Pushed, Wanted};
use super::world::World;

/// Adds the tables to a connection.
pub(super) fn add_tables(connection: &Connection, world: &Arc<World>) -> Result<()> {
    let module: &'static Module<'static, HistoryTable> = const { &Module::eponymous_only_module() };
    TABLES.iter().try_for_each(|table| connection.create_module(table.name, module, Some((*table, Arc::clone(world)))))
}

/// A table of a connection. SQLite owns the first field.
#[repr(C)]
struct HistoryTable {
    base: sqlite3_vtab,
    table: &'static Table,
    world: Arc<World>,
}

#[expect(unsafe_code, reason = "the trait is unsafe: the base has to be the first field of a struct with C's layout")]
unsafe impl VTab<'_> for HistoryTable {
    type Aux = (&'static Table, Arc<World>);
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
        let columns: Vec<&str> = table.columns.iter().map(|column| column.declaration).collect();
        let declaration = CString::new(format!("CREATE TABLE x({})", columns.join(", ")))?;
        let table = Self { base: sqlite3_vtab::default(), table, world: Arc::clone(world) };
        Ok((declaration.into(), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut plan = format!("{}", info.col_used());
        let (mut taken, mut is_pinned) = (Vec::new(), false);
        let constraints: Vec<_> = info
            .constraints()
            .map(|constraint| (constraint.column(), constraint.operator(), constraint.is_usable()))
            .collect();
        for (at, (column, operator, is_usable)) in constraints.into_iter().enumerate() {
            let Some(known) = usize::try_from(column).ok().and_then(|column| self.table.columns.get(column)) else {
                continue;
            };
            let is_range = matches!(known.pushed, Pushed::Seq | Pushed::Call);
            let Some(operator) = code(&operator).filter(|code| *code == '=' || is_range) else { continue };
            if known.pushed == Pushed::No || !is_range && info.collation(at)? != "BINARY" {
                continue;
            }
            if !is_usable && (known.is_argument() || self.table.needs == Some(known.pushed)) {
                // Another order of the join has it.
                return Ok(false);
            }
            if is_usable {
                taken.push((known.pushed, operator));
                is_pinned |= matches!(known.pushed, Pushed::Session | Pushed::OfSession);
                let mut usage = info.constraint_usage(at);
                usage.set_argv_index(c_int::try_from(taken.len()).unwrap_or(c_int::MAX));
                usage.set_omit(known.is_argument());
                plan.push_str(&format!(" {operator}{column}"));
            }
        }
        if let Some(needed) = self.table.needs.filter(|needed| !taken.iter().any(|(taken, _)| taken == needed)) {
            let needed = format!("{needed:?}").to_lowercase();
            return Err(Error::ModuleError(format!("table {0} needs an argument: {0}({needed})", self.table.name)));
        }
        let is_sorted = is_pinned && self.is_order_of_rows(info);
        info.set_order_by_consumed(is_sorted);
        self.estimate(info, &taken);
        info.set_idx_str(&plan);
        Ok(true)
    }

    fn open(&mut self) -> Result<HistoryCursor> {
        let (table, world) = (self.table, Arc::clone(&self.world));
        Ok(HistoryCursor { base: sqlite3_vtab_cursor::default(), table, world, rows: None, is_at_end: true })
    }
}

impl HistoryTable {
    /// Returns true if the rows of a session come in the wanted order: by their position.
    fn is_order_of_rows(&self, info: &IndexInfo) -> bool {
        let mut orders = info.order_bys();
        let (first, others) = (orders.next(), orders.count());
        let column = |at: c_int| self.table.columns.get(usize::try_from(at).ok()?).map(|column| column.pushed);
        first.is_some_and(|by| others == 0 && !by.is_order_by_desc() && column(by.column()) == Some(Pushed::Seq))
    }

    /// Estimates the rows to read and to return, from the sizes of the sessions.
    fn estimate(&self, info: &mut IndexInfo, taken: &[(Pushed, char)]) {
        let all = self.world.entries.iter().map(|(_, entry)| entry.head).sum::<u64>() as f64;
        let (mut read, mut returned) = (all.max(1.0), 1.0);
        for (pushed, operator) in taken {
            match (pushed, operator) {
                (Pushed::Session | Pushed::OfSession, _) => read /= self.world.entries.len().max(1) as f64,
                (Pushed::Seq, '=') => read = 1.0,
                (Pushed::Digest, _) if self.table.needs.is_some() => read = 1.0,
                (Pushed::Seq | Pushed::Call, _) => read /= 2.0,
                (Pushed::Path, _) => returned /= 100.0,
                (Pushed::Kind | Pushed::Name, _) => returned /= 10.0,
                (Pushed::Digest | Pushed::At | Pushed::No, _) => {}
            }
        }
        info.set_estimated_cost(read + 10.0);
        info.set_estimated_rows((read * returned).max(1.0) as i64);
    }
}

/// Returns the code of an operator in plans; `None` for one that only SQLite applies.
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

/// A cursor of a table. SQLite owns the first field.
#[repr(C)]
struct HistoryCursor {
    base: sqlite3_vtab_cursor,
    table: &'static Table,
    world: Arc<World>,
    rows: Option<Box<dyn Rows>>,
    is_at_end: bool,
}

impl HistoryCursor {
    /// Reads the constraints of a plan with their values.
    fn wanted(&self, plan: &str, values: &Filters<'_>) -> Wanted {
        let mut words = plan.split(' ');
        let mut wanted = Wanted::all(words.next().and_then(|word| word.parse().ok()).unwrap_or(u64::MAX));
        for (word, value) in words.zip(values.iter()) {
            let mut letters = word.chars();
            let operator = letters.next().unwrap_or('=');
            let column = letters.as_str().parse::<usize>().ok().and_then(|at| self.table.columns.get(at));
            let Some(column) = column else { continue };
            match value {
                ValueRef::Text(text) => wanted.add(column.pushed, operator, String::from_utf8_lossy(text).into_owned()),
                ValueRef::Integer(number) => wanted.add(column.pushed, operator, number.to_string()),
                ValueRef::Null => wanted.is_none |= !column.is_argument(),
                ValueRef::Real(_) | ValueRef::Blob(_) => {}
            }
        }
        wanted
    }
}

#[expect(unsafe_code, reason = "the trait is unsafe: the base has to be the first field of a struct with C's layout")]
unsafe impl VTabCursor for HistoryCursor {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let wanted = self.wanted(plan.unwrap_or_default(), values);
        self.rows = Some((self.table.open)(&self.world, wanted).map_err(|error| self.world.fail(error))?);
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        let more = self.rows.as_mut().map_or(Ok(false), |rows| rows.advance());
        self.is_at_end = !more.map_err(|error| self.world.fail(error))?;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.is_at_end
    }

    fn column(&self, context: &mut Context, at: c_int) -> Result<()> {
        let column = usize::try_from(at).ok().and_then(|at| self.table.columns.get(at));
        let (Some(rows), Some(column)) = (&self.rows, column) else { return Ok(()) };
        let cell = rows.cell(column.name()).map_err(|error| self.world.fail(error))?;
        context.set_result(&cell)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.rows.as_ref().map_or(0, |rows| rows.id()))
    }
}
