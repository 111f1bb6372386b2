//! Search through a session's history, page by page.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::{CallFinished, CallStarted, CommandResult, EvalResult, Event, Node};
use crate::engine::history::{HistoryHit, HistorySearch, search_history};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;
use crate::engine::session::Session;
use crate::reducers::VirtualFileSystem;
use crate::tools::{LineSearch, regex_error};
use crate::view::Position;

/// Limit for the hits of a page.
const LIMIT: usize = 1000;
/// Limit for the time of a page.
const TIME: Duration = Duration::from_secs(1);
/// Limit for the hits in one text.
const IN_TEXT: usize = 1000;
/// Limit for the characters of a line.
const CHARS: usize = 400;
/// Characters to show before a match in a line that is cut.
const LEAD: usize = 80;

/// Finds lines that match a regular expression in the parameters and output of calls, in the files of every moment, and
/// in other events: page by page, in order. A page may be short or empty before the end; `next` is where to continue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchSession {
    /// The regular expression, in Rust's syntax.
    pub pattern: String,
    /// True to ignore case.
    #[serde(default)]
    pub ignore_case: bool,
    /// Only matches in this place.
    #[serde(rename = "in")]
    pub place: Option<SearchPlace>,
    /// Only files that match this glob.
    pub path: Option<String>,
    /// The start position; 1 by default.
    pub from: Option<Position>,
    /// Limit for the hits, from 1 to 1000; all hits of the last event are returned.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
}

fn usual() -> usize {
    200
}

/// The place of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchPlace {
    /// The parameters of a call, such as its command.
    Parameters,
    /// The output of a call, or its message.
    Output,
    /// A line that a file gained.
    File,
    /// Another event, such as an agent's message.
    Event,
}

/// A page of matches.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SearchPage {
    /// The position of the session's last event.
    pub head: Seq,
    /// The last position that was searched.
    pub searched: Seq,
    /// The start of the next page; null at the end.
    pub next: Option<Seq>,
    /// The matches, in order. A line that several events of a call repeat is returned once.
    pub hits: Vec<SearchMatch>,
    /// True if a text had more than 1000 matches, and the further ones are missing.
    pub more: bool,
}

/// A line that matches.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SearchMatch {
    /// The position of the event.
    pub seq: Seq,
    /// The call of the event; null for an event outside of calls.
    pub call: Option<Seq>,
    /// The agent that made the call.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// The place.
    pub place: SearchPlace,
    /// The kind of the event and its field, such as `CallStarted params.command`; null for files.
    pub field: Option<String>,
    /// The path of the file; null for events.
    #[schemars(with = "Option<String>")]
    pub path: Option<EntryPath>,
    /// The number of the line in its text, from 1.
    pub line_number: u64,
    /// The line. A long line is cut around its first match, with `…` at the cut.
    pub line: String,
    /// The matches in the line: start and end in characters.
    pub ranges: Vec<[usize; 2]>,
}

impl Operation for SearchSession {
    const NAME: &'static str = "search_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("events", "/v1/sessions/{session}/search");
    type Output = SearchPage;

    async fn run(self, context: &OperationContext<'_>) -> Result<SearchPage, OperationError> {
        if !(1..=LIMIT).contains(&self.limit) {
            return Err(OperationError::invalid(format!("limit is {}; it must be from 1 to {LIMIT}", self.limit)));
        }
        let lines = LineSearch::new(&format!("{}{}", if self.ignore_case { "(?i)" } else { "" }, self.pattern));
        let lines = lines.map_err(|error| OperationError::invalid(format!("pattern: {}", regex_error(&error))))?;
        let glob = self.path.as_deref().map(PathGlob::new).transpose();
        let glob = glob.map_err(|error| OperationError::invalid(format!("path: {}", error.kind())))?;
        let (session, cancel) = (context.session().await?, context.cancel.clone());
        reading(move || self.page(&session, &lines, glob.as_ref(), &|| cancel.is_cancelled())).await
    }
}

impl SearchSession {
    fn page(
        &self,
        session: &Session,
        lines: &LineSearch,
        glob: Option<&PathGlob>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<SearchPage, OperationError> {
        let head = session.head()?;
        let from = self.from.as_ref().map_or(Ok(1), |from| from.first_read(session))?.max(1);
        let earlier = session.state_at(from.saturating_sub(1).min(head))?;
        let earlier = VirtualFileSystem::of(&earlier);
        let (count, is_cut, ends) = (Cell::new(0), Cell::new(false), Instant::now() + TIME);
        let wants = |place| self.place.is_none_or(|wanted| wanted == place);
        let what = HistorySearch {
            from,
            until: head,
            wanted: &|path| wants(SearchPlace::File) && glob.is_none_or(|glob| glob.fits(path)),
            events: glob.is_none() && self.place != Some(SearchPlace::File),
            before: &|path| text_of(&earlier, path),
            goes_on: &|| count.get() < self.limit && Instant::now() < ends && !is_cancelled(),
        };
        let mut matching = |bytes: &[u8]| {
            let found = lines.matches(bytes, IN_TEXT);
            is_cut.set(is_cut.get() || found.len() == IN_TEXT);
            count.set(count.get() + found.len());
            found
        };
        let (mut hits, mut repeated) = (Vec::new(), BTreeSet::new());
        let searched = search_history::<OperationError>(session, &what, &mut matching, &mut |hit| {
            let hit = SearchMatch::of(hit, lines);
            let is_new =
                hit.call.is_none_or(|call| repeated.insert((call, hit.place, hit.line_number, hit.line.clone())));
            if wants(hit.place) && is_new {
                hits.push(hit);
            }
            Ok(())
        })?;
        let place = |hit: &SearchMatch| (hit.seq, hit.path.clone(), hit.field.clone(), hit.line_number);
        hits.sort_by_cached_key(place);
        let next = (searched < head).then(|| searched + 1);
        Ok(SearchPage { head, searched, next, hits, more: is_cut.get() })
    }
}

/// Returns the contents of a text file.
fn text_of(files: &VirtualFileSystem, path: &EntryPath) -> Option<Digest> {
    match &files.get(path)?.node {
        Node::File { content, text: true, incomplete: false, .. } => Some(*content),
        _ => None,
    }
}

impl SearchMatch {
    fn of(hit: HistoryHit, lines: &LineSearch) -> Self {
        match hit {
            HistoryHit::Event { seq, kind, call, agent, field, line_number, line } => {
                let place = match kind.as_str() {
                    CallStarted::KIND => SearchPlace::Parameters,
                    CallFinished::KIND => SearchPlace::Output,
                    CommandResult::KIND | EvalResult::KIND if field.starts_with("std") => SearchPlace::Output,
                    _ if call.is_some() => SearchPlace::Parameters,
                    _ => SearchPlace::Event,
                };
                let (line, ranges) = shown(&line, lines);
                let field = Some(format!("{kind} {field}"));
                Self { seq, call, agent, place, field, path: None, line_number, line, ranges }
            }
            HistoryHit::Line { path, line_number, line, first, cause, agent, .. } => {
                let (line, ranges) = shown(&line, lines);
                let (call, path, place) = (cause.call(), Some(path), SearchPlace::File);
                Self { seq: first, call, agent, place, field: None, path, line_number, line, ranges }
            }
        }
    }
}

/// Cuts a line around its first match. Returns it with the matches in it, in characters.
fn shown(line: &str, lines: &LineSearch) -> (String, Vec<[usize; 2]>) {
    let (mut at, mut chars) = (0, 0);
    let mut counted = |until: usize| {
        chars += line.get(at..until).map_or(0, |text| text.chars().count());
        at = until;
        chars
    };
    let spots = lines.spots(line).into_iter();
    let all: Vec<[usize; 2]> = spots.map(|spot| [counted(spot.start), counted(spot.end)]).collect();
    let length = line.chars().count();
    if length <= CHARS {
        return (line.to_owned(), all);
    }
    let skip = all.first().map_or(0, |[start, _]| start.saturating_sub(LEAD));
    let mark = usize::from(skip > 0);
    let end = if skip + CHARS < length { "…" } else { "" };
    let cut: String = line.chars().skip(skip).take(CHARS).collect();
    let moved = |[start, end]: [usize; 2]| [start - skip + mark, end.min(skip + CHARS) - skip + mark];
    let ranges = all.into_iter().filter(|[start, _]| *start < skip + CHARS).map(moved).collect();
    (format!("{}{cut}{end}", if mark == 1 { "…" } else { "" }), ranges)
}
