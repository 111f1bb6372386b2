//! Conditions: where a run stops.

use std::sync::Arc;

use foldspace::event::{CallStarted, EventRef, Node, WriteFile};
use foldspace::session::nearest;
use foldspace::tools::{PathGlob, Predicate};
use foldspace::view;
use foldspace::{EntryPath, Registry, State};

use super::{Failure, SearchQuery, SessionHistory};
use crate::terminal::events;

pub(crate) struct StopCondition {
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
    pub(crate) fn read(text: &str) -> Result<Arc<Self>, Failure> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()));
        let named = |what: &str| match rest {
            "" => Err(Failure::usage(format!("say which {what}: {word} NAME"))),
            rest => Ok(rest.to_owned()),
        };
        let test = match word {
            "" => return Err(Failure::usage(format!("a condition is one of: {FORMS}"))),
            "path" => {
                Test::Path(PathGlob::new(&named("path")?).map_err(|error| Failure::pattern("glob", error.kind()))?)
            }
            "kind" => Test::Kind(named("kind")?.to_lowercase()),
            "agent" => Test::Agent(named("agent")?),
            "tool" => Test::Tool(named("tool")?),
            "failed" if rest.is_empty() => Test::Failed,
            _ => match text.strip_prefix('/').and_then(|text| text.strip_suffix('/')) {
                Some(pattern) => Test::Text(SearchQuery::read(pattern)?),
                None => {
                    let predicate = Predicate::parse(text, &Registry::standard());
                    let meant = nearest(word, ["path", "kind", "agent", "tool", "failed"]);
                    let wrong = |error| {
                        let failure = Failure::usage(format!("{error}; conditions: {FORMS}"));
                        match meant {
                            Some(meant) => failure.with_hint(format!("did you mean {meant}?")),
                            None => failure,
                        }
                    };
                    Test::State(predicate.map_err(wrong)?)
                }
            },
        };
        Ok(Arc::new(Self { text: text.to_owned(), test }))
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn needs_state(&self) -> bool {
        matches!(self.test, Test::State(_))
    }

    pub(crate) fn holds(&self, state: &State) -> bool {
        match &self.test {
            // A slice without a JSON form holds nothing.
            Test::State(predicate) => predicate.holds(state).unwrap_or(false),
            _ => false,
        }
    }

    pub(crate) fn is_met(&self, past: &SessionHistory, event: &EventRef<'_>) -> bool {
        match &self.test {
            Test::Path(glob) => view::path_of(event).is_some_and(|path| glob.fits(&path)),
            Test::Kind(kind) => event.kind.to_lowercase() == *kind,
            Test::Agent(agent) => event.agent == agent,
            Test::Tool(tool) => {
                event.typed::<CallStarted>().and_then(Result::ok).is_some_and(|call| call.event.tool == *tool)
            }
            Test::Failed => events::failed(event),
            Test::Text(search) => search.is_met(past, event),
            Test::State(_) => false,
        }
    }
}

pub(crate) fn touches(event: &EventRef<'_>, path: &EntryPath) -> bool {
    view::path_of(event).is_some_and(|changed| {
        // A removal takes what is below with it, and so does what takes a directory's place.
        changed == *path || changed.is_below(path) || path.is_below(&changed) && !makes_directory(event)
    })
}

fn makes_directory(event: &EventRef<'_>) -> bool {
    let write = event.typed::<WriteFile>().and_then(Result::ok);
    write.is_some_and(|write| write.event.node == Node::Directory)
}
