//! `sessions`: one row for each session.

use std::ops::Range;
use std::sync::Arc;

use super::Table;
use crate::engine::event::SessionStarted;
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, Rows, number, owned, text, wanted_sessions};
use crate::sql::wanted::{Column, Pushed};
use crate::sql::world::World;

const fn column(declaration: &'static str) -> Column {
    Column { declaration, pushed: Pushed::No }
}

pub(super) static SESSIONS: Table = Table {
    name: "sessions",
    columns: &[
        Column { declaration: "session TEXT", pushed: Pushed::Session },
        column("id TEXT"),
        column("parent TEXT"),
        column("inherited INTEGER"),
        column("backend TEXT"),
        column("agent TEXT"),
        column("events INTEGER"),
        column("calls INTEGER"),
        column("created TEXT"),
        column("updated TEXT"),
    ],
    needs: None,
    open: |world, wanted| {
        let left = wanted_sessions(world, &wanted)?;
        Ok(Box::new(SessionList { world: Arc::clone(world), left, at: 0, started: None }))
    },
};

struct SessionList {
    world: Arc<World>,
    left: Range<usize>,
    at: usize,
    started: Option<SessionStarted>,
}

impl Rows for SessionList {
    fn advance(&mut self) -> Result<bool, SqlError> {
        let Some(at) = self.left.next() else { return Ok(false) };
        self.at = at;
        let origin = &self.world.entries[at].1.origin;
        self.started = origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
        Ok(true)
    }

    fn id(&self) -> i64 {
        self.at as i64
    }

    fn cell(&self, column: &'static str) -> Result<Cell<'_>, SqlError> {
        let (name, entry) = &self.world.entries[self.at];
        let parent = || self.started.as_ref()?.origin.as_ref().map(|origin| origin.parent);
        Ok(match column {
            "session" => text(name),
            "id" => owned(entry.id),
            "parent" => {
                // The parent may have been removed.
                let Some(parent) = parent() else { return Ok(NULL) };
                let known = self.world.entries.iter().find(|(_, entry)| entry.id == parent);
                known.map_or_else(|| owned(parent), |(name, _)| text(name))
            }
            "inherited" => number(entry.origin.seq.saturating_sub(1)),
            "backend" => self.started.as_ref().map_or(NULL, |started| text(&started.backend)),
            "agent" => text(&entry.origin.agent),
            "events" => number(entry.head),
            "calls" => entry.calls.map_or(NULL, number),
            "created" => owned(entry.origin.time),
            "updated" => owned(entry.updated),
            _ => NULL,
        })
    }
}
