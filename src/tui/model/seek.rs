//! Searches through a history.

use std::sync::Arc;

use foldspace::event::EventRef;
use foldspace::{EntryPath, Replay, Seq, State};

use super::{
    Brief, CHUNK, Direction, Leash, Reach, Reached, Rows, SearchQuery, SessionHistory, StopCondition, ViewError,
    touches,
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
    Search(Arc<SearchQuery>),
    Change(EntryPath),
    Any(Vec<Arc<StopCondition>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) seq: Seq,
    pub(crate) because: String,
}

impl Seek {
    pub(crate) fn run(&self, past: &SessionHistory, leash: &Leash) -> Result<Option<Sought>, ViewError> {
        match &self.wanted {
            SeekTarget::Row(rows, wanted) => {
                let reached = rows.next(past, self.from, self.way, Reach::Far(leash), *wanted)?;
                Ok(match reached {
                    Reached::Row(seq) => Some(Sought { seq, because: String::new() }),
                    Reached::End | Reached::TooFar => None,
                })
            }
            SeekTarget::Search(search) => {
                self.by_event(past, leash, &|event| search.is_met(past, event).then(String::new))
            }
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
    ) -> Result<Option<Sought>, ViewError> {
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
    ) -> Result<Option<Sought>, ViewError> {
        if self.way == Direction::Forward {
            let mut pass = Pass::begin(past, self.from, conditions)?;
            while leash.at(pass.replay.position()) {
                match pass.step()? {
                    SeekStep::Met(sought) => return Ok(Some(sought)),
                    SeekStep::Unmet => {}
                    SeekStep::End => return Ok(None),
                }
            }
            return Ok(None);
        }
        // Each stretch is twice as long as the one after it: what has to be folded before it is not folded too often.
        let (mut until, mut length) = (self.from.saturating_sub(1), CHUNK);
        while until > 0 && leash.at(until) {
            let before = until.saturating_sub(length);
            length = length.saturating_mul(2);
            let mut pass = Pass::begin(past, before, conditions)?;
            let mut last = None;
            while pass.replay.position() < until && !leash.is_cancelled() {
                match pass.step()? {
                    SeekStep::Met(sought) => last = Some(sought),
                    SeekStep::Unmet => {}
                    SeekStep::End => break,
                }
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

enum SeekStep {
    Met(Sought),
    Unmet,
    End,
}

impl<'a> Pass<'a> {
    fn begin(past: &'a SessionHistory, after: Seq, conditions: &'a [Arc<StopCondition>]) -> Result<Self, ViewError> {
        let replay = past.replay(after)?;
        let held = holding(conditions, replay.state());
        Ok(Self { past, replay, conditions, held })
    }

    fn step(&mut self) -> Result<SeekStep, ViewError> {
        let Some(event) = self.replay.step()? else { return Ok(SeekStep::End) };
        let holds = holding(self.conditions, self.replay.state());
        let came =
            self.conditions.iter().zip(holds.iter().zip(&self.held)).find(|(_, (now, before))| **now && !**before);
        let because = match came {
            Some((condition, _)) => Some(condition.text().to_owned()),
            None => met(self.past, self.conditions, &event.view()),
        };
        self.held = holds;
        Ok(because.map_or(SeekStep::Unmet, |because| SeekStep::Met(Sought { seq: event.seq, because })))
    }
}

fn holding(conditions: &[Arc<StopCondition>], state: &State) -> Vec<bool> {
    conditions.iter().map(|condition| condition.holds(state)).collect()
}
