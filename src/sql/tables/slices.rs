//! `slices(session, name, at)`: one row for each slice at a position, as JSON.

use std::cell::OnceCell;
use std::collections::VecDeque;

use super::Table;
use super::files::{position, resolved};
use crate::engine::id::Seq;
use crate::engine::state::State;
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, text};
use crate::sql::wanted::{Column, Pushed};
use crate::sql::world::Reading;
use crate::view::{Position, slice};

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static SLICES: Table = Table {
    name: "slices",
    columns: &[
        column("session TEXT", Pushed::Session),
        column("name TEXT", Pushed::Name),
        column("seq INTEGER", Pushed::No),
        column("value TEXT", Pushed::No),
        column("of_session TEXT HIDDEN", Pushed::OfSession),
        column("of_name TEXT HIDDEN", Pushed::Name),
        column("at TEXT HIDDEN", Pushed::At),
    ],
    needs: None,
    open: |world, wanted| {
        let table = Slices { at: position(&wanted)?, name: wanted.name.clone() };
        Ok(Box::new(Walk::new(world, &wanted, table)?))
    },
};

struct Slices {
    at: Option<Position>,
    name: Option<String>,
}

struct SliceRow {
    number: u64,
    state: State,
    name: String,
    value: OnceCell<String>,
}

impl SessionRows for Slices {
    type Row = SliceRow;

    fn read(&self, of: &Reading, _: Seq, _: usize, rows: &mut VecDeque<SliceRow>) -> Result<Option<Seq>, SqlError> {
        let state = of.session.state_at(resolved(of, self.at.as_ref())?)?;
        let names = state.slices().into_iter().map(|slice| slice.name).zip(0..);
        let wanted = names.filter(|(name, _)| self.name.as_ref().is_none_or(|wanted| wanted == name));
        rows.extend(wanted.map(|(name, number)| {
            let (state, value) = (state.clone(), OnceCell::new());
            SliceRow { number, state, name, value }
        }));
        Ok(None)
    }

    fn number(&self, row: &SliceRow) -> u64 {
        row.number
    }

    fn cell<'a>(&'a self, _: &'a Reading, row: &'a SliceRow, column: &'static str) -> Result<Cell<'a>, SqlError> {
        Ok(match column {
            "name" => text(&row.name),
            "seq" => number(row.state.seq()),
            "value" => {
                if row.value.get().is_none() {
                    let value =
                        slice(&row.state, &row.name).map_err(crate::engine::session::error::SessionError::from)?;
                    // Only the first value counts.
                    drop(row.value.set(value.to_string()));
                }
                text(row.value.get().map_or("", String::as_str))
            }
            _ => NULL,
        })
    }
}
