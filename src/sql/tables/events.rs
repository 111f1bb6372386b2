//! `events`: one row for each recorded event.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::SqlTable;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Payload, Recorded};
use crate::sql::error::SqlError;
use crate::sql::walk::{NULL, Row, RowQueue, SqlCell, number, owned, text};
use crate::sql::wanted::Wanted;
use crate::sql::world::SessionReading;
use crate::view::path_of;

/// Limit for the events of a piece, after which the limits of the query are checked again.
const EVENTS_MAX: usize = 50_000;
/// Limit for the payloads of a piece.
const BYTES_MAX: usize = 4 << 20;
/// Limit for the texts that rows share.
const SHARED_MAX: usize = 64;

pub(super) static EVENTS: SqlTable = SqlTable {
    name: "events",
    columns: "session TEXT, seq INTEGER, time TEXT, call INTEGER, agent TEXT, kind TEXT, path TEXT, data TEXT, \
              inherited INTEGER",
    needs: None,
    read,
};

struct RecordedRow {
    event: Recorded,
    /// The data as JSON, built once if it is read.
    data: OnceCell<String>,
}

fn read(
    of: &SessionReading,
    wanted: &Wanted,
    (from, limit): (Seq, usize),
    rows: &mut RowQueue,
) -> Result<Option<Seq>, SqlError> {
    let path = wanted.equal.get("path").map(|path| EntryPath::lookup(path));
    // An invalid path has never changed.
    let Ok(path) = path.transpose() else { return Ok(None) };
    let is_wanted = |event: &EventRef<'_>| match (&path, event.changed_path()) {
        _ if !of_kind(wanted, event.kind) => false,
        (None, _) => true,
        // Most paths are compared in place, without decoding the event.
        (Some(path), Some(changed)) => path.as_bytes() == changed,
        (Some(path), None) => path_of(event).is_some_and(|changed| changed == *path),
    };
    let (has_payload, mut shared) = (wanted.reads(&["data", "path"]), Vec::<Arc<str>>::new());
    let mut share = |text: &str| match shared.iter().find(|known| ***known == *text) {
        Some(known) => Arc::clone(known),
        None => {
            let new: Arc<str> = text.into();
            shared.extend((shared.len() < SHARED_MAX).then(|| Arc::clone(&new)));
            new
        }
    };
    let (mut seen, mut bytes, mut next) = (0, 0, None);
    of.session()?.visit_between(from, wanted.until.min(of.entry().head), &mut |event| {
        if seen == EVENTS_MAX || rows.len() >= limit || bytes > BYTES_MAX {
            next = Some(event.seq);
            return ControlFlow::Break(());
        }
        seen += 1;
        if is_wanted(event) {
            let payload = if has_payload { Bytes::copy_from_slice(event.payload) } else { Bytes::new() };
            bytes += payload.len();
            let EventRef { session, seq, time, call, version, .. } = *event;
            let (agent, payload) = (share(event.agent), Payload { kind: share(event.kind), version, bytes: payload });
            let event = Recorded { session, seq, time, call, agent, event: payload };
            rows.push_back(Box::new(RecordedRow { event, data: OnceCell::new() }));
        }
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

fn of_kind(wanted: &Wanted, kind: &str) -> bool {
    wanted.equal.get("kind").is_none_or(|wanted| wanted == kind)
        && wanted.kinds.as_ref().is_none_or(|wanted| wanted.iter().any(|wanted| wanted == kind))
}

impl Row for RecordedRow {
    fn number(&self) -> u64 {
        self.event.seq
    }

    fn cell<'a>(&'a self, of: &'a SessionReading, (_, column): (usize, &str)) -> Result<SqlCell<'a>, SqlError> {
        let event = &self.event;
        Ok(match column {
            "seq" => number(event.seq),
            "time" => owned(event.time),
            "call" => event.call.map_or(NULL, number),
            "agent" => text(&event.agent),
            "kind" => text(&event.event.kind),
            "path" => path_of(&event.view()).map_or(NULL, owned),
            "data" => {
                let session = of.session()?;
                text(self.data.get_or_init(|| session.event_json(&event.view()).to_string()))
            }
            _ => number(u64::from(event.seq <= of.inherited())),
        })
    }
}
