//! `events`: one row for each recorded event.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;

use super::Table;
use crate::engine::id::Seq;
use crate::engine::recorded::{EventRef, Payload, Recorded};
use crate::sql::error::SqlError;
use crate::sql::names::SharedTexts;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, owned, scan, text};
use crate::sql::wanted::{Column, Pushed, Wanted};
use crate::sql::world::Reading;

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static EVENTS: Table = Table {
    name: "events",
    columns: &[
        column("session TEXT", Pushed::Session),
        column("seq INTEGER", Pushed::Seq),
        column("time TEXT", Pushed::No),
        column("call INTEGER", Pushed::Call),
        column("agent TEXT", Pushed::No),
        column("kind TEXT", Pushed::Kind),
        column("data TEXT", Pushed::No),
        column("inherited INTEGER", Pushed::No),
    ],
    needs: None,
    open: |world, wanted| {
        let has_data = wanted.reads(EVENTS.columns, &["data"]);
        let table = Events { wanted: wanted.clone(), has_data, texts: RefCell::default() };
        Ok(Box::new(Walk::new(world, &wanted, table)?))
    },
};

struct Events {
    wanted: Wanted,
    /// True if the query reads the data; else the payloads are not copied.
    has_data: bool,
    texts: RefCell<SharedTexts>,
}

struct EventRow {
    event: Recorded,
    /// The data as JSON, built once if it is read.
    data: OnceCell<String>,
}

impl Events {
    fn row(&self, event: &EventRef<'_>) -> Option<EventRow> {
        if self.wanted.kind.as_deref().is_some_and(|kind| kind != event.kind) {
            return None;
        }
        let mut texts = self.texts.borrow_mut();
        let bytes = if self.has_data { Bytes::copy_from_slice(event.payload) } else { Bytes::new() };
        let payload = Payload { kind: texts.of(event.kind), version: event.version, bytes };
        let (agent, EventRef { session, seq, time, call, .. }) = (texts.of(event.agent), *event);
        Some(EventRow { event: Recorded { session, seq, time, call, agent, event: payload }, data: OnceCell::new() })
    }
}

impl SessionRows for Events {
    type Row = EventRow;

    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<EventRow>,
    ) -> Result<Option<Seq>, SqlError> {
        scan(of, (from, self.wanted.until), limit, rows, &mut |event| self.row(event))
    }

    fn number(&self, row: &EventRow) -> u64 {
        row.event.seq
    }

    fn cell<'a>(&'a self, of: &'a Reading, row: &'a EventRow, column: &'static str) -> Result<Cell<'a>, SqlError> {
        let event = &row.event;
        Ok(match column {
            "seq" => number(event.seq),
            "time" => owned(event.time),
            "call" => event.call.map_or(NULL, number),
            "agent" => text(&event.agent),
            "kind" => text(&event.event.kind),
            "data" => text(row.data.get_or_init(|| of.session.event_json(&event.view()).to_string())),
            "inherited" => number(u64::from(event.seq <= of.inherited)),
            _ => NULL,
        })
    }
}
