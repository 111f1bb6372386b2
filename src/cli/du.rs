use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use foldspace::SessionId;
use foldspace::event::{Digest, Node, WriteFile};
use foldspace::store::{SessionEntry, StorageUse};
use serde::Serialize;
use serde_json::json;

use super::{BOLD, Cell, DIM, Failure, Globals, OpenedStore, Out, TextTable, open, text};

/// Shows the space used by events, sessions, contents and files
#[derive(Debug, clap::Args)]
pub(super) struct Du {
    /// The session; without one, all sessions and the files on the disk are counted
    session: Option<String>,
}

#[derive(Debug, Serialize)]
struct SessionUse {
    session: SessionId,
    name: String,
    events: u64,
    event_bytes: u64,
    written_bytes: u64,
    distinct_bytes: u64,
}

#[derive(Default)]
struct UsageCount {
    /// The number and the size of the events of each kind.
    kinds: BTreeMap<String, (u64, u64)>,
    sessions: Vec<SessionUse>,
}

impl Du {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let mut count = UsageCount::default();
        match &self.session {
            Some(wanted) => count.add(&opened, &opened.find(wanted)?.entry)?,
            None => opened.sessions.list()?.iter().try_for_each(|entry| count.add(&opened, entry))?,
        }
        let store = match self.session {
            Some(_) => Vec::new(),
            None => opened.sessions.store().usage()?,
        };
        let written = count.sessions.iter().map(|session| session.written_bytes).sum::<u64>();
        let kept = store.iter().find(|row| row.what == "contents").map(|row| row.disk_bytes);
        let kept = kept.unwrap_or_else(|| count.sessions.iter().map(|session| session.distinct_bytes).sum());
        let ratio = (kept > 0).then(|| written as f64 / kept as f64);
        if out.is_json() {
            let kind = |(kind, (count, bytes)): (&String, &(u64, u64))| json!({ "kind": kind, "count": count, "bytes": bytes });
            return out.document(&json!({
                "kinds": count.kinds.iter().map(kind).collect::<Vec<_>>(),
                "sessions": count.sessions,
                "store": store,
                "written_bytes": written,
                "kept_bytes": kept,
                "dedup_ratio": ratio,
            }));
        }
        show_kinds(&count.kinds, out)?;
        out.line("")?;
        show_sessions(&count.sessions, out)?;
        if !store.is_empty() {
            out.line("")?;
            show_store(&store, out)?;
        }
        let ratio = ratio.map_or(String::new(), |ratio| format!(", {ratio:.1} to 1"));
        let where_to = if store.is_empty() { "of them differ" } else { "stored on the disk" };
        out.line(format!("\n{} of files written, {} {where_to}{ratio}", text::size(written), text::size(kept)))
    }
}

impl UsageCount {
    fn add(&mut self, opened: &OpenedStore, entry: &SessionEntry) -> Result<(), Failure> {
        let session = opened.sessions.session(entry.id)?;
        let (mut event_bytes, mut written_bytes, mut distinct_bytes) = (0, 0, 0);
        let mut seen = BTreeSet::<Digest>::new();
        session.visit_between(1, entry.head, &mut |event| {
            let bytes = event.payload.len() as u64;
            event_bytes += bytes;
            match self.kinds.get_mut(event.kind) {
                Some((count, sum)) => (*count, *sum) = (*count + 1, *sum + bytes),
                None => drop(self.kinds.insert(event.kind.to_owned(), (1, bytes))),
            }
            if let Some(Ok(write)) = event.typed::<WriteFile>()
                && let Node::File { content, size, incomplete: false, .. } = write.event.node
            {
                written_bytes += size;
                distinct_bytes += if seen.insert(content) { size } else { 0 };
            }
            ControlFlow::Continue(())
        })?;
        let (session, name, events) = (entry.id, entry.name(), entry.head);
        self.sessions.push(SessionUse { session, name, events, event_bytes, written_bytes, distinct_bytes });
        Ok(())
    }
}

fn show_kinds(kinds: &BTreeMap<String, (u64, u64)>, out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::with_titles(&["kind of event", ">events", ">bytes"]);
    let mut sorted: Vec<_> = kinds.iter().collect();
    sorted.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(bytes));
    for (kind, (count, bytes)) in sorted {
        table.row([Cell::left(text::one_line(kind, 100)), Cell::right(count), Cell::right(text::size(*bytes))]);
    }
    table.show(out)
}

fn show_sessions(sessions: &[SessionUse], out: &mut Out) -> Result<(), Failure> {
    let titles = ["session", "id", ">events", ">bytes", ">files written", ">of them differ"];
    let mut table = TextTable::with_titles(&titles);
    for row in sessions {
        table.row([
            Cell::left(text::one_line(&row.name, 80)).styled(BOLD),
            Cell::left(row.session.short()).styled(DIM),
            Cell::right(row.events),
            Cell::right(text::size(row.event_bytes)),
            Cell::right(text::size(row.written_bytes)),
            Cell::right(text::size(row.distinct_bytes)),
        ]);
    }
    table.show(out)
}

fn show_store(store: &[StorageUse], out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::with_titles(&["store", ">count", ">as given", ">on the disk"]);
    for row in store {
        table.row([
            Cell::left(row.what.as_ref()),
            Cell::right(row.count),
            Cell::right(text::size(row.raw_bytes)),
            Cell::right(text::size(row.disk_bytes)),
        ]);
    }
    table.show(out)
}
