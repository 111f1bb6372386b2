//! One file with everything of a session: its events, and the contents that they refer to.
//!
//! The file is a zstd stream of a head, frames as in the journal, and an end that says how many there
//! were and what they hash to. docs/FORMAT.md describes it.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use bytes::Bytes;
use serde::Serialize;

use super::commit::{CallLink, Commit, CommitView, Content, Expected};
use super::event::SessionStarted;
use super::id::{Digest, SessionId};
use super::recorded::{EventRef, Recorded, Seq};
use super::sessions::{SessionError, Sessions, check_name, name_of};
use super::store::{EventStore, StoreError};

const MAGIC: &[u8; 8] = b"FOLDOUT\n";
const VERSION: u32 = 1;
const LEVEL: i32 = 3;
/// Bytes of one record; a longer one is damage.
const RECORD_MAX: u32 = 1 << 30;
const CONTENT: u8 = 1;
const EVENT: u8 = 2;
const END: u8 = 3;
/// Bytes of the end record, its checksum apart.
const END_BYTES: u64 = 17;

/// What a portable file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortableSummary {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// How many events.
    pub events: u64,
    /// How many of them were not here before; 0 for an export.
    pub added: u64,
    /// How many contents.
    pub contents: u64,
    /// Bytes before compression.
    pub bytes: u64,
}

/// Why a session could not be exported or imported.
#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    /// The session or the store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The file could not be read or written.
    #[error("can't {action} the file: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what it should be; nothing was imported.
    #[error("the file can't be imported: {0}")]
    Damaged(String),
    /// Whoever imports does not want the session as it began, and why; nothing was imported.
    #[error("the session was not imported: {0}")]
    Refused(String),
    /// The session is there already, with another history.
    #[error("session {session} is here already and has another history from event {seq} on")]
    Differs {
        /// The session.
        session: SessionId,
        /// The first position that differs.
        seq: Seq,
    },
}

impl From<StoreError> for PortableError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

fn damaged(what: impl Into<String>) -> PortableError {
    PortableError::Damaged(what.into())
}

fn writing(source: io::Error) -> PortableError {
    PortableError::Io { action: "write", source }
}

/// Writes a session with everything that belongs to it.
///
/// Contents are found by the digests that stand in its events, as 32 bytes or 64 hexadecimal digits.
///
/// # Errors
/// What the store or the file says.
pub fn export_session(
    sessions: &Sessions,
    id: SessionId,
    out: &mut dyn Write,
) -> Result<PortableSummary, PortableError> {
    let entry = sessions.store().entry(id)?.ok_or(StoreError::NoSession(id))?;
    let mut summary =
        PortableSummary { session: id, name: name_of(&entry), events: 0, added: 0, contents: 0, bytes: 0 };
    let encoder = zstd::stream::write::Encoder::new(out, LEVEL).map_err(writing)?;
    let mut file = Records { file: encoder, hasher: blake3::Hasher::new(), bytes: 0 };
    file.head(id)?;
    let mut kept = BTreeSet::new();
    let mut failed = None;
    sessions.store().visit(id, 1, &mut |event| {
        // A child goes alone: its file begins as the child did, not as its parent.
        let begins_child = event.seq == 1 && entry.origin.seq > 1;
        let origin = EventRef { seq: 1, time: event.time, ..entry.origin.view() };
        let event = if begins_child { &origin } else { event };
        let written = export_event(sessions.store().as_ref(), event, &mut kept, &mut file);
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
    summary.contents = kept.len() as u64;
    summary.bytes = file.bytes;
    summary.bytes += END_BYTES;
    file.end(summary.events, summary.contents)?;
    Ok(summary)
}

fn export_event<W: Write>(
    store: &dyn EventStore,
    event: &EventRef<'_>,
    kept: &mut BTreeSet<Digest>,
    file: &mut Records<W>,
) -> Result<(), PortableError> {
    for digest in digests_in(event.payload) {
        if !kept.contains(&digest) && store.has_content(&digest)? {
            file.record(CONTENT, &store.content(&digest)?)?;
            kept.insert(digest);
        }
    }
    let mut commit = Commit::new(event.session, event.time).by(&std::sync::Arc::from(event.agent));
    if let Some(call) = event.call {
        commit = commit.of_call(CallLink::Of(call));
    }
    commit.push_encoded(event.kind, event.version, event.payload).map_err(SessionError::from)?;
    let mut encoded = Vec::new();
    commit.encode(event.seq, event.time, &mut encoded);
    file.record(EVENT, &encoded)
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

    fn record(&mut self, kind: u8, payload: &[u8]) -> Result<(), PortableError> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= RECORD_MAX);
        let length = length.ok_or_else(|| damaged("a content of over 1 GiB can't be exported"))?;
        self.put(&[kind])?;
        self.put(&length.to_le_bytes())?;
        self.put(payload)
    }

    fn end(mut self, events: u64, contents: u64) -> Result<(), PortableError> {
        self.put(&[END])?;
        self.put(&events.to_le_bytes())?;
        self.put(&contents.to_le_bytes())?;
        let digest = *self.hasher.finalize().as_bytes();
        self.file.write_all(&digest).map_err(writing)?;
        self.file.finish().and_then(|file| file.flush_now()).map_err(writing)
    }
}

/// Flushes what an encoder gives back.
trait FlushNow {
    fn flush_now(self) -> io::Result<()>;
}

impl<W: Write> FlushNow for W {
    fn flush_now(mut self) -> io::Result<()> {
        self.flush()
    }
}

/// Reads a session from a portable file. Everything is checked before anything is recorded: every
/// checksum and digest, positions without gaps, and that no content is missing that the file counts.
///
/// A session that is here already with the same history is left as it is; a longer history in the
/// file is added.
///
/// The file tells what the session's workspace is: who opens it gives the file that directory, engine or
/// network. [`import_session_if`] asks first.
///
/// # Errors
/// [`PortableError::Damaged`] when the file is not whole and right, and others.
pub fn import_session(
    sessions: &Sessions,
    input: &mut dyn Read,
    rename: Option<&str>,
) -> Result<PortableSummary, PortableError> {
    import_session_if(sessions, input, rename, &|_| Ok(()))
}

/// The same, when the way in which a session that is new here began is accepted; otherwise `accept` says why
/// not. One whose beginning can't be read is not asked about, as its workspace can't be opened.
///
/// # Errors
/// As [`import_session`], and [`PortableError::Refused`].
pub fn import_session_if(
    sessions: &Sessions,
    input: &mut dyn Read,
    rename: Option<&str>,
    accept: &dyn Fn(&SessionStarted) -> Result<(), String>,
) -> Result<PortableSummary, PortableError> {
    let file = Imported::read(input)?;
    let mut first = file.events.first().ok_or_else(|| damaged("it holds no events"))?.clone();
    let started = {
        let view = CommitView::parse(&first).map_err(|_| damaged("its first event makes no sense"))?;
        let event = view.events().next().and_then(Result::ok);
        event.and_then(|event| event.typed::<SessionStarted>()).and_then(Result::ok)
    };
    let own_parent = |started: &Recorded<SessionStarted>| {
        started.event.origin.as_ref().is_some_and(|origin| origin.parent == file.session)
    };
    if started.as_ref().is_some_and(own_parent) {
        return Err(damaged("it says that the session is its own parent"));
    }
    let entry = sessions.store().entry(file.session)?;
    let here = entry.as_ref().map_or(0, |entry| entry.head);
    if let (0, Some(started)) = (here, &started) {
        accept(&started.event).map_err(PortableError::Refused)?;
    }
    let mut name = started.as_ref().map_or_else(|| file.session.short(), |started| started.event.name.clone());
    if let (Some(wanted), Some(started)) = (rename, started) {
        check_name(wanted)?;
        name = wanted.to_owned();
        let mut commit = Commit::new(file.session, started.time).by(&started.agent);
        commit.push(&SessionStarted { name: name.clone(), ..started.event }).map_err(SessionError::from)?;
        first = Vec::new();
        commit.encode(1, started.time, &mut first);
    }
    let _turn = sessions.naming()?;
    let taken = sessions.list()?.into_iter().any(|entry| entry.id != file.session && name_of(&entry) == name);
    if here == 0 && taken {
        return Err(SessionError::NameTaken { name }.into());
    }
    let events = file.events.len() as u64;
    let summary = PortableSummary {
        session: file.session,
        // One that is here already keeps its name.
        name: entry.as_ref().map_or(name, name_of),
        events,
        added: events.saturating_sub(here),
        contents: file.contents.len() as u64,
        bytes: file.bytes,
    };
    let is_fork = entry.is_some_and(|entry| entry.origin.seq > 1);
    file.same_so_far(sessions, here, rename.is_some() || is_fork)?;
    file.record(sessions, here, &first)?;
    sessions.forget_names();
    Ok(summary)
}

/// A file, read and checked.
struct Imported {
    session: SessionId,
    /// Encoded commits of one event each, in order.
    events: Vec<Vec<u8>>,
    contents: Vec<Content>,
    bytes: u64,
}

impl Imported {
    fn read(input: &mut dyn Read) -> Result<Self, PortableError> {
        let decoder = zstd::stream::read::Decoder::new(input).map_err(|_| damaged("it is not a foldspace export"))?;
        let mut reader = Hashed { input: decoder, hasher: blake3::Hasher::new(), bytes: 0 };
        let mut magic = [0; 8];
        reader.fill(&mut magic)?;
        if &magic != MAGIC {
            return Err(damaged("it is not a foldspace export"));
        }
        let version = u32::from_le_bytes(reader.array()?);
        if version != VERSION {
            return Err(damaged(format!("it is of format {version}; this program reads format {VERSION}")));
        }
        let session = SessionId::from_bytes(reader.array()?);
        let mut file = Self { session, events: Vec::new(), contents: Vec::new(), bytes: 0 };
        loop {
            let [kind] = reader.array()?;
            if kind == END {
                break;
            }
            let payload = reader.payload()?;
            match kind {
                CONTENT => file.contents.push(Content::of(Bytes::from(payload))),
                EVENT => file.add_event(payload)?,
                _ => return Err(damaged("it holds a record of an unknown kind; is it of a newer program?")),
            }
        }
        file.check_end(reader)
    }

    fn add_event(&mut self, payload: Vec<u8>) -> Result<(), PortableError> {
        let expected = self.events.len() as u64 + 1;
        let wrong = || damaged(format!("event {expected} makes no sense"));
        let view = CommitView::parse(&payload).map_err(|_| wrong())?;
        if view.session != self.session || view.first != expected || view.count != 1 {
            return Err(damaged(format!("event {expected} is missing or belongs to another session")));
        }
        if !view.events().all(|event| event.is_ok()) {
            return Err(wrong());
        }
        self.events.push(payload);
        Ok(())
    }

    fn check_end<R: Read>(mut self, mut reader: Hashed<R>) -> Result<Self, PortableError> {
        let events = u64::from_le_bytes(reader.array()?);
        let contents = u64::from_le_bytes(reader.array()?);
        if events != self.events.len() as u64 || contents != self.contents.len() as u64 {
            return Err(damaged("it does not hold what it says it holds"));
        }
        let expected = *reader.hasher.finalize().as_bytes();
        self.bytes = reader.bytes;
        let found: [u8; 32] = reader.array()?;
        if found != expected {
            return Err(damaged("its checksum does not fit its contents"));
        }
        Ok(self)
    }

    /// Checks that the history that is here is the beginning of the file's.
    /// How it began may differ where it has another name here, or its parent's beginning.
    fn same_so_far(&self, sessions: &Sessions, here: Seq, begins_otherwise: bool) -> Result<(), PortableError> {
        if here == 0 {
            return Ok(());
        }
        let mut differs = None;
        sessions.store().visit(self.session, 1, &mut |event| {
            let at = usize::try_from(event.seq - 1).unwrap_or(usize::MAX);
            let same = self.events.get(at).is_none_or(|mine| {
                let view = CommitView::parse(mine);
                let mine = view.ok().and_then(|view| view.events().next()?.ok());
                mine.is_some_and(|mine| mine.to_recorded() == event.to_recorded())
            });
            if same || begins_otherwise && event.seq == 1 {
                return ControlFlow::Continue(());
            }
            differs = Some(event.seq);
            ControlFlow::Break(())
        })?;
        match differs {
            Some(seq) => Err(PortableError::Differs { session: self.session, seq }),
            None => Ok(()),
        }
    }

    /// Records what is not here yet; the contents come with the first commit.
    fn record(self, sessions: &Sessions, here: Seq, first: &[u8]) -> Result<(), PortableError> {
        let mut contents = Some(self.contents);
        let mut last = None;
        let skip = usize::try_from(here).unwrap_or(usize::MAX);
        for (at, encoded) in self.events.iter().enumerate().skip(skip) {
            let encoded = if at == 0 { first } else { encoded };
            let view = CommitView::parse(encoded).map_err(|_| damaged("an event makes no sense"))?;
            let expected = if at == 0 { Expected::NoSession } else { Expected::Exactly(at as u64) };
            let mut commit = Commit::new(self.session, view.time).by(&std::sync::Arc::from(view.agent()));
            commit = commit.expecting(expected).of_call(view.call.map_or(CallLink::None, CallLink::Of));
            for event in view.events().map_while(Result::ok) {
                commit.push_encoded(event.kind, event.version, event.payload).map_err(SessionError::from)?;
            }
            contents.take().into_iter().flatten().for_each(|content| commit.keep(content));
            last = Some(sessions.store().submit(commit)?);
        }
        if let Some(last) = last {
            last.wait()?;
        }
        Ok(())
    }
}

/// A reader that hashes what it reads.
struct Hashed<R: Read> {
    input: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R: Read> Hashed<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), PortableError> {
        self.input.read_exact(buffer).map_err(ended)?;
        self.hasher.update(buffer);
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PortableError> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn payload(&mut self) -> Result<Vec<u8>, PortableError> {
        let length = u32::from_le_bytes(self.array()?);
        if length > RECORD_MAX {
            return Err(damaged("a record is longer than any can be"));
        }
        // Grown as bytes come, so that a lying length takes no memory.
        let mut payload = Vec::new();
        let read = (&mut self.input).take(u64::from(length)).read_to_end(&mut payload).map_err(ended)?;
        if read as u64 != u64::from(length) {
            return Err(damaged("it ends early"));
        }
        self.hasher.update(&payload);
        self.bytes += u64::from(length);
        Ok(payload)
    }
}

fn ended(error: io::Error) -> PortableError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => damaged(format!("it can't be read: {error}")),
    }
}
