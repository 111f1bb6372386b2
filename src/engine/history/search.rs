//! A search through everything that was ever there: events, what they refer to, and the files of every moment.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::cause::{Cause, Causes, Why};
use super::watched::below;
use super::{FileEvent, each};
use crate::engine::content_ref::{LITERAL, mark_of};
use crate::engine::event::{CommandDecided, CommandResult, EvalResult, Node, WriteFile};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

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

/// What is searched of a history.
pub struct HistorySearch<'a> {
    /// The position up to which it is searched.
    pub until: Seq,
    /// Which files are searched, by their paths.
    pub wanted: &'a dyn Fn(&EntryPath) -> bool,
    /// Whether events are searched, too, and the texts that they refer to.
    pub events: bool,
}

/// Finds what matches in the events up to a position, in the texts that they refer to, and in the text files of every
/// moment. `matching` gives the lines of a text that match.
///
/// A hit is given when it is known until when it is there, so not in order. What is in memory are the matching lines of
/// the files that are there at the moment, and the digests of the contents in which nothing matches.
///
/// # Errors
/// [`SessionError::NoPosition`] when the history is shorter, what the session says, and what `found` says, which ends
/// the search. That a text is not kept to which an event refers is no error.
pub fn search_history<E: From<SessionError>>(
    session: &Session,
    what: &HistorySearch<'_>,
    matching: &mut dyn FnMut(&[u8]) -> Matches,
    found: &mut dyn FnMut(HistoryHit) -> Result<(), E>,
) -> Result<(), E> {
    let (head, until) = (session.head()?, what.until);
    if until > head {
        return Err(SessionError::NoPosition { seq: until, head }.into());
    }
    let mut search = SearchRun { session, what, matching, without: BTreeSet::new(), live: BTreeMap::new() };
    let (mut causes, mut outcome) = (Causes::default(), Ok(()));
    each(session, until, |event| {
        let why = causes.take(event).why;
        let hits = search.event(event, &why).map_err(E::from);
        outcome = hits.and_then(|hits| hits.into_iter().try_for_each(&mut *found));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    let live = std::mem::take(&mut search.live);
    live.into_iter().flat_map(|(path, file)| file.ended(&path, until, true)).try_for_each(found)
}

struct SearchRun<'a> {
    session: &'a Session,
    what: &'a HistorySearch<'a>,
    matching: &'a mut dyn FnMut(&[u8]) -> Matches,
    /// The contents in which nothing matches: most.
    without: BTreeSet<Digest>,
    /// The files in which something matches at the moment.
    live: BTreeMap<EntryPath, FileMatches>,
}

/// The lines of a file that match at the moment.
#[derive(Default)]
struct FileMatches(Vec<TextLine>);

struct TextLine {
    number: u64,
    text: String,
    first: Seq,
    cause: Cause,
    agent: Arc<str>,
}

impl FileMatches {
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

impl SearchRun<'_> {
    fn event(&mut self, event: &EventRef<'_>, why: &Why) -> Result<Vec<HistoryHit>, SessionError> {
        let mut hits = if self.what.events { self.said(event)? } else { Vec::new() };
        match FileEvent::of(event) {
            Some(FileEvent::Write(write)) => {
                let lines = match &write.node {
                    Node::File { content, text: true, incomplete: false, .. } if (self.what.wanted)(&write.path) => {
                        self.matches(content)?
                    }
                    _ => Matches::new(),
                };
                self.write(event, why, &write, lines, &mut hits);
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
        why: &Why,
        write: &WriteFile,
        lines: Matches,
        hits: &mut Vec<HistoryHit>,
    ) {
        let path = &write.path;
        // A file above is none any more.
        for above in std::iter::successors(path.parent(), EntryPath::parent) {
            if let Some(file) = self.live.remove(&above) {
                hits.extend(file.ended(&above, event.seq.saturating_sub(1), false));
            }
        }
        let before = self.live.remove(path).unwrap_or_default().0;
        if write.node != Node::Directory {
            self.remove(event.seq, path, hits);
        }
        let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (at, line) in before.iter().enumerate() {
            places.entry(line.text.clone()).or_default().push_back(at);
        }
        let mut before: Vec<Option<TextLine>> = before.into_iter().map(Some).collect();
        let (cause, agent): (Cause, Arc<str>) = (why.cause(path), Arc::from(event.agent));
        let mut after = Vec::with_capacity(lines.len());
        for (number, text) in lines {
            let known = places.get_mut(&text).and_then(VecDeque::pop_front);
            let known = known.and_then(|at| before.get_mut(at)?.take());
            let (first, cause, agent) = (event.seq, &cause, &agent);
            let new = || TextLine { number, text, first, cause: cause.clone(), agent: Arc::clone(agent) };
            after.push(known.unwrap_or_else(new));
        }
        let gone = before.into_iter().flatten().collect();
        hits.extend(FileMatches(gone).ended(path, event.seq.saturating_sub(1), false));
        if !after.is_empty() {
            self.live.insert(path.clone(), FileMatches(after));
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

    /// The lines of a content that match.
    fn matches(&mut self, content: &Digest) -> Result<Matches, SessionError> {
        if self.without.contains(content) {
            return Ok(Matches::new());
        }
        let bytes = self.session.content(content)?;
        let lines = (self.matching)(&bytes);
        if lines.is_empty() {
            self.without.insert(*content);
        }
        Ok(lines)
    }

    /// What matches in an event and in the texts that it refers to.
    fn said(&mut self, event: &EventRef<'_>) -> Result<Vec<HistoryHit>, SessionError> {
        let mut found: Vec<(String, Matches)> = Vec::new();
        for (field, text) in texts(&self.session.event_json(event)) {
            match text {
                SearchedText::Here(text) => found.push((field, (self.matching)(text.as_bytes()))),
                SearchedText::Kept(content) => found.push((field, self.heard(&content)?)),
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

    /// What an event refers to may be not there: whoever recorded it may have referred to anything.
    fn heard(&mut self, content: &Digest) -> Result<Matches, SessionError> {
        match self.matches(content) {
            Err(SessionError::Store(StoreError::NoContent(_))) => Ok(Matches::new()),
            other => other,
        }
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
enum SearchedText {
    Here(String),
    /// A long one, kept under its digest.
    Kept(Digest),
}

/// The texts of an event with where they stand. What only names a content is no text.
fn texts(event: &Value) -> Vec<(String, SearchedText)> {
    let mut texts = Vec::new();
    let mut waiting = vec![(String::new(), event)];
    while let Some((field, value)) = waiting.pop() {
        let at = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
        match value {
            Value::String(text) if text.parse::<Digest>().is_ok() => {}
            Value::String(text) => texts.push((field, SearchedText::Here(text.clone()))),
            Value::Array(items) => waiting.extend(items.iter().enumerate().map(|(n, item)| (at(&n.to_string()), item))),
            Value::Object(fields) => {
                // What is in such a field only looks like a mark.
                let literal = fields.get(LITERAL).and_then(Value::as_object);
                match mark_of(fields).filter(|_| literal.is_none()) {
                    Some(content) => texts.push((field, SearchedText::Kept(content))),
                    None => waiting.extend(literal.unwrap_or(fields).iter().map(|(name, item)| (at(name), item))),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts.sort_by(|(one, _), (other, _)| one.cmp(other));
    texts
}
