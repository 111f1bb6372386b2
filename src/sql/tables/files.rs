//! `files(session, at)`: one row for each entry of the files at a position.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Bound;

use super::Table;
use crate::engine::event::Node;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, SessionRows, Walk, number, owned, text};
use crate::sql::wanted::{Column, Pushed, Wanted};
use crate::sql::world::Reading;
use crate::view::Position;

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static FILES: Table = Table {
    name: "files",
    columns: &[
        column("session TEXT", Pushed::Session),
        column("path TEXT", Pushed::Path),
        column("type TEXT", Pushed::No),
        column("size INTEGER", Pushed::No),
        column("digest TEXT", Pushed::No),
        column("mode TEXT", Pushed::No),
        column("target TEXT", Pushed::No),
        column("version INTEGER", Pushed::No),
        column("created TEXT", Pushed::No),
        column("updated TEXT", Pushed::No),
        column("of_session TEXT HIDDEN", Pushed::OfSession),
        column("at TEXT HIDDEN", Pushed::At),
    ],
    needs: None,
    open: |world, wanted| {
        // Positions do not apply to its rows.
        let table = Files { at: position(&wanted)?, path: wanted.path.clone(), open: RefCell::default() };
        Ok(Box::new(Walk::new(world, &wanted, table)?))
    },
};

/// Parses the position that a query names.
pub(super) fn position(wanted: &Wanted) -> Result<Option<Position>, SqlError> {
    let parsed = wanted.at.as_deref().map(str::parse::<Position>).transpose();
    parsed.map_err(|error| SqlError::invalid(format!("argument at: {error}")))
}

/// Returns the position in a session, at most its last when the query began.
pub(super) fn resolved(of: &Reading, at: Option<&Position>) -> Result<Seq, SqlError> {
    Ok(at.map_or(Ok(of.head), |at| at.resolve(&of.session))?)
}

pub(super) fn type_of(node: &Node) -> &'static str {
    match node {
        Node::File { .. } => "file",
        Node::Symlink { .. } => "symlink",
        Node::Directory { .. } => "directory",
        Node::Special { special } => special.name(),
    }
}

pub(super) fn digest_of(node: &Node) -> Cell<'static> {
    node.known_content().map_or(NULL, owned)
}

struct Files {
    at: Option<Position>,
    path: Option<String>,
    /// The files of the session that is read, and the last path that was read.
    open: RefCell<(VirtualFileSystem, Option<EntryPath>)>,
}

struct FileRow {
    number: u64,
    path: EntryPath,
    entry: Entry,
}

impl SessionRows for Files {
    type Row = FileRow;

    fn read(
        &self,
        of: &Reading,
        from: Seq,
        limit: usize,
        rows: &mut VecDeque<FileRow>,
    ) -> Result<Option<Seq>, SqlError> {
        let mut open = self.open.borrow_mut();
        if from == 1 {
            let at = resolved(of, self.at.as_ref())?;
            *open = (VirtualFileSystem::of(&of.session.state_at(at)?), None);
        }
        if let Some(path) = &self.path {
            let found = EntryPath::lookup(path).ok().and_then(|path| Some((open.0.get(&path)?.clone(), path)));
            rows.extend(found.map(|(entry, path)| FileRow { number: from, path, entry }));
            return Ok(None);
        }
        let (files, last) = &mut *open;
        let after = last.as_ref().map_or(Bound::Unbounded, |path| Bound::Excluded(path.as_bytes().to_vec()));
        let found = files.starting_at(after).take(limit).zip(from..);
        rows.extend(found.map(|((path, entry), number)| FileRow { number, path: path.clone(), entry: entry.clone() }));
        let row = rows.back();
        *last = row.map(|row| row.path.clone());
        Ok(row.filter(|_| rows.len() >= limit).map(|row| row.number + 1))
    }

    fn number(&self, row: &FileRow) -> u64 {
        row.number
    }

    fn cell<'a>(&'a self, _: &'a Reading, row: &'a FileRow, column: &'static str) -> Result<Cell<'a>, SqlError> {
        let (entry, node) = (&row.entry, &row.entry.node);
        Ok(match (column, node) {
            ("path", _) => owned(&row.path),
            ("type", _) => text(type_of(node)),
            ("size", Node::File { size, .. }) => number(*size),
            ("digest", _) => digest_of(node),
            ("mode", _) => node.mode().map_or(NULL, owned),
            ("target", Node::Symlink { target }) => owned(String::from_utf8_lossy(target)),
            ("version", _) => number(entry.version),
            ("created", _) => owned(entry.created_at),
            ("updated", _) => owned(entry.updated_at),
            _ => NULL,
        })
    }
}
