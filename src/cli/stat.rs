use std::ops::ControlFlow;

use foldspace::event::{Node, WriteFile};
use foldspace::reducers::Entry;
use foldspace::view::backward_spans;
use foldspace::{EntryPath, Seq, Session, State, VirtualFileSystem};
use serde::Serialize;
use serde_json::json;

use super::live_files::ShownFiles;
use super::{BOLD, Cell, Failure, Out, TextTable, text, tree};

/// The number of events that are searched first, from the end.
const SPAN: u64 = 1024;

#[derive(Serialize)]
struct LastWrite {
    seq: Seq,
    call: Option<Seq>,
    agent: String,
}

/// Shows the metadata of an entry.
pub(super) fn show_entry(
    session: &Session,
    state: &State,
    (path, shown): (&EntryPath, &ShownFiles<'_>),
    out: &mut Out,
) -> Result<(), Failure> {
    if path.is_root() {
        return Err(Failure::missing("/ is the workspace itself; name an entry in it"));
    }
    let entry = tree::entry(&shown.files, path, state)?;
    // No event wrote an unrecorded change.
    let is_recorded = VirtualFileSystem::of(state).get(path) == Some(entry);
    let writing = if is_recorded { last_writing(session, state.seq(), path)? } else { None };
    let mut document = json!(shown.document(path, entry));
    document["written_by"] = json!(writing);
    out.show(&document, |out| show(path, entry, writing.as_ref(), out))
}

fn last_writing(session: &Session, until: Seq, path: &EntryPath) -> Result<Option<LastWrite>, Failure> {
    let mut last = None;
    for (from, until) in backward_spans((1, until), SPAN, 8) {
        session.visit_between(from, until, &mut |event| {
            if event.decoded().is_some_and(|write: WriteFile| write.path == *path) {
                last = Some(LastWrite { seq: event.seq, call: event.call, agent: event.agent.to_owned() });
            }
            ControlFlow::Continue(())
        })?;
        if last.is_some() {
            break;
        }
    }
    Ok(last)
}

fn show(path: &EntryPath, entry: &Entry, writing: Option<&LastWrite>, out: &mut Out) -> Result<(), Failure> {
    let mut rows = vec![("path", path.rooted())];
    match &entry.node {
        Node::File { content, size, mode, text, incomplete } => rows.extend([
            ("kind", if *text { "text file" } else { "binary file" }.to_owned()),
            ("size", format!("{} ({})", text::count(*size, "byte"), text::size(*size))),
            ("mode", mode.to_string()),
            ("digest", content.to_string()),
            ("stored", if *incomplete { "no: over a budget" } else { "yes" }.to_owned()),
        ]),
        Node::Symlink { target } => rows.extend([
            ("kind", "symbolic link".to_owned()),
            ("target", text::one_line(&String::from_utf8_lossy(target), 4096)),
        ]),
        Node::Directory { mode } => rows.extend([("kind", "directory".to_owned()), ("mode", mode.to_string())]),
        Node::Special { special } => rows.push(("kind", special.name().to_owned())),
    }
    rows.push(("version", entry.version.to_string()));
    rows.push(("created", text::exact_moment(entry.created_at)));
    rows.push(("updated", text::exact_moment(entry.updated_at)));
    if let Some(LastWrite { seq, call, agent }) = writing {
        let call = call.map_or(String::new(), |call| format!(" of call {call}"));
        let agent = if agent.is_empty() { String::new() } else { format!(" by {}", text::one_line(agent, 80)) };
        rows.push(("written by", format!("event {seq}{call}{agent}")));
    }
    let mut table = TextTable::default();
    rows.into_iter().for_each(|(name, value)| table.row([Cell::left(name).styled(BOLD), Cell::left(value)]));
    table.show(out)
}
