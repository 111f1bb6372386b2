//! Searches through a history.

use std::sync::Arc;

use foldspace::event::EventRef;
use foldspace::{EntryPath, Replay, Seq, State};

use super::{
    Brief, CHUNK, Direction, Failure, Leash, Reached, Rows, SearchQuery, SessionHistory, StopCondition, touches,
};

#[derive(Clone)]
pub(crate) struct Seek {
    pub(crate) from: Seq,
    pub(crate) way: Direction,
    pub(crate) wanted: SeekTarget,
}

#[derive(Clone)]
pub(crate) enum SeekTarget {
    Row(Rows, fn(&Brief) -> bool),
    Search(Arc<SearchQuery>, Rows),
    Change(EntryPath),
    Any(Vec<Arc<StopCondition>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) seq: Seq,
    pub(crate) because: String,
}

impl Seek {
    pub(crate) fn run(&self, past: &SessionHistory, leash: &Leash) -> Result<Option<Sought>, Failure> {
        match &self.wanted {
            SeekTarget::Row(rows, wanted) => {
                let reached = rows.next(past, self.from, self.way, Some(leash), *wanted)?;
                Ok(match reached {
                    Reached::Row(seq) => Some(Sought { seq, because: String::new() }),
                    Reached::End | Reached::TooFar => None,
                })
            }
            SeekTarget::Search(search, rows) => self.by_event(past, leash, &|event| {
                (rows.lists(event.seq, event.call) && search.is_met(past, event)).then(String::new)
            }),
            SeekTarget::Change(path) => self.by_event(past, leash, &|event| touches(event, path).then(String::new)),
            SeekTarget::Any(conditions) if conditions.iter().any(|condition| condition.needs_state()) => {
                self.by_state(past, leash, conditions)
            }
            SeekTarget::Any(conditions) => self.by_event(past, leash, &|event| met(past, conditions, event)),
        }
    }

    fn by_event(
        &self,
        past: &SessionHistory,
        leash: &Leash,
        is_met: &dyn Fn(&EventRef<'_>) -> Option<String>,
    ) -> Result<Option<Sought>, Failure> {
        let mut found = None;
        if self.way == Direction::Forward {
            past.visit(self.from + 1, past.head(), &mut |event| {
                found = is_met(event).map(|because| Sought { seq: event.seq, because });
                found.is_none() && leash.at(event.seq)
            })?;
            return Ok(found);
        }
        let mut until = self.from.saturating_sub(1);
        while until > 0 && found.is_none() && leash.at(until) {
            let from = until.saturating_sub(CHUNK) + 1;
            past.visit(from, until, &mut |event| {
                if let Some(because) = is_met(event) {
                    found = Some(Sought { seq: event.seq, because });
                }
                true
            })?;
            until = from - 1;
        }
        Ok(found)
    }

    fn by_state(
        &self,
        past: &SessionHistory,
        leash: &Leash,
        conditions: &[Arc<StopCondition>],
    ) -> Result<Option<Sought>, Failure> {
        if self.way == Direction::Forward {
            return Pass::begin(past, self.from, conditions)?.next(past.head(), leash);
        }
        // Each stretch is twice as long as the one after it: what has to be folded before it is not folded too often.
        let (mut until, mut length) = (self.from.saturating_sub(1), CHUNK);
        while until > 0 && !leash.is_cancelled() {
            let before = until.saturating_sub(length);
            length = length.saturating_mul(2);
            let (mut pass, mut last) = (Pass::begin(past, before, conditions)?, None);
            while let Some(sought) = pass.next(until, leash)? {
                last = Some(sought);
            }
            if last.is_some() {
                return Ok(last);
            }
            until = before;
        }
        Ok(None)
    }
}

fn met(past: &SessionHistory, conditions: &[Arc<StopCondition>], event: &EventRef<'_>) -> Option<String> {
    conditions.iter().find(|condition| condition.is_met(past, event)).map(|condition| condition.text().to_owned())
}

/// A pass over states; a condition is met at its transition to true.
struct Pass<'a> {
    past: &'a SessionHistory,
    replay: Replay,
    conditions: &'a [Arc<StopCondition>],
    held: Vec<bool>,
}

impl<'a> Pass<'a> {
    fn begin(past: &'a SessionHistory, after: Seq, conditions: &'a [Arc<StopCondition>]) -> Result<Self, Failure> {
        let replay = past.replay(after)?;
        let held = holding(conditions, replay.state());
        Ok(Self { past, replay, conditions, held })
    }

    fn next(&mut self, until: Seq, leash: &Leash) -> Result<Option<Sought>, Failure> {
        while self.replay.position() < until && leash.at(self.replay.position()) {
            let Some(event) = self.replay.step()? else { break };
            let holds = holding(self.conditions, self.replay.state());
            let changed = holds.iter().zip(&self.held).position(|(now, before)| *now && !*before);
            let because = match changed.and_then(|at| self.conditions.get(at)) {
                Some(condition) => Some(condition.text().to_owned()),
                None => met(self.past, self.conditions, &event.view()),
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
