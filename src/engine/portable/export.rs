//! Export of a session to a file.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::{
    BLOB, BUFFER, COMMIT, CONTENT, CONTENT_MAX, END, HistoryError, LEVEL, MAGIC, PortableSummary, VERSION, damaged,
};
use crate::engine::event::{digests_in, references_of};
use crate::engine::store::{EventStore, READ_MAX, StoreError};
use crate::engine::{Commit, CommitView, Digest, Recorded, SessionError, SessionId, Sessions};

fn writing(source: io::Error) -> HistoryError {
    HistoryError::Io { action: "write", source }
}

/// Writes a session with the contents that its events [refer to](crate::Event::references). For an event that declares
/// no references, it includes each stored content with its digest in the event, as 32 bytes or 64 hexadecimal digits.
pub fn export_session(
    sessions: &Sessions,
    id: SessionId,
    out: &mut dyn Write,
) -> Result<PortableSummary, HistoryError> {
    export_session_seen(sessions, id, out, &mut |_| {})
}

/// Writes a session as [`export_session`], and passes the bytes of each event and content to `see`.
pub fn export_session_seen(
    sessions: &Sessions,
    id: SessionId,
    out: &mut dyn Write,
    see: &mut dyn FnMut(&[u8]),
) -> Result<PortableSummary, HistoryError> {
    let entry = sessions.store().entry(id)?.ok_or(StoreError::NoSession(id))?;
    let mut summary = PortableSummary { session: id, name: entry.name(), events: 0, added: 0, contents: 0, bytes: 0 };
    let encoder = zstd::stream::write::Encoder::new(out, LEVEL).map_err(writing)?;
    let mut file = Records { file: encoder, hasher: blake3::Hasher::new(), bytes: 0, buffer: Vec::new() };
    file.head(id)?;
    let mut export = Export { store: sessions.store().as_ref(), exported: BTreeSet::new(), file, see };
    while summary.events < entry.head {
        let next = summary.events + 1;
        let batch = sessions.store().read(id, next, entry.head, READ_MAX)?;
        for commit in batch.commits() {
            // A child is exported alone: its file begins with the child's first event, not its parent's.
            match commit.first == 1 && entry.origin.seq > 1 {
                true => export.beginning(&entry.origin, &commit)?,
                false => export.commit(&commit)?,
            }
            summary.events = commit.last();
        }
        batch.check(summary.events + 1)?;
        if summary.events < next {
            return Err(StoreError::NoSession(id).into());
        }
    }
    summary.contents = export.exported.len() as u64;
    summary.bytes = export.file.end(summary.events, summary.contents)?;
    Ok(summary)
}

struct Export<'a, W: Write> {
    store: &'a dyn EventStore,
    exported: BTreeSet<Digest>,
    file: Records<W>,
    see: &'a mut dyn FnMut(&[u8]),
}

impl<W: Write> Export<'_, W> {
    /// Writes the parent's first commit as the child's, with the child's first event.
    fn beginning(&mut self, origin: &Recorded, parents: &CommitView<'_>) -> Result<(), HistoryError> {
        let mut commit = Commit::of_recorded(origin).map_err(SessionError::from)?;
        if parents.count > 1 {
            let others = Commit::of_view(parents, 2).map_err(SessionError::from)?;
            commit.append(others).map_err(SessionError::from)?;
        }
        let mut bytes = Vec::new();
        commit.encode(1, parents.time, &mut bytes);
        self.commit(&CommitView::parse(&bytes).map_err(|_| damaged("a child's first commit is malformed"))?)
    }

    fn commit(&mut self, commit: &CommitView<'_>) -> Result<(), HistoryError> {
        for event in commit.events().map_while(Result::ok) {
            (self.see)(event.payload);
            match references_of(&event) {
                Some(references) => references.iter().try_for_each(|digest| self.content(digest))?,
                None => {
                    for digest in digests_in(event.payload) {
                        if self.store.has_content(&digest)? {
                            self.content(&digest)?;
                        }
                    }
                }
            }
        }
        self.file.commit(commit)
    }

    /// Writes a content once; a content that was never stored is omitted.
    fn content(&mut self, digest: &Digest) -> Result<(), HistoryError> {
        if self.exported.contains(digest) {
            return Ok(());
        }
        match self.store.content(digest) {
            Ok(bytes) if bytes.len() as u64 > u64::from(CONTENT_MAX) => {
                Err(damaged("a content of over 1 GiB can't be exported"))
            }
            Ok(bytes) => {
                self.exported.insert(*digest);
                (self.see)(&bytes);
                let kind = if digest.git_blob().is_some() { BLOB } else { CONTENT };
                self.file.content(kind, &bytes)
            }
            Err(StoreError::NoContent(missing)) if missing == *digest => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writer of a file's records: buffers them, since the compressor and the hash are slow on a few bytes.
struct Records<W: Write> {
    file: zstd::stream::write::Encoder<'static, W>,
    hasher: blake3::Hasher,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> Records<W> {
    fn head(&mut self, session: SessionId) -> Result<(), HistoryError> {
        self.put(MAGIC)?;
        self.put(&VERSION.to_le_bytes())?;
        self.put(session.as_bytes())
    }

    fn content(&mut self, kind: u8, bytes: &[u8]) -> Result<(), HistoryError> {
        self.record(kind, bytes.len())?;
        self.put(bytes)
    }

    fn commit(&mut self, commit: &CommitView<'_>) -> Result<(), HistoryError> {
        self.record(COMMIT, commit.encoded_len())?;
        commit.encode(&mut self.buffer);
        self.relieve()
    }

    fn record(&mut self, kind: u8, length: usize) -> Result<(), HistoryError> {
        self.put(&[kind])?;
        self.put(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), HistoryError> {
        self.buffer.extend_from_slice(bytes);
        self.relieve()
    }

    fn relieve(&mut self) -> Result<(), HistoryError> {
        if self.buffer.len() < BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), HistoryError> {
        self.hasher.update(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.file.write_all(&self.buffer).map_err(writing)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the end; returns the bytes of the file before compression, without its checksum.
    fn end(mut self, events: u64, contents: u64) -> Result<u64, HistoryError> {
        self.put(&[END])?;
        self.put(&events.to_le_bytes())?;
        self.put(&contents.to_le_bytes())?;
        self.flush()?;
        self.file.write_all(self.hasher.finalize().as_bytes()).map_err(writing)?;
        self.file.finish().and_then(|mut file| file.flush()).map_err(writing)?;
        Ok(self.bytes)
    }
}
