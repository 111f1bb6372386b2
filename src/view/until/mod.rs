//! Runs through a history to the next event or state that meets a condition.

mod condition;
mod error;
mod search_query;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use condition::{StopCondition, touches};
pub use error::ConditionError;
pub use search_query::SearchQuery;

use crate::engine::backward::backward_spans;
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::replay::Replay;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;

/// Events to read at once while a run goes backward.
const STRETCH: u64 = 256;

/// A run through a session's history: forward from after `from` to `end`, or backward from before `from` to `end`.
pub struct HistoryRun<'a> {
    /// The session, which is only read.
    pub session: &'a Session,
    /// The position where it starts, exclusive.
    pub from: Seq,
    /// The last position to test.
    pub end: Seq,
    /// Receives the run's position; returns true to continue.
    pub goes_on: &'a dyn Fn(Seq) -> bool,
}

/// The place where a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// The position.
    pub seq: Seq,
    /// The condition that was met; may be empty.
    pub because: String,
}

/// A test of an event; it returns the reason if the event meets it.
pub type EventTest<'a> = &'a dyn Fn(&EventRef<'_>) -> Option<String>;

impl HistoryRun<'_> {
    /// Finds the next event that meets one of the conditions, or makes a condition over states true.
    pub fn to_stop(&self, conditions: &[Arc<StopCondition>]) -> Result<Option<Sought>, SessionError> {
        match conditions.iter().any(|condition| condition.needs_state()) {
            true => self.by_state(conditions),
            false => self.to_event(&|event| met(self.session, conditions, event)),
        }
    }

    /// Finds the next event that meets a test.
    pub fn to_event(&self, is_met: EventTest<'_>) -> Result<Option<Sought>, SessionError> {
        let mut found = None;
        if self.from < self.end {
            self.session.visit_between(self.from + 1, self.end, &mut |event| {
                found = is_met(event).map(|because| Sought { seq: event.seq, because });
                let goes_on = found.is_none() && (self.goes_on)(event.seq);
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            return Ok(found);
        }
        for (from, until) in backward_spans((self.end.max(1), self.from.saturating_sub(1)), STRETCH, 1) {
            if found.is_some() || !(self.goes_on)(until) {
                break;
            }
            self.session.visit_between(from, until, &mut |event| {
                if let Some(because) = is_met(event) {
                    found = Some(Sought { seq: event.seq, because });
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(found)
    }

    fn by_state(&self, conditions: &[Arc<StopCondition>]) -> Result<Option<Sought>, SessionError> {
        if self.from < self.end {
            return StatePass::begin(self, self.from, conditions)?.next(self.end);
        }
        // Each stretch is twice as long as the last one, so that earlier events are not folded too often.
        for (from, until) in backward_spans((self.end.max(1), self.from.saturating_sub(1)), STRETCH, 2) {
            if from > until || !(self.goes_on)(until) {
                break;
            }
            let (mut pass, mut last) = (StatePass::begin(self, from - 1, conditions)?, None);
            while let Some(sought) = pass.next(until)? {
                last = Some(sought);
            }
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }
}

fn met(session: &Session, conditions: &[Arc<StopCondition>], event: &EventRef<'_>) -> Option<String> {
    conditions.iter().find(|condition| condition.is_met(session, event)).map(|condition| condition.text().to_owned())
}

/// A pass over states; a condition is met at its transition to true.
struct StatePass<'a> {
    run: &'a HistoryRun<'a>,
    replay: Replay,
    conditions: &'a [Arc<StopCondition>],
    held: Vec<bool>,
}

impl<'a> StatePass<'a> {
    fn begin(run: &'a HistoryRun<'a>, after: Seq, conditions: &'a [Arc<StopCondition>]) -> Result<Self, SessionError> {
        let mut replay = Replay::at_start(run.session)?;
        replay.jump(after)?;
        let held = holding(conditions, replay.state());
        Ok(Self { run, replay, conditions, held })
    }

    fn next(&mut self, until: Seq) -> Result<Option<Sought>, SessionError> {
        while self.replay.position() < until && (self.run.goes_on)(self.replay.position()) {
            let Some(event) = self.replay.step()? else { break };
            let holds = holding(self.conditions, self.replay.state());
            let changed = holds.iter().zip(&self.held).position(|(now, before)| *now && !*before);
            let because = match changed.and_then(|at| self.conditions.get(at)) {
                Some(condition) => Some(condition.text().to_owned()),
                None => met(self.run.session, self.conditions, &event.view()),
            };
            self.held = holds;
            if let Some(because) = because {
                return Ok(Some(Sought { seq: event.seq, because }));
            }
        }
        Ok(None)
    }
}

fn holding(conditions: &[Arc<StopCondition>], state: &State) -> Vec<bool> {
    conditions.iter().map(|condition| condition.holds(state)).collect()
}
