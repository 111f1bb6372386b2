//! Writing a session into a file.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;

use super::{
    CONTENT, CONTENT_MAX, END, END_BYTES, EVENT, LEVEL, MAGIC, PortableError, PortableSummary, VERSION, damaged,
};
use crate::engine::commit::{CallLink, Commit};
use crate::engine::event::references_of;
use crate::engine::id::{Digest, SessionId};
use crate::engine::recorded::EventRef;
use crate::engine::sessions::{SessionError, Sessions, name_of};
use crate::engine::store::{EventStore, StoreError};

fn writing(source: io::Error) -> PortableError {
    PortableError::Io { action: "write", source }
}

/// Writes a session with everything that belongs to it.
///
/// These are the contents that its events [refer to](crate::Event::references). Of an event that does not say what
/// it refers to, any content goes along whose digest stands in it, as 32 bytes or 64 hexadecimal digits.
///
/// # Errors
/// Returns the errors of the store and of the file.
pub fn export_session(
    sessions: &Sessions,
    id: SessionId,
    out: &mut dyn Write,
) -> Result<PortableSummary, PortableError> {
    let entry = sessions.store().entry(id)?.ok_or(StoreError::NoSession(id))?;
    let mut summary =
        PortableSummary { session: id, name: name_of(&entry), events: 0, added: 0, contents: 0, bytes: 0 };
    let encoder = zstd::stream::write::Encoder::new(out, LEVEL).map_err(writing)?;
    let mut file = Records { file: encoder, hasher: blake3::Hasher::new(), bytes: 0, buffer: Vec::new() };
    file.head(id)?;
    let mut exported = BTreeSet::new();
    let mut failed = None;
    sessions.store().visit(id, 1, &mut |event| {
        // A child goes alone: its file begins as the child did, not as its parent.
        let begins_child = event.seq == 1 && entry.origin.seq > 1;
        let origin = EventRef { seq: 1, time: event.time, ..entry.origin.view() };
        let event = if begins_child { &origin } else { event };
        let written = export_event(sessions.store().as_ref(), event, &mut exported, &mut file);
        match written {
            Ok(()) => {
                summary.events += 1;
                if event.seq == entry.head { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    summary.contents = exported.len() as u64;
    summary.bytes = file.bytes + END_BYTES;
    file.end(summary.events, summary.contents)?;
    Ok(summary)
}

fn export_event<W: Write>(
    store: &dyn EventStore,
    event: &EventRef<'_>,
    exported: &mut BTreeSet<Digest>,
    file: &mut Records<W>,
) -> Result<(), PortableError> {
    match references_of(event) {
        Some(references) => {
            references.iter().try_for_each(|digest| export_content(store, digest, exported, file))?;
        }
        None => {
            for digest in digests_in(event.payload) {
                if store.has_content(&digest)? {
                    export_content(store, &digest, exported, file)?;
                }
            }
        }
    }
    let mut commit = Commit::new(event.session, event.time).by(&std::sync::Arc::from(event.agent));
    if let Some(call) = event.call {
        commit = commit.of_call(CallLink::Of(call));
    }
    commit.push_event(event).map_err(SessionError::from)?;
    file.record(EVENT, |out| commit.encode(event.seq, event.time, out))
}

/// Writes a content, once. One that was never kept is left out.
fn export_content<W: Write>(
    store: &dyn EventStore,
    digest: &Digest,
    exported: &mut BTreeSet<Digest>,
    file: &mut Records<W>,
) -> Result<(), PortableError> {
    if exported.contains(digest) {
        return Ok(());
    }
    match store.content(digest) {
        Ok(bytes) if bytes.len() as u64 > u64::from(CONTENT_MAX) => {
            Err(damaged("a content of over 1 GiB can't be exported"))
        }
        Ok(bytes) => {
            exported.insert(*digest);
            file.record(CONTENT, |out| out.extend_from_slice(&bytes))
        }
        Err(StoreError::NoContent(missing)) if missing == *digest => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Every 32 bytes and every 64 hexadecimal digits that could be a digest.
fn digests_in(bytes: &[u8]) -> impl Iterator<Item = Digest> {
    let raw = bytes.array_windows::<32>().map(|window| Digest::from_bytes(*window));
    let runs = bytes.split(|byte| !byte.is_ascii_hexdigit()).filter(|run| run.len() == 64);
    let hexadecimal = runs.filter_map(|run| std::str::from_utf8(run).ok()?.parse().ok());
    raw.chain(hexadecimal)
}

/// The records of a file as they are written.
struct Records<W: Write> {
    file: zstd::stream::write::Encoder<'static, W>,
    hasher: blake3::Hasher,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> Records<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), PortableError> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(writing)
    }

    fn head(&mut self, session: SessionId) -> Result<(), PortableError> {
        self.put(MAGIC)?;
        self.put(&VERSION.to_le_bytes())?;
        self.put(session.as_bytes())
    }

    /// Writes a record at once: the compressor and the hash take long for a few bytes.
    fn record(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) -> Result<(), PortableError> {
        let mut record = std::mem::take(&mut self.buffer);
        record.clear();
        record.extend_from_slice(&[kind, 0, 0, 0, 0]);
        payload(&mut record);
        let length = u32::try_from(record.len() - 5).unwrap_or(u32::MAX);
        record[1..5].copy_from_slice(&length.to_le_bytes());
        self.put(&record)?;
        self.buffer = record;
        Ok(())
    }

    fn end(mut self, events: u64, contents: u64) -> Result<(), PortableError> {
        self.put(&[END])?;
        self.put(&events.to_le_bytes())?;
        self.put(&contents.to_le_bytes())?;
        let digest = *self.hasher.finalize().as_bytes();
        self.file.write_all(&digest).map_err(writing)?;
        self.file.finish().and_then(|mut file| file.flush()).map_err(writing)
    }
}
