//! Regular expressions over events, paths and contents.

use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use super::error::ConditionError;
use crate::engine::event::{CommandDecided, CommandResult, EvalResult, Node, WriteFile};
use crate::engine::id::Digest;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::tools::regex_error;
use crate::view::path_of;

const CONTENT_MAX: usize = 8 << 20;

/// A regular expression and its field: `path:RE`, `content:RE`, `event:RE`, or `RE` for all fields.
#[derive(Debug)]
pub struct SearchQuery {
    matcher: Regex,
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
    /// Parses an expression; it is case-sensitive if it has capital letters.
    ///
    /// # Errors
    /// [`ConditionError`] if it is empty or invalid.
    pub fn read(search: &str) -> Result<Self, ConditionError> {
        let places =
            [("path:", SearchField::Paths), ("content:", SearchField::Contents), ("event:", SearchField::Events)];
        let named = places.into_iter().find_map(|(prefix, place)| Some((search.strip_prefix(prefix)?, place)));
        let (pattern, place) = named.unwrap_or((search, SearchField::Anywhere));
        if pattern.is_empty() {
            return Err(ConditionError::new("the regular expression is missing"));
        }
        let matcher = RegexBuilder::new(pattern).case_insensitive(!has_capital(pattern)).multi_line(true).build();
        let matcher = matcher.map_err(|error| ConditionError::pattern("pattern", regex_error(&error)))?;
        Ok(Self { matcher, place })
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        self.matcher.is_match(bytes)
    }

    /// Returns true if an event, its path or one of its contents matches.
    pub fn is_met(&self, session: &Session, event: &EventRef<'_>) -> bool {
        let wants = |place| self.place == SearchField::Anywhere || self.place == place;
        let by_path = || path_of(event).is_some_and(|path| self.matches(path.rooted().as_bytes()));
        let by_event = || {
            self.matches(event.kind.as_bytes())
                || self.matches(event.agent.as_bytes())
                || self.is_said(session, &session.event_json(event))
        };
        wants(SearchField::Paths) && by_path()
            || wants(SearchField::Events) && by_event()
            || wants(SearchField::Contents) && contents(event).iter().any(|digest| self.is_in(session, digest))
    }

    /// Returns true if a text in an event matches, unescaped; long texts are read from their contents.
    fn is_said(&self, session: &Session, event: &Value) -> bool {
        let mut waiting = vec![event];
        while let Some(value) = waiting.pop() {
            let matches = match value {
                // A digest is not text.
                Value::String(text) => text.parse::<Digest>().is_err() && self.matches(text.as_bytes()),
                Value::Array(items) => {
                    waiting.extend(items);
                    false
                }
                Value::Object(fields) => match fields.get("$content").and_then(Value::as_str).map(str::parse) {
                    Some(Ok(content)) => self.is_in(session, &content),
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

    fn is_in(&self, session: &Session, digest: &Digest) -> bool {
        session.content(digest).is_ok_and(|bytes| self.matches(&bytes[..bytes.len().min(CONTENT_MAX)]))
    }
}

/// Returns true if an expression has a capital letter outside of its classes, such as `\S` and `\p{Lu}`.
fn has_capital(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // The letter after a backslash names a class, or a class in braces follows.
            '\\' if matches!(letters.next(), Some('p' | 'P')) && letters.as_str().starts_with('{') => {
                letters.find(|letter| *letter == '}');
            }
            letter if letter.is_uppercase() => return true,
            _ => {}
        }
    }
    false
}

fn contents(event: &EventRef<'_>) -> Vec<Digest> {
    if let Some(WriteFile { node, .. }) = event.decoded() {
        return match node {
            Node::File { content, incomplete: false, .. } => vec![content],
            _ => Vec::new(),
        };
    }
    if let Some(CommandResult { stdout, stderr, .. }) = event.decoded() {
        return vec![stdout.content, stderr.content];
    }
    if let Some(CommandDecided { stdin, .. }) = event.decoded() {
        return stdin.into_iter().collect();
    }
    let evaluated = |EvalResult { code, stdout, stderr, .. }| vec![code, stdout.content, stderr.content];
    event.decoded().map(evaluated).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_case_counts_with_capitals_outside_classes() {
        let cases =
            [("abc", false), ("aBc", true), (r"\S\W", false), (r"\p{Lu}a", false), (r"\p{Lu}A", true), (r"\\A", true)];
        for (pattern, wanted) in cases {
            assert_eq!(has_capital(pattern), wanted, "{pattern}");
        }
    }
}
