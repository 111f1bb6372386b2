//! A read-only history with caches.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldspace::event::{CallFinished, CallStarted, ChildStarted, Digest, EventRef, RunPrompted, TranscriptRecord};
use foldspace::reducers::Change;
use foldspace::tools::MessageRole;
use foldspace::view::{
    self, Conversation, EventTest, HistoryRun, Position, RunMessage, SearchQuery, Sought, StopCondition,
};
use foldspace::{Event, Recorded, Seq, Session, SessionId, Sessions, State};
use quick_cache::sync::Cache;
use serde_json::Value;

use super::{Direction, Failure, Leash, Tone};
use crate::terminal::{events, text};

pub(crate) const CHUNK: u64 = 256;
const CHUNKS: usize = 512;
const GISTS: usize = 4096;
/// Chunks to search for the outcome of a listed call.
const NEAR_END: u64 = 4;
/// Maximum characters of a call's summary.
const CALL_MAX: usize = 160;

/// Returns the calls of a session that run.
pub(crate) type FindRunning = Arc<dyn Fn(&Session) -> BTreeSet<Seq> + Send + Sync>;

/// A session's history, read-only: it can't record and reaches no workspace. Only a bounded part of it is in memory.
pub(crate) struct SessionHistory {
    session: Session,
    sessions: Sessions,
    head: AtomicU64,
    find_running: FindRunning,
    running: Mutex<BTreeSet<Seq>>,
    chunks: Cache<u64, Arc<[Brief]>>,
    gists: Cache<Seq, Arc<Gist>>,
    ends: Cache<Seq, CallEnd>,
    /// The last event with entries that was searched, and the last one of its entries that is known.
    entries: Mutex<(Seq, Seq)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Brief {
    pub(crate) seq: Seq,
    pub(crate) kind: Arc<str>,
    pub(crate) agent: Arc<str>,
    pub(crate) call: Option<Seq>,
    /// The call of an event, or the event whose entry it is.
    of: Option<Seq>,
}

impl Brief {
    pub(crate) fn is_any(&self) -> bool {
        true
    }

    pub(crate) fn is_call(&self) -> bool {
        &*self.kind == CallStarted::KIND
    }

    pub(crate) fn is_child(&self) -> bool {
        &*self.kind == ChildStarted::KIND
    }

    /// Returns true for a prompt, a message or another record of a conversation.
    pub(crate) fn is_conversation(&self) -> bool {
        matches!(&*self.kind, RunPrompted::KIND | TranscriptRecord::KIND)
    }

    /// Returns true for a row that hides others while it is folded.
    pub(crate) fn folds(&self) -> bool {
        self.is_call() || events::has_entries(&self.kind)
    }

    pub(crate) fn inner_of(&self) -> Option<Seq> {
        self.of.filter(|row| *row != self.seq)
    }
}

/// Effect of a tool, judged by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolSort {
    Read,
    Write,
    Command,
    Other,
}

impl ToolSort {
    pub(crate) fn of(tool: &str) -> Self {
        match tool {
            "read_file" | "ls" | "glob" | "grep" => Self::Read,
            "write_file" | "edit_file" | "rm" => Self::Write,
            "shell_execute" | "execute_script" | "podman_shell" | "evaluate_python" | "process_start" => Self::Command,
            _ => Self::Other,
        }
    }

    pub(crate) fn of_event(event: &EventRef<'_>) -> Self {
        let call = event.typed::<CallStarted>().and_then(Result::ok);
        call.map_or(Self::Other, |call| Self::of(&call.event.tool))
    }
}

#[derive(Debug)]
pub(crate) struct Gist {
    /// The author of a message.
    pub(crate) role: Option<&'static str>,
    pub(crate) text: String,
    pub(crate) tone: Tone,
    pub(crate) sort: ToolSort,
    pub(crate) child: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct CallEnd {
    pub(crate) last: Seq,
    pub(crate) outcome: Option<PastOutcome>,
    pub(crate) is_known: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct PastOutcome {
    pub(crate) ending: String,
    pub(crate) micros: u64,
    pub(crate) tone: Tone,
}

impl PastOutcome {
    fn of(CallFinished { status, result, micros, .. }: &CallFinished) -> Self {
        let (ending, tone) = (events::ending(*status, result), events::ending_tone(*status, result));
        Self { ending, micros: *micros, tone }
    }
}

impl SessionHistory {
    pub(crate) fn new(sessions: &Sessions, session: &Session, find_running: FindRunning) -> Result<Self, Failure> {
        Ok(Self {
            head: AtomicU64::new(session.head()?),
            session: session.clone(),
            sessions: sessions.clone(),
            running: Mutex::new(find_running(session)),
            find_running,
            chunks: Cache::new(CHUNKS),
            gists: Cache::new(GISTS),
            ends: Cache::new(GISTS),
            entries: Mutex::default(),
        })
    }

    pub(crate) fn sibling(&self, name: &str) -> Result<Self, Failure> {
        let entry = self.sessions.find(name)?;
        Self::new(&self.sessions, &self.sessions.session(entry.id)?, Arc::clone(&self.find_running))
    }

    pub(crate) fn name(&self) -> &str {
        self.session.name()
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.id()
    }

    pub(crate) fn head(&self) -> Seq {
        self.head.load(Ordering::Relaxed)
    }

    pub(crate) fn refresh(&self) -> Result<Seq, Failure> {
        let head = self.session.head()?;
        let mut running = self.running();
        if self.head.swap(head, Ordering::Relaxed) != head || !running.is_empty() {
            *running = (self.find_running)(&self.session);
        }
        Ok(head)
    }

    pub(crate) fn position(&self, text: &str) -> Result<Seq, Failure> {
        self.refresh()?;
        Ok(text.parse::<Position>()?.event(&self.session)?)
    }

    /// Resolves a position to the end of its call or commit.
    pub(crate) fn state_position(&self, position: &Position) -> Result<Seq, Failure> {
        self.refresh()?;
        Ok(position.resolve(&self.session)?)
    }

    pub(crate) fn state(&self, seq: Seq, leash: &Leash) -> Result<State, Failure> {
        leash.holds()?;
        Ok(self.session.state_at(seq)?)
    }

    pub(crate) fn event(&self, seq: Seq) -> Result<Recorded, Failure> {
        Ok(self.session.event(seq)?)
    }

    pub(crate) fn condition(&self, text: &str) -> Result<Arc<StopCondition>, Failure> {
        Ok(StopCondition::read(text, &self.session.state_at(self.refresh()?)?)?)
    }

    pub(crate) fn meets(&self, condition: &StopCondition, event: &EventRef<'_>) -> bool {
        condition.is_met(&self.session, event)
    }

    pub(crate) fn matches(&self, search: &SearchQuery, event: &EventRef<'_>) -> bool {
        search.is_met(&self.session, event)
    }

    pub(crate) fn next_event(
        &self,
        from: (Seq, Direction),
        leash: &Leash,
        is_met: EventTest<'_>,
    ) -> Result<Option<Sought>, Failure> {
        Ok(self.run_from(from, &|seq| leash.at(seq)).to_event(is_met)?)
    }

    pub(crate) fn next_stop(
        &self,
        from: (Seq, Direction),
        leash: &Leash,
        conditions: &[Arc<StopCondition>],
    ) -> Result<Option<Sought>, Failure> {
        Ok(self.run_from(from, &|seq| leash.at(seq)).to_stop(conditions)?)
    }

    fn run_from<'a>(&'a self, (from, way): (Seq, Direction), goes_on: &'a dyn Fn(Seq) -> bool) -> HistoryRun<'a> {
        let end = if way == Direction::Forward { self.head() } else { 1 };
        HistoryRun { session: &self.session, from, end, goes_on }
    }

    pub(crate) fn visit(
        &self,
        from: Seq,
        until: Seq,
        visit: &mut dyn FnMut(&EventRef<'_>) -> bool,
    ) -> Result<(), Failure> {
        Ok(self.session.visit_between(from, until, &mut |event| match visit(event) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })?)
    }

    pub(crate) fn content(&self, digest: &Digest) -> Result<bytes::Bytes, Failure> {
        Ok(self.session.content(digest)?)
    }

    pub(crate) fn json(&self, event: &EventRef<'_>) -> Value {
        view::whole(&self.session, &self.session.event_json(event))
    }

    pub(crate) fn plain_json(&self, event: &EventRef<'_>) -> Value {
        self.session.event_json(event)
    }

    pub(crate) fn patch(&self, change: &Change) -> Result<String, Failure> {
        Ok(view::change(&self.session, change)?.patch)
    }

    pub(crate) fn brief(&self, seq: Seq) -> Result<Option<Brief>, Failure> {
        if seq == 0 || seq > self.head() {
            return Ok(None);
        }
        let chunk = self.chunk((seq - 1) / CHUNK)?;
        Ok(usize::try_from((seq - 1) % CHUNK).ok().and_then(|at| chunk.get(at).cloned()))
    }

    pub(crate) fn chunk(&self, number: u64) -> Result<Arc<[Brief]>, Failure> {
        let from = number * CHUNK + 1;
        let until = (from + CHUNK - 1).min(self.head());
        let length = (until + 1).saturating_sub(from);
        if let Some(known) = self.chunks.get(&number).filter(|known| known.len() as u64 >= length) {
            return Ok(known);
        }
        let mut briefs: Vec<Brief> = Vec::new();
        let mut list = self.list_before(from)?;
        self.visit(from, until, &mut |event| {
            if !events::is_entry(event) {
                list = events::has_entries(event.kind).then_some(event.seq);
            }
            let (kind, agent) = match briefs.last() {
                Some(last) => (shared(&last.kind, event.kind), shared(&last.agent, event.agent)),
                None => (Arc::from(event.kind), Arc::from(event.agent)),
            };
            briefs.push(Brief { seq: event.seq, kind, agent, call: event.call, of: event.call.or(list) });
            true
        })?;
        let chunk: Arc<[Brief]> = briefs.into();
        self.chunks.insert(number, Arc::clone(&chunk));
        Ok(chunk)
    }

    /// Returns the event to which an entry at `seq` would belong.
    fn list_before(&self, seq: Seq) -> Result<Option<Seq>, Failure> {
        let (mut until, mut span) = (seq - 1, 1);
        let mut found = None;
        while until > 0 && found.is_none() {
            let (list, last) = *self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if (list..=last).contains(&until) {
                found = Some((list, true));
                break;
            }
            let from = (until + 1).saturating_sub(span).max(1);
            self.visit(from, until, &mut |event| {
                let other = (!events::is_entry(event)).then(|| (event.seq, events::has_entries(event.kind)));
                found = other.or(found);
                true
            })?;
            (until, span) = (from - 1, CHUNK);
        }
        let list = found.and_then(|(list, has_entries)| has_entries.then_some(list));
        if let Some(list) = list {
            *self.entries.lock().unwrap_or_else(PoisonError::into_inner) = (list, seq - 1);
        }
        Ok(list)
    }

    /// Returns the messages in an event, with their claims.
    pub(crate) fn messages(&self, event: &EventRef<'_>) -> Result<Vec<RunMessage>, Failure> {
        if view::messages(&self.session, event, false).is_empty() {
            return Ok(Vec::new());
        }
        Ok(Conversation::from(&self.session, event.seq, true)?.take(&self.session, event))
    }

    pub(crate) fn gist(&self, seq: Seq) -> Result<Arc<Gist>, Failure> {
        if let Some(known) = self.gists.get(&seq) {
            return Ok(known);
        }
        let event = self.event(seq)?;
        let event_view = event.view();
        let child = (event_view.kind == ChildStarted::KIND).then(|| {
            let value = self.session.event_json(&event_view);
            let name = value.get("name").or_else(|| value.get("child")).and_then(Value::as_str);
            name.unwrap_or("child").to_owned()
        });
        let call = event.typed::<CallStarted>().and_then(Result::ok).map(|call| call.event);
        let message = view::messages(&self.session, &event_view, false).into_iter().next();
        let claim = match message.as_ref().and_then(|message| view::claim_in(&message.text)) {
            Some(_) => self.messages(&event_view)?.into_iter().find_map(|message| message.claim),
            None => None,
        };
        let (text, sort) = match (&call, &message) {
            (Some(call), _) => (events::call_gist(&self.session, call, CALL_MAX), ToolSort::of(&call.tool)),
            (None, Some(message)) => {
                let claim = claim.as_ref().map(|claim| format!("[claim after {}] ", claim.ended));
                (claim.unwrap_or_default() + &text::one_line(&message.text, CALL_MAX), ToolSort::Other)
            }
            (None, None) => (events::gist(&self.session, &event_view), ToolSort::Other),
        };
        let tone = match &message {
            _ if view::has_failed(&event_view) || claim.is_some() => Tone::Bad,
            Some(message) if message.role == MessageRole::User => Tone::Bold,
            Some(message) if message.role == MessageRole::Assistant => Tone::Plain,
            _ => events::tone_of(event_view.kind),
        };
        let role = message.map(|message| message.role.word());
        let gist = Arc::new(Gist { role, text, tone, sort, child });
        self.gists.insert(seq, Arc::clone(&gist));
        Ok(gist)
    }

    pub(crate) fn gist_of(&self, event: &EventRef<'_>) -> String {
        events::gist(&self.session, event)
    }

    pub(crate) fn end_of(&self, call: Seq, leash: &Leash) -> Result<CallEnd, Failure> {
        self.end_within(call, u64::MAX, leash)
    }

    pub(crate) fn end_near(&self, call: Seq) -> Result<CallEnd, Failure> {
        self.end_within(call, NEAR_END, &Leash::default())
    }

    fn end_within(&self, call: Seq, chunks: u64, leash: &Leash) -> Result<CallEnd, Failure> {
        if let Some(known) = self.ends.get(&call) {
            return Ok(known);
        }
        let (first, last) = (call.saturating_sub(1) / CHUNK, self.head().saturating_sub(1) / CHUNK);
        let until = last.min(first.saturating_add(chunks));
        let is_call = self.brief(call)?.is_some_and(|brief| brief.is_call());
        let mut end = CallEnd { last: call, outcome: None, is_known: until == last };
        for number in first..=until {
            leash.holds()?;
            for brief in self.chunk(number)?.iter().filter(|brief| brief.seq >= call) {
                if brief.of != Some(call) {
                    if is_call {
                        continue;
                    }
                    end.is_known = true;
                    self.ends.insert(call, end.clone());
                    return Ok(end);
                }
                end.last = brief.seq;
                if &*brief.kind == CallFinished::KIND {
                    let known = self.event(brief.seq)?.typed::<CallFinished>().and_then(Result::ok);
                    (end.outcome, end.is_known) = (known.map(|known| PastOutcome::of(&known.event)), true);
                    self.ends.insert(call, end.clone());
                    return Ok(end);
                }
            }
        }
        Ok(end)
    }

    pub(crate) fn unfinished(&self, call: Seq) -> &'static str {
        if self.is_running(call) { "running" } else { "interrupted" }
    }

    pub(crate) fn is_running(&self, call: Seq) -> bool {
        self.running().contains(&call)
    }

    fn running(&self) -> MutexGuard<'_, BTreeSet<Seq>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shared(known: &Arc<str>, text: &str) -> Arc<str> {
    if **known == *text { Arc::clone(known) } else { Arc::from(text) }
}
