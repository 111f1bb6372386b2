//! Search through a whole history: events, the contents that they refer to, and the files of every moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::FileEvent;
use super::cause::{Cause, Causes, Why};
use super::watched::{remove, replace};
use crate::engine::content_ref::{LITERAL, mark_of};
use crate::engine::event::{CommandDecided, CommandResult, EvalResult, Node, WriteFile};
use crate::engine::path::directories_above;
use crate::engine::store::StoreError;
use crate::engine::{Digest, EntryPath, EventRef, Recorded, Seq, Session, SessionError, SessionResult};

/// Matching lines of a text, each with its number from 1.
pub type Matches = Vec<(u64, String)>;

/// Match in a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum HistoryHit {
    /// In an event or a content that it refers to: a long parameter, the output of a command.
    Event {
        /// Position of the event.
        seq: Seq,
        /// Kind of the event.
        kind: String,
        /// Call id of the event.
        call: Option<Seq>,
        /// Agent that made the call.
        agent: Arc<str>,
        /// Field of the event, such as `params.command`.
        field: String,
        /// Number of the line in that text.
        line_number: u64,
        /// Text of the line.
        line: String,
    },
    /// Line of a file, from its appearance to its removal.
    Line {
        /// Path of the file.
        path: EntryPath,
        /// Number of the line at its appearance.
        line_number: u64,
        /// Text of the line.
        line: String,
        /// Event that added it.
        first: Seq,
        /// Cause of that change.
        #[serde(flatten)]
        cause: Cause,
        /// Agent that made the call.
        agent: Arc<str>,
        /// Last position where it exists.
        last: Seq,
        /// True if it still exists at the end of the searched range.
        still: bool,
    },
}

impl HistoryHit {
    /// Returns its first position.
    pub fn first(&self) -> Seq {
        match self {
            Self::Event { seq, .. } => *seq,
            Self::Line { first, .. } => *first,
        }
    }
}

/// Scope of a search.
pub struct HistorySearch<'a> {
    /// First position to search.
    pub from: Seq,
    /// Last position to search.
    pub until: Seq,
    /// Filter of files by path.
    pub wanted: &'a dyn Fn(&EntryPath) -> bool,
    /// True to also search events and the texts that they refer to.
    pub events: bool,
    /// Contents of the text file at a path before `from`: its lines are not new.
    pub before: &'a dyn Fn(&EntryPath) -> Option<Digest>,
    /// Called before each event; the search ends early once it returns false.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Default for HistorySearch<'_> {
    /// Returns the scope of all files of a whole history.
    fn default() -> Self {
        Self { from: 1, until: Seq::MAX, wanted: &|_| true, events: false, before: &|_| None, goes_on: &|| true }
    }
}

/// Finds matches in a range of events, in the texts that they refer to, and in the text files of every moment.
/// `matching` returns the matching lines of a text. Returns the last position that was searched.
///
/// A hit is reported once its last position in the range is known, so hits are not in order. Memory holds the matching
/// lines of the current files, and the digests of the contents without a match. Fails with
/// [`SessionError::NoPosition`]. Other errors come from the session or from `found`, and end the search. A missing
/// referenced text is not an error.
pub fn search_history<E: From<SessionError>>(
    session: &Session,
    what: &HistorySearch<'_>,
    matching: &mut dyn FnMut(&[u8]) -> Matches,
    found: &mut dyn FnMut(HistoryHit) -> Result<(), E>,
) -> Result<Seq, E> {
    let (head, mut until) = (session.head()?, what.until);
    if until > head {
        return Err(SessionError::NoPosition { seq: until, head }.into());
    }
    let (without, known) = (BTreeSet::new(), BTreeSet::new());
    let mut search = SearchRun { session, what, matching, without, known, live: BTreeMap::new() };
    let (mut causes, mut outcome) = (Causes::default(), Ok(()));
    session.visit_between(what.from, until, &mut |event| {
        if !(what.goes_on)() {
            until = event.seq.saturating_sub(1);
            return ControlFlow::Break(());
        }
        let why = causes.take(event).why;
        let hits = search.event(event, &why).map_err(E::from);
        outcome = hits.and_then(|hits| hits.into_iter().try_for_each(&mut *found));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    let live = std::mem::take(&mut search.live);
    live.into_iter().flat_map(|(path, file)| file.ended(&path, until, true)).try_for_each(found)?;
    Ok(until)
}

struct SearchRun<'a> {
    session: &'a Session,
    what: &'a HistorySearch<'a>,
    matching: &'a mut dyn FnMut(&[u8]) -> Matches,
    without: BTreeSet<Digest>,
    /// Paths that events of the range have written or removed: `before` no longer holds there.
    known: BTreeSet<EntryPath>,
    live: BTreeMap<EntryPath, FileMatches>,
}

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
        // Lines from before the range have no first position.
        self.0.into_iter().filter(|line| line.first > 0).map(move |line| HistoryHit::Line {
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
    fn event(&mut self, event: &EventRef<'_>, why: &Why) -> SessionResult<Vec<HistoryHit>> {
        let mut hits = if self.what.events { self.said(event)? } else { Vec::new() };
        match FileEvent::of(event) {
            Some(FileEvent::Write(write)) => {
                let lines = match &write.node {
                    Node::File { content, text: true, incomplete: false, .. } if (self.what.wanted)(&write.path) => {
                        self.matches(content)?
                    }
                    _ => Matches::new(),
                };
                self.write(event, why, &write, lines, &mut hits)?;
            }
            Some(FileEvent::Delete(delete)) => {
                self.known.insert(delete.path.clone());
                let gone = remove(&mut self.live, &delete.path).into_iter();
                hits.extend(gone.flat_map(|(path, file)| file.ended(&path, event.seq.saturating_sub(1), false)));
            }
            None => {}
        }
        Ok(hits)
    }

    /// Replaces the lines of a file; remaining lines continue, as often as they occur.
    fn write(
        &mut self,
        event: &EventRef<'_>,
        why: &Why,
        write: &WriteFile,
        lines: Matches,
        hits: &mut Vec<HistoryHit>,
    ) -> SessionResult<()> {
        let (path, last) = (&write.path, event.seq.saturating_sub(1));
        let before = match self.live.remove(path) {
            Some(file) => file.0,
            None => self.earlier(path, why)?,
        };
        // A directory keeps the files below it, unless a file was there.
        let was_file = |place: &EntryPath| (self.what.before)(place).is_some();
        self.known.extend(directories_above(path).filter(&was_file));
        if !write.node.is_directory() || was_file(path) {
            self.known.insert(path.clone());
        }
        let gone = replace(&mut self.live, path, &write.node).into_iter();
        hits.extend(gone.flat_map(|(path, file)| file.ended(&path, last, false)));
        let mut known: BTreeMap<String, VecDeque<(usize, TextLine)>> = BTreeMap::new();
        for (at, line) in before.into_iter().enumerate() {
            known.entry(line.text.clone()).or_default().push_back((at, line));
        }
        let (first, cause, agent): (_, Cause, Arc<str>) = (event.seq, why.cause(path), Arc::from(event.agent));
        let after = lines.into_iter().map(|(number, text)| {
            let known = known.get_mut(&text).and_then(VecDeque::pop_front).map(|(_, line)| line);
            known.unwrap_or_else(|| TextLine { number, text, first, cause: cause.clone(), agent: Arc::clone(&agent) })
        });
        let after: Vec<TextLine> = after.collect();
        let gone: BTreeMap<usize, TextLine> = known.into_values().flatten().collect();
        hits.extend(FileMatches(gone.into_values().collect()).ended(path, last, false));
        if !after.is_empty() {
            self.live.insert(path.clone(), FileMatches(after));
        }
        Ok(())
    }

    /// Returns the matching lines of a file from before the range, unless an event of the range has changed it.
    fn earlier(&mut self, path: &EntryPath, why: &Why) -> SessionResult<Vec<TextLine>> {
        let is_known = self.known.contains(path) || directories_above(path).any(|above| self.known.contains(&above));
        let Some(content) = (self.what.before)(path).filter(|_| !is_known) else { return Ok(Vec::new()) };
        let line = |(number, text)| {
            let (cause, agent) = (why.cause(path), Arc::from(""));
            TextLine { number, text, first: 0, cause, agent }
        };
        Ok(self.matches(&content)?.into_iter().map(line).collect())
    }

    /// Returns the matches in a content. A content that is not stored has no matches: events may refer to anything.
    fn matches(&mut self, content: &Digest) -> SessionResult<Matches> {
        if self.without.contains(content) {
            return Ok(Matches::new());
        }
        let bytes = match self.session.content(content) {
            Err(SessionError::Store(StoreError::NoContent(_))) => return Ok(Matches::new()),
            read => read?,
        };
        let lines = (self.matching)(&bytes);
        if lines.is_empty() {
            self.without.insert(*content);
        }
        Ok(lines)
    }

    fn said(&mut self, event: &EventRef<'_>) -> SessionResult<Vec<HistoryHit>> {
        let mut found: Vec<(String, Matches)> = Vec::new();
        for (field, text) in texts(&self.session.event_json(event)) {
            match text {
                SearchedText::Here(text) => found.push((field, (self.matching)(text.as_bytes()))),
                SearchedText::Kept(content) => found.push((field, self.matches(&content)?)),
            }
        }
        for (field, content) in outputs(event) {
            found.push((field.to_owned(), self.matches(&content)?));
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
}

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

enum SearchedText {
    Here(String),
    /// Long text, stored under its digest.
    Kept(Digest),
}

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
                // The value of this field only looks like a marker.
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
