//! A search through everything that was ever there: events, what they refer to, and the files of every moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::cause::{Cause, Causes};
use super::watched::below;
use super::{FileEvent, each};
use crate::engine::event::{CommandDecided, CommandResult, EvalResult, Node};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded, Seq};
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;

/// The lines of a text that match, each with its number from 1.
pub type Matches = Vec<(u64, String)>;

/// Something that was found in a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum HistoryHit {
    /// In what an event says, or in what it refers to: a long parameter, what a command printed.
    Event {
        /// The event.
        seq: Seq,
        /// Its kind.
        kind: String,
        /// Its call.
        call: Option<Seq>,
        /// Who made the call.
        agent: Arc<str>,
        /// Where in the event, such as `params.command`.
        field: String,
        /// Which line of the text there.
        line_number: u64,
        /// The line.
        line: String,
    },
    /// A line of a file, from when it came until it went.
    Line {
        /// The file.
        path: EntryPath,
        /// Its number when it came.
        line_number: u64,
        /// The line.
        line: String,
        /// The event since which it is there.
        first: Seq,
        /// Why it came.
        #[serde(flatten)]
        cause: Cause,
        /// Who made the call.
        agent: Arc<str>,
        /// The last position at which it is there.
        last: Seq,
        /// Whether it is there at the end of what was searched.
        still: bool,
    },
}

impl HistoryHit {
    /// The position at which it is first there.
    pub fn first(&self) -> Seq {
        match self {
            Self::Event { seq, .. } => *seq,
            Self::Line { first, .. } => *first,
        }
    }
}

/// Finds what matches in the events up to a position, in the texts that they refer to, and in the files of every
/// moment. `matching` gives the lines of a text that match; each content is shown to it once. Only text files whose path is
/// `wanted` are searched, of events all.
///
/// A hit is given when it is known until when it is there, so not in order. The matches of what is there at the moment,
/// and the digest of every content that was searched, are in memory; nothing else is.
///
/// # Errors
/// [`SessionError::NoPosition`] when the history is shorter, what the session says, and what `found` says, which ends
/// the search.
pub fn search_history<E: From<SessionError>>(
    session: &Session,
    until: Seq,
    wanted: &dyn Fn(&EntryPath) -> bool,
    matching: &mut dyn FnMut(&[u8]) -> Matches,
    found: &mut dyn FnMut(HistoryHit) -> Result<(), E>,
) -> Result<(), E> {
    let head = session.head()?;
    if until > head {
        return Err(SessionError::NoPosition { seq: until, head }.into());
    }
    let mut search = Search { session, wanted, matching, searched: BTreeMap::new(), live: BTreeMap::new() };
    let (mut causes, mut outcome) = (Causes::default(), Ok(()));
    each(session, until, |event| {
        let cause = causes.take(event).cause;
        if outcome.is_ok() {
            outcome = search
                .event(event, &cause)
                .map_err(E::from)
                .and_then(|hits| hits.into_iter().try_for_each(&mut *found));
        }
    })?;
    outcome?;
    let live = std::mem::take(&mut search.live);
    live.into_iter().flat_map(|(path, file)| file.ended(&path, until, true)).try_for_each(found)
}

struct Search<'a> {
    session: &'a Session,
    wanted: &'a dyn Fn(&EntryPath) -> bool,
    matching: &'a mut dyn FnMut(&[u8]) -> Matches,
    /// What was found in a content; nothing for most.
    searched: BTreeMap<Digest, Option<Arc<Matches>>>,
    /// The files in which something matches at the moment.
    live: BTreeMap<EntryPath, File>,
}

/// The lines of a file that match at the moment.
#[derive(Default)]
struct File(Vec<Line>);

struct Line {
    number: u64,
    text: String,
    first: Seq,
    cause: Cause,
    agent: Arc<str>,
}

impl File {
    fn ended(self, path: &EntryPath, last: Seq, still: bool) -> impl Iterator<Item = HistoryHit> + use<> {
        let path = path.clone();
        self.0.into_iter().map(move |line| HistoryHit::Line {
            path: path.clone(),
            line_number: line.number,
            line: line.text,
            first: line.first,
            cause: line.cause,
            agent: line.agent,
            last,
            still,
        })
    }
}

impl Search<'_> {
    fn event(&mut self, event: &EventRef<'_>, cause: &Cause) -> Result<Vec<HistoryHit>, SessionError> {
        let mut hits = self.said(event)?;
        match FileEvent::of(event) {
            Some(FileEvent::Write(write)) => {
                let lines = match &write.node {
                    Node::File { content, text: true, incomplete: false, .. } if (self.wanted)(&write.path) => {
                        self.matches(content)?
                    }
                    _ => None,
                };
                self.write(event, cause, &write.path, write.node == Node::Directory, lines, &mut hits);
            }
            Some(FileEvent::Delete(delete)) => self.remove(event.seq, &delete.path, &mut hits),
            None => {}
        }
        Ok(hits)
    }

    /// A file has other lines now: those that it had before stay, as often as they are there.
    fn write(
        &mut self,
        event: &EventRef<'_>,
        cause: &Cause,
        path: &EntryPath,
        is_directory: bool,
        lines: Option<Arc<Matches>>,
        hits: &mut Vec<HistoryHit>,
    ) {
        let mut before = self.live.remove(path).unwrap_or_default().0;
        if !is_directory {
            self.remove(event.seq, path, hits);
        }
        let mut after = Vec::new();
        for (number, text) in lines.iter().flat_map(|lines| lines.iter()) {
            let known = before.iter().position(|line| line.text == *text);
            after.push(match known {
                Some(at) => before.remove(at),
                None => {
                    let (first, agent) = (event.seq, Arc::from(event.agent));
                    Line { number: *number, text: text.clone(), first, cause: cause.clone(), agent }
                }
            });
        }
        hits.extend(File(before).ended(path, event.seq.saturating_sub(1), false));
        if !after.is_empty() {
            self.live.insert(path.clone(), File(after));
        }
    }

    fn remove(&mut self, seq: Seq, path: &EntryPath, hits: &mut Vec<HistoryHit>) {
        let mut gone = below(&self.live, path);
        gone.push(path.clone());
        for path in gone {
            if let Some(file) = self.live.remove(&path) {
                hits.extend(file.ended(&path, seq.saturating_sub(1), false));
            }
        }
    }

    /// The lines of a content that match; none when none does. A content is read once.
    fn matches(&mut self, content: &Digest) -> Result<Option<Arc<Matches>>, SessionError> {
        if let Some(known) = self.searched.get(content) {
            return Ok(known.clone());
        }
        let bytes = self.session.content(content)?;
        let lines = (self.matching)(&bytes);
        let lines = (!lines.is_empty()).then(|| Arc::new(lines));
        self.searched.insert(*content, lines.clone());
        Ok(lines)
    }

    /// What matches in an event and in the texts that it refers to.
    fn said(&mut self, event: &EventRef<'_>) -> Result<Vec<HistoryHit>, SessionError> {
        let mut found: Vec<(String, Matches)> = Vec::new();
        for (field, text) in texts(&self.session.event_json(event)) {
            match text {
                Text::Here(text) => found.push((field, (self.matching)(text.as_bytes()))),
                Text::Kept(content) => found.push((field, self.heard(&content)?)),
            }
        }
        for (field, content) in outputs(event) {
            found.push((field.to_owned(), self.heard(&content)?));
        }
        let hit = |field: &String, (line_number, line)| HistoryHit::Event {
            seq: event.seq,
            kind: event.kind.to_owned(),
            call: event.call,
            agent: Arc::from(event.agent),
            field: field.clone(),
            line_number,
            line,
        };
        Ok(found.into_iter().flat_map(|(field, lines)| lines.into_iter().map(move |line| hit(&field, line))).collect())
    }

    fn heard(&mut self, content: &Digest) -> Result<Matches, SessionError> {
        Ok(self.matches(content)?.map(|lines| lines.to_vec()).unwrap_or_default())
    }
}

/// The contents that an event of a command refers to.
fn outputs(event: &EventRef<'_>) -> Vec<(&'static str, Digest)> {
    if let Some(Ok(Recorded { event, .. })) = event.typed::<CommandResult>() {
        return vec![("stdout", event.stdout.content), ("stderr", event.stderr.content)];
    }
    if let Some(Ok(Recorded { event, .. })) = event.typed::<EvalResult>() {
        return vec![("code", event.code), ("stdout", event.stdout.content), ("stderr", event.stderr.content)];
    }
    match event.typed::<CommandDecided>() {
        Some(Ok(Recorded { event, .. })) => event.stdin.map(|stdin| ("stdin", stdin)).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A text of an event.
enum Text {
    Here(String),
    /// A long one, kept under its digest.
    Kept(Digest),
}

/// The texts of an event with where they stand. What only names a content is no text.
fn texts(event: &Value) -> Vec<(String, Text)> {
    let mut texts = Vec::new();
    let mut waiting = vec![(String::new(), event)];
    while let Some((field, value)) = waiting.pop() {
        let at = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
        match value {
            Value::String(text) if text.parse::<Digest>().is_ok() => {}
            Value::String(text) => texts.push((field, Text::Here(text.clone()))),
            Value::Array(items) => waiting.extend(items.iter().enumerate().map(|(n, item)| (at(&n.to_string()), item))),
            Value::Object(fields) => match fields.get("$content").and_then(Value::as_str).map(str::parse) {
                Some(Ok(content)) => texts.push((field, Text::Kept(content))),
                _ => waiting.extend(fields.iter().map(|(name, item)| (at(name), item))),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts.sort_by(|(one, _), (other, _)| one.cmp(other));
    texts
}
