//! Merging children back, and the limits of children.

mod back;
mod blamed;
pub(crate) mod killed;
mod limits;
mod subagents;

use foldspace::event::{Node, WriteFile, WriteMode};
use foldspace::store::Content;
use foldspace::{EntryPath, Event, Recorded, Seq, Session, VirtualFileSystem};

fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

fn files(session: &Session) -> VirtualFileSystem {
    session.state().unwrap().slice::<VirtualFileSystem>().cloned().unwrap()
}

/// The event at a position, which must be one of that type.
fn event<E: Event>(session: &Session, seq: Seq) -> Recorded<E> {
    session.event(seq).unwrap().typed::<E>().unwrap_or_else(|| panic!("{seq} is another event")).unwrap()
}

/// Files that somebody recorded without a workspace.
fn record(session: &Session, path: &str, bytes: &[u8]) {
    let mut commit = session.commit();
    let node = Node::file(bytes, false);
    commit.push(&WriteFile { path: EntryPath::lookup(path).unwrap(), mode: WriteMode::Overwrite, node }).unwrap();
    commit.keep(Content::of(bytes.to_vec()));
    session.record(commit).unwrap();
}
