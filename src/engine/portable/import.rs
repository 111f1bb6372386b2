//! Import of a session from a file, which is read twice: any fault is found before anything is recorded.

use std::io::{Read, Seek};

use bytes::Bytes;

use super::reader::{ExportReader, Record, ended};
use super::{HistoryError, PortableSummary, damaged};
use crate::engine::commit::ChunkList;
use crate::engine::event::SessionStarted;
use crate::engine::session::name_index::check_name;
use crate::engine::store::{EventBatch, EventStore, Pending, READ_MAX, SessionEntry, chunks_of};
use crate::engine::{Commit, Content, Digest, EventRef, Expected, Seq, SessionError, SessionId, Sessions};

const LARGE: u64 = 1 << 20;
const HELD_BYTES: usize = 4 << 20;
const HELD_MAX: usize = 4096;

/// Imports a session from a portable file, in bounded memory.
///
/// Everything is checked before anything is recorded, so the file is read twice: checksums, digests, gapless positions,
/// limits, and the number of contents.
///
/// A session that exists with the same history is unchanged; a longer history in the file is added. A new session needs
/// a name that [`Sessions::create`] accepts, or gets `rename`.
///
/// If the store fails during recording, a new session is removed again. The events of a killed import stay: importing
/// the file again adds the rest.
///
/// The file names the session's workspace: opening the session gives it that directory, engine or network.
/// [`import_session_if`] asks first. Fails with [`HistoryError::Damaged`] if the file is damaged or invalid.
pub fn import_session<R: Read + Seek>(
    sessions: &Sessions,
    input: &mut R,
    rename: Option<&str>,
) -> Result<PortableSummary, HistoryError> {
    import_session_if(sessions, input, rename, &|_| Ok(()))
}

/// Imports a session as [`import_session`], if `accept` accepts each new event; its error is the reason for a refusal.
/// The first event names the workspace, and services start again by themselves.
pub fn import_session_if<R: Read + Seek>(
    sessions: &Sessions,
    input: &mut R,
    rename: Option<&str>,
    accept: &dyn Fn(&EventRef<'_>) -> Result<(), String>,
) -> Result<PortableSummary, HistoryError> {
    let begin = input.stream_position().map_err(reading)?;
    let checked = CheckedFile::of(sessions, input, rename, accept)?;
    let summary = &checked.summary;
    let has_name =
        || Ok::<_, HistoryError>(sessions.named(&summary.name)?.is_some_and(|held| held.id != summary.session));
    if checked.here == 0 && has_name()? {
        return Err(SessionError::NameTaken { name: checked.summary.name }.into());
    }
    if checked.summary.added > 0 {
        input.seek(std::io::SeekFrom::Start(begin)).map_err(reading)?;
        let mut recording = ImportRecording::of(sessions, &checked);
        if let Err(error) = recording.run(input) {
            recording.take_back();
            return Err(error);
        }
    }
    Ok(checked.summary)
}

fn reading(source: std::io::Error) -> HistoryError {
    HistoryError::Io { action: "read", source }
}

struct CheckedFile {
    summary: PortableSummary,
    here: Seq,
    first: Commit,
    checksum: [u8; 32],
}

impl CheckedFile {
    fn of(
        sessions: &Sessions,
        input: &mut dyn Read,
        rename: Option<&str>,
        accept: &dyn Fn(&EventRef<'_>) -> Result<(), String>,
    ) -> Result<Self, HistoryError> {
        let mut reader = ExportReader::begin(input)?;
        let session = reader.session;
        let entry = sessions.store().entry(session)?;
        let mut present = Present::of(sessions.store().as_ref(), session, entry.as_ref());
        let mut begun = None;
        let checksum = loop {
            match reader.next()? {
                Record::Content(length) | Record::Blob(length) => reader.content(length).skip()?,
                Record::Commit(first) => {
                    let commit = reader.commit(first)?;
                    let mut new = reader.events().filter(|event| event.seq > present.here);
                    new.try_for_each(|event| accept(&event)).map_err(HistoryError::Refused)?;
                    if first == 1 {
                        begun = Some(began(&reader, commit, rename, entry.is_none())?);
                    }
                    present.check(first, &reader)?;
                }
                Record::End(checksum) => break checksum,
            }
        };
        let (first, name) = begun.ok_or_else(|| damaged("it has no events"))?;
        let summary = PortableSummary {
            session,
            // An existing session keeps its name.
            name: entry.as_ref().map_or(name, SessionEntry::name),
            events: reader.events,
            added: reader.events.saturating_sub(present.here),
            contents: reader.contents,
            // Without the checksum, as an export counts them.
            bytes: reader.bytes() - checksum.len() as u64,
        };
        Ok(Self { summary, here: present.here, first, checksum })
    }
}

/// Returns the first commit to record, and the session's name.
fn began(
    reader: &ExportReader<'_>,
    first: Commit,
    rename: Option<&str>,
    is_new: bool,
) -> Result<(Commit, String), HistoryError> {
    let Some(mut started) = reader.events().next().and_then(|event| started(&event)) else {
        return Ok((first, reader.session.short()));
    };
    if started.origin.as_ref().is_some_and(|origin| origin.parent == reader.session) {
        return Err(damaged("it names the session as its own parent"));
    }
    if !is_new {
        return Ok((first, started.name));
    }
    check_name(rename.unwrap_or(&started.name))?;
    let Some(name) = rename else { return Ok((first, started.name)) };
    started.name = name.to_owned();
    let mut renamed = first.emptied();
    renamed.push(&started).map_err(SessionError::from)?;
    reader.events().skip(1).try_for_each(|event| renamed.push_event(&event)).map_err(SessionError::from)?;
    Ok((renamed, started.name))
}

fn started(event: &EventRef<'_>) -> Option<SessionStarted> {
    Some(event.typed()?.ok()?.event)
}

/// Existing history, which must be a prefix of the file's. The first event may differ in the name; a fork's is its
/// parent's here, and is not compared.
struct Present<'a> {
    store: &'a dyn EventStore,
    session: SessionId,
    here: Seq,
    is_fork: bool,
    next: EventBatch,
}

impl<'a> Present<'a> {
    fn of(store: &'a dyn EventStore, session: SessionId, entry: Option<&SessionEntry>) -> Self {
        let is_fork = entry.is_some_and(|entry| entry.origin.seq > 1);
        let here = entry.map_or(0, |entry| entry.head);
        Self { store, session, here, is_fork, next: EventBatch::default() }
    }

    fn check(&mut self, first: Seq, reader: &ExportReader<'_>) -> Result<(), HistoryError> {
        if first > self.here {
            return Ok(());
        }
        for event in reader.events().take_while(|event| event.seq <= self.here) {
            if self.next.last() < event.seq {
                self.next = self.store.read(self.session, event.seq, self.here, READ_MAX)?;
            }
            let found = self.next.event_at(event.seq);
            if found.is_none() {
                self.next.check(event.seq)?;
            }
            let is_same = |found: EventRef<'_>| {
                content_of(&found) == content_of(&event) || event.seq == 1 && self.began_same(&found, &event)
            };
            if !found.is_some_and(is_same) {
                return Err(HistoryError::Differs { session: self.session, seq: event.seq });
            }
        }
        Ok(())
    }

    fn began_same(&self, found: &EventRef<'_>, event: &EventRef<'_>) -> bool {
        let unnamed = |event| Some(SessionStarted { name: String::new(), ..started(event)? });
        self.is_fork || found.time == event.time && unnamed(event).is_some() && unnamed(found) == unnamed(event)
    }
}

fn content_of<'e>(event: &EventRef<'e>) -> impl PartialEq + use<'e> {
    (event.time, event.call, event.agent, event.kind, event.version, event.payload)
}

struct ImportRecording<'a> {
    sessions: &'a Sessions,
    checked: &'a CheckedFile,
    held: Commit,
    held_bytes: usize,
    last: Option<Pending>,
    has_begun: bool,
}

impl<'a> ImportRecording<'a> {
    fn of(sessions: &'a Sessions, checked: &'a CheckedFile) -> Self {
        let held = Commit::new(checked.summary.session, checked.first.time);
        Self { sessions, checked, held, held_bytes: 0, last: None, has_begun: false }
    }

    fn run(&mut self, input: &mut dyn Read) -> Result<(), HistoryError> {
        let changed = || damaged("it changed while it was read");
        let mut reader = ExportReader::begin(input)?;
        if reader.session != self.checked.summary.session {
            return Err(changed());
        }
        loop {
            match reader.next()? {
                Record::Content(length) => self.content(&mut reader, length)?,
                Record::Blob(length) => {
                    let bytes = Bytes::from(reader.content(length).whole()?);
                    self.hold(Content { digest: Digest::as_git_blob(&bytes), bytes })?;
                }
                Record::Commit(_) if reader.events <= self.checked.here => {}
                Record::Commit(first) => self.commit(&reader, first.max(self.checked.here + 1))?,
                Record::End(checksum) if checksum == self.checked.checksum => break,
                Record::End(_) => return Err(changed()),
            }
        }
        self.last.take().map_or(Ok(()), |last| last.wait().map(drop))?;
        Ok(())
    }

    fn commit(&mut self, reader: &ExportReader<'_>, from: Seq) -> Result<(), HistoryError> {
        let mut commit = match from {
            1 => self.checked.first.duplicate().expecting(Expected::NoSession),
            _ => reader.commit(from)?.expecting(Expected::Exactly(from - 1)),
        };
        commit.append(self.take_held()).map_err(SessionError::from)?;
        self.last = Some(self.sessions.store().submit(commit)?);
        self.has_begun |= from == 1;
        Ok(())
    }

    fn take_held(&mut self) -> Commit {
        self.held_bytes = 0;
        let none = Commit::new(self.held.session, self.held.time);
        std::mem::replace(&mut self.held, none)
    }

    fn content(&mut self, reader: &mut ExportReader<'_>, length: u64) -> Result<(), HistoryError> {
        let mut content = reader.content(length);
        if length <= LARGE {
            return self.hold(Content::of(content.whole()?));
        }
        let mut whole = blake3::Hasher::new();
        let mut chunks = Vec::new();
        for chunk in chunks_of(&mut content) {
            let chunk = Content::of(Bytes::from(chunk.map_err(ended)?));
            whole.update(&chunk.bytes);
            chunks.push(chunk.digest);
            self.hold(chunk)?;
        }
        self.held_bytes += chunks.len() * 32;
        let digest = Digest::from_bytes(*whole.finalize().as_bytes());
        self.held.keep_list(ChunkList { digest, length, chunks });
        Ok(())
    }

    /// Holds a content; many held contents are submitted ahead of their event.
    fn hold(&mut self, content: Content) -> Result<(), HistoryError> {
        self.held_bytes += content.bytes.len();
        self.held.keep(content);
        if self.held_bytes > HELD_BYTES || self.held.contents.len() >= HELD_MAX {
            let held = self.take_held();
            // The last commit follows it and is awaited.
            drop(self.sessions.store().submit(held)?);
        }
        Ok(())
    }

    fn take_back(self) {
        if self.has_begun
            && let Err(error) = self.sessions.remove(self.checked.summary.session)
        {
            tracing::warn!(%error, "could not remove a partial import; importing again completes it");
        }
    }
}
