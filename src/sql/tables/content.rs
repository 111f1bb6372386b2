//! `content(digest)`: the stored content with a digest.

use bytes::Bytes;
use rusqlite::types::ValueRef;

use super::Table;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::Digest;
use crate::engine::session::error::SessionError;
use crate::sql::error::SqlError;
use crate::sql::walk::{Cell, NULL, Rows, number, text};
use crate::sql::wanted::{Column, Pushed};

const fn column(declaration: &'static str, pushed: Pushed) -> Column {
    Column { declaration, pushed }
}

pub(super) static CONTENT: Table = Table {
    name: "content",
    columns: &[
        column("digest TEXT", Pushed::Digest),
        column("size INTEGER", Pushed::No),
        column("text TEXT", Pushed::No),
        column("bytes BLOB", Pushed::No),
        column("of_digest TEXT HIDDEN", Pushed::Digest),
    ],
    needs: Some(Pushed::Digest),
    open: |world, wanted| {
        let digest =
            wanted.digest.filter(|_| !wanted.is_none).and_then(|text| Some((text.parse::<Digest>().ok()?, text)));
        let store = world.sessions.store();
        let read = digest.map(|(digest, text)| {
            let bytes = stored(|| Ok(store.content(&digest).map_err(SessionError::from)?))?;
            Ok::<_, SqlError>(bytes.map(|bytes| (text, bytes)))
        });
        Ok(Box::new(StoredContent { waiting: read.transpose()?.flatten(), row: None }))
    },
};

/// Reads a content; `None` if it is not stored.
pub(super) fn stored(read: impl FnOnce() -> Result<Bytes, SqlError>) -> Result<Option<Bytes>, SqlError> {
    match read() {
        Err(error) if matches!(error.kind(), ErrorKind::ContentMissing | ErrorKind::NotFound) => Ok(None),
        read => read.map(Some),
    }
}

struct StoredContent {
    waiting: Option<(String, Bytes)>,
    row: Option<(String, Bytes)>,
}

impl Rows for StoredContent {
    fn advance(&mut self) -> Result<bool, SqlError> {
        self.row = self.waiting.take();
        Ok(self.row.is_some())
    }

    fn id(&self) -> i64 {
        0
    }

    fn cell(&self, column: &'static str) -> Result<Cell<'_>, SqlError> {
        let Some((digest, bytes)) = &self.row else { return Ok(NULL) };
        Ok(match column {
            "digest" => text(digest),
            "size" => number(bytes.len()),
            "text" => std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map_or(NULL, text),
            "bytes" => Cell::Borrowed(ValueRef::Blob(bytes)),
            _ => NULL,
        })
    }
}
