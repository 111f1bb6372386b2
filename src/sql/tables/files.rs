//! `files(session, at)`, `slices(session, name, at)` and `content(digest)`: states, and what they refer to.

use rusqlite::types::Value;

use super::SqlTable;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::Node;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::sql::error::SqlError;
use crate::sql::walk::{NULL, SqlCell, number, owned};
use crate::sql::wanted::Wanted;
use crate::sql::world::SessionReading;
use crate::view::{Position, slice};

pub(super) static FILES: SqlTable = SqlTable {
    name: "files",
    columns: "session TEXT, path TEXT, type TEXT, size INTEGER, digest TEXT, mode TEXT, target TEXT, \
              version INTEGER, created TEXT, updated TEXT, of_session TEXT HIDDEN, at TEXT HIDDEN",
    needs: None,
    read: |of, wanted, (from, limit), rows| {
        let state = state(of, wanted)?;
        let files = VirtualFileSystem::of(&state);
        if let Some(path) = wanted.equal.get("path") {
            let found = EntryPath::lookup(path).ok().and_then(|path| Some((files.get(&path)?.clone(), path)));
            found.iter().for_each(|(entry, path)| rows.push_back(Box::new((0, file(path, entry)))));
            return Ok(None);
        }
        let start = usize::try_from(from - 1).unwrap_or(usize::MAX);
        let page = files.iter().skip(start).take(limit).zip(from..);
        page.for_each(|((path, entry), at)| rows.push_back(Box::new((at, file(path, entry)))));
        Ok((start + limit < files.len()).then_some(from + limit as u64))
    },
};

fn file(path: &EntryPath, Entry { node, version, created_at, updated_at }: &Entry) -> Vec<SqlCell<'static>> {
    let (kind, size, target) = match node {
        Node::File { size, .. } => ("file", number(*size), NULL),
        Node::Symlink { target } => ("symlink", NULL, owned(String::from_utf8_lossy(target))),
        Node::Directory { .. } => ("directory", NULL, NULL),
        Node::Special { special } => (special.name(), NULL, NULL),
    };
    let (digest, mode) = (node.known_content().map_or(NULL, owned), node.mode().map_or(NULL, owned));
    let (created, updated) = (owned(created_at), owned(updated_at));
    vec![NULL, owned(path), owned(kind), size, digest, mode, target, number(*version), created, updated]
}

/// Returns the state at the position that a query names; by default the latest.
fn state(of: &SessionReading, wanted: &Wanted) -> Result<State, SqlError> {
    let session = of.session()?;
    let at = wanted.equal.get("at").map(|at| at.parse::<Position>()).transpose();
    let at = at.map_err(|error| SqlError::invalid(format!("argument at: {error}")))?;
    let at = at.map_or(Ok(of.entry().head), |at| at.resolve(session))?;
    Ok(session.state_at(at)?)
}

pub(super) static SLICES: SqlTable = SqlTable {
    name: "slices",
    columns: "session TEXT, name TEXT, seq INTEGER, value TEXT, of_session TEXT HIDDEN, of_name TEXT HIDDEN, \
              at TEXT HIDDEN",
    needs: None,
    read: |of, wanted, _, rows| {
        let (state, name) = (state(of, wanted)?, wanted.either("of_name", "name"));
        for (known, at) in
            state.slices().into_iter().zip(0..).filter(|(known, _)| name.is_none_or(|name| name == known.name))
        {
            let value = match wanted.reads(&["value"]) {
                true => owned(slice(&state, &known.name).map_err(SessionError::from)?),
                false => NULL,
            };
            rows.push_back(Box::new((at, vec![NULL, owned(known.name), number(state.seq()), value])));
        }
        Ok(None)
    },
};

pub(super) static CONTENT: SqlTable = SqlTable {
    name: "content",
    columns: "digest TEXT, size INTEGER, text TEXT, bytes BLOB, of_digest TEXT HIDDEN",
    needs: Some("digest"),
    read: |of, wanted, _, rows| {
        let digest = wanted.either("of_digest", "digest").and_then(|text| text.parse::<Digest>().ok());
        // All sessions share the contents of the store.
        let Some(digest) = digest.filter(|_| of.at == 0) else { return Ok(None) };
        let bytes = match of.world.content(&digest) {
            Err(error) if error.kind() == ErrorKind::ContentMissing => return Ok(None),
            read => read?,
        };
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0')).map_or(NULL, owned);
        let blob = if wanted.reads(&["bytes"]) { SqlCell::Owned(Value::Blob(bytes.to_vec())) } else { NULL };
        rows.push_back(Box::new((0, vec![owned(digest), number(bytes.len()), text, blob])));
        Ok(None)
    },
};
