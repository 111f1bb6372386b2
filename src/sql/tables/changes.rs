//! `changes`: one row for each recorded change of an entry.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::Table;
use super::files::{digest_of, type_of};
use crate::engine::clock::Timestamp;
use crate::engine::event::{Node, WriteMode};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::sql::error::SqlError;
use crate::sql::names::SharedTexts;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, owned, scan, text};
use crate::sql::wanted::{Column, Pushed, Wanted};
use crate::sql::world::Reading;
use crate::tools::PlannedChange;

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static CHANGES: Table = Table {
    name: "changes",
    columns: &[
        column("session TEXT", Pushed::Session),
        column("seq INTEGER", Pushed::Seq),
        column("time TEXT", Pushed::No),
        column("call INTEGER", Pushed::Call),
        column("agent TEXT", Pushed::No),
        column("path TEXT", Pushed::Path),
        column("kind TEXT", Pushed::Kind),
        column("type TEXT", Pushed::No),
        column("size INTEGER", Pushed::No),
        column("digest TEXT", Pushed::No),
        column("inherited INTEGER", Pushed::No),
    ],
    needs: None,
    open: |world, mut wanted| {
        let path = wanted.path.as_deref().map(EntryPath::lookup);
        // An invalid path has never changed.
        wanted.is_none |= path.as_ref().is_some_and(Result::is_err);
        let path = path.and_then(Result::ok);
        let table = Changes { wanted: wanted.clone(), path, agents: RefCell::default() };
        Ok(Box::new(Walk::new(world, &wanted, table)?))
    },
};

struct Changes {
    wanted: Wanted,
    path: Option<EntryPath>,
    agents: RefCell<SharedTexts>,
}

struct ChangeRow {
    seq: Seq,
    time: Timestamp,
    call: Option<Seq>,
    agent: Arc<str>,
    path: String,
    kind: &'static str,
    node: Option<Node>,
}

impl Changes {
    fn row(&self, event: &EventRef<'_>) -> Option<ChangeRow> {
        // Most events are compared in place, without decoding them.
        if let (Some(wanted), Some(path)) = (&self.path, event.changed_path())
            && wanted.as_bytes() != path
        {
            return None;
        }
        let change = PlannedChange::of(event)?;
        let path = change.path().to_string();
        let (kind, node) = match change {
            PlannedChange::Write(write) if write.mode == WriteMode::Create => ("created", Some(write.node)),
            PlannedChange::Write(write) => ("changed", Some(write.node)),
            PlannedChange::Delete(_) => ("deleted", None),
            PlannedChange::Link(_) => ("linked", None),
        };
        let EventRef { seq, time, call, .. } = *event;
        let agent = self.agents.borrow_mut().of(event.agent);
        let is_wanted = self.wanted.kind.as_deref().is_none_or(|wanted| wanted == kind);
        is_wanted.then_some(ChangeRow { seq, time, call, agent, path, kind, node })
    }
}

impl SessionRows for Changes {
    type Row = ChangeRow;

    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<ChangeRow>,
    ) -> Result<Option<Seq>, SqlError> {
        scan(of, (from, self.wanted.until), limit, rows, &mut |event| self.row(event))
    }

    fn number(&self, row: &ChangeRow) -> u64 {
        row.seq
    }

    fn cell<'a>(&'a self, of: &'a Reading, row: &'a ChangeRow, column: &'static str) -> Result<Cell<'a>, SqlError> {
        Ok(match column {
            "seq" => number(row.seq),
            "time" => owned(row.time),
            "call" => row.call.map_or(NULL, number),
            "agent" => text(&row.agent),
            "path" => text(&row.path),
            "kind" => text(row.kind),
            "type" => row.node.as_ref().map_or(NULL, |node| text(type_of(node))),
            "size" => match &row.node {
                Some(Node::File { size, .. }) => number(*size),
                _ => NULL,
            },
            "digest" => row.node.as_ref().map_or(NULL, digest_of),
            "inherited" => number(u64::from(row.seq <= of.inherited)),
            _ => NULL,
        })
    }
}
