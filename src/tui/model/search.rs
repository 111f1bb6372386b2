//! Regular expressions over events, paths and contents.

use foldspace::event::{CommandDecided, CommandResult, Digest, EvalResult, EventRef, Node, WriteFile};
use foldspace::view;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::Value;

use super::{Failure, SessionHistory};
use crate::terminal::text;

const CONTENT_MAX: usize = 8 << 20;

/// A regular expression and its field: `path:RE`, `content:RE`, `event:RE`, or all of them.
#[derive(Debug)]
pub(crate) struct SearchQuery {
    matcher: RegexMatcher,
    place: SearchField,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchField {
    Anywhere,
    Paths,
    Contents,
    Events,
}

impl SearchQuery {
    pub(crate) fn read(search: &str) -> Result<Self, Failure> {
        let places =
            [("path:", SearchField::Paths), ("content:", SearchField::Contents), ("event:", SearchField::Events)];
        let named = places.into_iter().find_map(|(prefix, place)| Some((search.strip_prefix(prefix)?, place)));
        let (pattern, place) = named.unwrap_or((search, SearchField::Anywhere));
        if pattern.is_empty() {
            return Err(Failure::usage("give a regular expression"));
        }
        let mut builder = RegexMatcherBuilder::new();
        let matcher = builder.case_smart(true).multi_line(true).build(pattern);
        let matcher = matcher.map_err(|error| Failure::pattern("pattern", text::regex_error(error)))?;
        Ok(Self { matcher, place })
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        self.matcher.is_match(bytes).unwrap_or(false)
    }

    pub(crate) fn is_met(&self, past: &SessionHistory, event: &EventRef<'_>) -> bool {
        let wants = |place| self.place == SearchField::Anywhere || self.place == place;
        let by_path = || view::path_of(event).is_some_and(|path| self.matches(path.rooted().as_bytes()));
        let by_event = || {
            self.matches(event.kind.as_bytes())
                || self.matches(event.agent.as_bytes())
                || self.is_said(past, &past.plain_json(event))
        };
        wants(SearchField::Paths) && by_path()
            || wants(SearchField::Events) && by_event()
            || wants(SearchField::Contents) && contents(event).iter().any(|digest| self.is_in(past, digest))
    }

    /// Tells whether a text of an event matches, unescaped; long texts are read from their contents.
    fn is_said(&self, past: &SessionHistory, event: &Value) -> bool {
        let mut waiting = vec![event];
        while let Some(value) = waiting.pop() {
            let matches = match value {
                // What names a content is no text.
                Value::String(text) => text.parse::<Digest>().is_err() && self.matches(text.as_bytes()),
                Value::Array(items) => {
                    waiting.extend(items);
                    false
                }
                Value::Object(fields) => match fields.get("$content").and_then(Value::as_str).map(str::parse) {
                    Some(Ok(content)) => self.is_in(past, &content),
                    _ => {
                        waiting.extend(fields.values());
                        false
                    }
                },
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            };
            if matches {
                return true;
            }
        }
        false
    }

    fn is_in(&self, past: &SessionHistory, digest: &Digest) -> bool {
        past.content(digest).is_ok_and(|bytes| self.matches(&bytes[..bytes.len().min(CONTENT_MAX)]))
    }
}

fn contents(event: &EventRef<'_>) -> Vec<Digest> {
    if let Some(Ok(write)) = event.typed::<WriteFile>() {
        return match write.event.node {
            Node::File { content, incomplete: false, .. } => vec![content],
            _ => Vec::new(),
        };
    }
    if let Some(Ok(command)) = event.typed::<CommandResult>() {
        return vec![command.event.stdout.content, command.event.stderr.content];
    }
    if let Some(Ok(decided)) = event.typed::<CommandDecided>() {
        return decided.event.stdin.into_iter().collect();
    }
    match event.typed::<EvalResult>() {
        Some(Ok(code)) => vec![code.event.code, code.event.stdout.content, code.event.stderr.content],
        _ => Vec::new(),
    }
}
