//! The conditions that stop a run.

use std::sync::Arc;

use super::SearchQuery;
use super::error::ConditionError;
use crate::engine::event::{CallStarted, WriteFile};
use crate::engine::nearest::nearest;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::tools::{PathGlob, Predicate};
use crate::view::{has_failed, path_of};

/// A condition that stops a run through a history, as a person writes it.
pub struct StopCondition {
    text: String,
    test: Test,
}

enum Test {
    Path(PathGlob),
    Kind(String),
    Agent(String),
    Tool(String),
    Failed,
    Text(SearchQuery),
    State(Predicate),
}

const FORMS: &str = "path GLOB, kind KIND, agent NAME, tool NAME, failed, /REGEX/, or a predicate over a slice";

impl StopCondition {
    /// Parses a condition; a predicate may use the slices of the state.
    ///
    /// # Errors
    /// [`ConditionError`] with the valid forms.
    pub fn read(text: &str, state: &State) -> Result<Arc<Self>, ConditionError> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()));
        let named = |what: &str| match rest {
            "" => Err(ConditionError::new(format!("name the {what}: {word} NAME"))),
            rest => Ok(rest.to_owned()),
        };
        let test = match word {
            "" => return Err(ConditionError::new(format!("a condition is one of: {FORMS}"))),
            "path" => Test::Path(
                PathGlob::new(&named("path")?).map_err(|error| ConditionError::pattern("glob", error.kind()))?,
            ),
            "kind" => Test::Kind(named("kind")?.to_lowercase()),
            "agent" => Test::Agent(named("agent")?),
            "tool" => Test::Tool(named("tool")?),
            "failed" if rest.is_empty() => Test::Failed,
            _ => match text.strip_prefix('/').and_then(|text| text.strip_suffix('/')) {
                Some(pattern) => Test::Text(SearchQuery::read(pattern)?),
                None => Test::State(Predicate::parse_for(text, state).map_err(|error| {
                    let meant = nearest(word, ["path", "kind", "agent", "tool", "failed"]);
                    let hint = meant.map(|meant| format!("did you mean {meant}?"));
                    ConditionError { hint, ..ConditionError::new(format!("{error}; conditions: {FORMS}")) }
                })?),
            },
        };
        Ok(Arc::new(Self { text: text.to_owned(), test }))
    }

    /// Returns the condition's source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the condition tests states rather than single events.
    pub fn needs_state(&self) -> bool {
        matches!(self.test, Test::State(_))
    }

    pub(super) fn holds(&self, state: &State) -> bool {
        match &self.test {
            // A slice without a JSON form meets no predicate.
            Test::State(predicate) => predicate.holds(state).unwrap_or(false),
            _ => false,
        }
    }

    /// Returns true if an event meets the condition; false for conditions over states.
    pub fn is_met(&self, session: &Session, event: &EventRef<'_>) -> bool {
        match &self.test {
            Test::Path(glob) => path_of(event).is_some_and(|path| glob.fits(&path)),
            Test::Kind(kind) => event.kind.to_lowercase() == *kind,
            Test::Agent(agent) => event.agent == agent,
            Test::Tool(tool) => event.decoded::<CallStarted>().is_some_and(|call| call.tool == *tool),
            Test::Failed => has_failed(event),
            Test::Text(search) => search.is_met(session, event),
            Test::State(_) => false,
        }
    }
}

/// Returns true if an event changes the entry at a path, an entry below it, or a parent of it.
pub fn touches(event: &EventRef<'_>, path: &EntryPath) -> bool {
    path_of(event).is_some_and(|changed| {
        // A removal also removes everything below, and so does a file that replaces a directory.
        changed == *path || changed.is_below(path) || path.is_below(&changed) && !makes_directory(event)
    })
}

fn makes_directory(event: &EventRef<'_>) -> bool {
    event.decoded::<WriteFile>().is_some_and(|write| write.node.is_directory())
}
