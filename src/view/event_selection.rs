//! The events that a reader asks for: by kind, agent, tool and path.

use std::collections::BTreeMap;

use crate::engine::error::ValueError;
use crate::engine::event::{CallStarted, Event, started_tool};
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::tools::PathGlob;
use crate::view::path_of;

/// Limit for the calls whose tools are remembered.
const CALLS: usize = 10_000;

/// A selection of events; an omitted part selects all.
#[derive(Debug, Default)]
pub struct EventSelection {
    kinds: Vec<String>,
    agent: Option<String>,
    tool: Option<String>,
    path: Option<PathGlob>,
    /// By call: true if it is a call of the tool.
    calls: BTreeMap<Seq, bool>,
}

impl EventSelection {
    /// Reads a selection: kinds with commas between them, an agent, a tool whose calls' events are meant, and a glob for
    /// the paths of changed entries. Fails with [`ValueError`] for an invalid glob.
    pub fn new(
        kinds: Option<&str>,
        agent: Option<String>,
        tool: Option<String>,
        path: Option<&str>,
    ) -> Result<Self, ValueError> {
        let kinds = kinds.unwrap_or_default().split(',').map(str::trim).filter(|kind| !kind.is_empty());
        let path = path.map(PathGlob::new).transpose();
        let path = path.map_err(|error| ValueError::new(format!("path: {error}")))?;
        Ok(Self { kinds: kinds.map(str::to_lowercase).collect(), agent, tool, path, calls: BTreeMap::new() })
    }

    /// Returns true if it selects all events.
    pub fn is_all(&self) -> bool {
        self.kinds.is_empty() && self.agent.is_none() && self.tool.is_none() && self.path.is_none()
    }

    /// Returns true if an event is selected.
    pub fn holds(&mut self, session: &Session, event: &EventRef<'_>) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&event.kind.to_lowercase()))
            && self.agent.as_ref().is_none_or(|agent| *agent == event.agent)
            && self.path.as_ref().is_none_or(|glob| path_of(event).is_some_and(|path| glob.fits(&path)))
            && self.is_of_tool(session, event)
    }

    fn is_of_tool(&mut self, session: &Session, event: &EventRef<'_>) -> bool {
        let (Some(tool), Some(call)) = (&self.tool, event.call) else { return self.tool.is_none() };
        if let Some(known) = self.calls.get(&call) {
            return *known;
        }
        let begun = session.event(call).ok();
        let begun = begun.as_ref().filter(|begun| *begun.event.kind == *CallStarted::KIND);
        let is_of = begun.is_some_and(|begun| {
            started_tool(begun.event.version, &begun.event.bytes).is_ok_and(|called| called == tool.as_str())
        });
        if self.calls.len() >= CALLS {
            self.calls.pop_first();
        }
        self.calls.insert(call, is_of);
        is_of
    }
}
