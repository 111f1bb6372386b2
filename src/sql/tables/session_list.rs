//! `sessions`: one row for each session.

use super::SqlTable;
use crate::engine::event::SessionStarted;
use crate::sql::walk::{NULL, number, owned};

pub(super) static SESSIONS: SqlTable = SqlTable {
    name: "sessions",
    columns: "session TEXT, id TEXT, parent TEXT, inherited INTEGER, backend TEXT, agent TEXT, events INTEGER, \
              calls INTEGER, created TEXT, updated TEXT",
    needs: None,
    read: |of, _, _, rows| {
        let entry = of.entry();
        let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
        let parent = started.as_ref().and_then(|started| started.origin.as_ref()).map(|origin| origin.parent);
        let named = |id| of.world.entries.iter().find(|(_, entry)| entry.id == id).map(|(name, _)| name.clone());
        let cells = vec![
            NULL,
            owned(entry.id),
            // A removed parent has only its id.
            parent.map_or(NULL, |parent| owned(named(parent).unwrap_or_else(|| parent.to_string()))),
            number(of.inherited()),
            started.map_or(NULL, |started| owned(started.backend)),
            owned(&entry.origin.agent),
            number(entry.head),
            entry.calls.map_or(NULL, number),
            owned(entry.origin.time),
            owned(entry.updated),
        ];
        rows.push_back(Box::new((0, cells)));
        Ok(None)
    },
};
