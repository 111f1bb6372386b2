//! A history that can only be looked at, and what was read of it lately.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldspace::{
    CallFinished, CallStarted, CallStatus, Change, Digest, Event, EventRef, Recorded, Replay, Seq, Session, SessionId,
    Sessions, State,
};
use quick_cache::sync::Cache;
use serde_json::Value;

use super::Trouble;
use super::sheet::Tone;
use crate::cli::{calls, diffs, events};

/// Events that are read together.
pub(crate) const CHUNK: u64 = 256;
/// Chunks that are kept; together some megabytes.
const CHUNKS: usize = 512;
/// Gists that are kept.
const GISTS: usize = 4096;
/// The kind by which a parent's history tells of a child.
const CHILD: &str = "ChildStarted";

/// A session's history, read-only: it gives no way to record, and none to a workspace.
///
/// However long the history is, only a bounded part of it is in memory.
pub(crate) struct Past {
    session: Session,
    sessions: Sessions,
    head: AtomicU64,
    shared: bool,
    chunks: Cache<u64, Arc<[Brief]>>,
    gists: Cache<Seq, Arc<Gist>>,
    ends: Cache<Seq, End>,
}

/// What is known of an event without reading what it says.
#[derive(Debug, Clone)]
pub(crate) struct Brief {
    pub(crate) seq: Seq,
    pub(crate) kind: Arc<str>,
    pub(crate) call: Option<Seq>,
    pub(crate) agent: Arc<str>,
}

impl Brief {
    /// Whether a call begins with it.
    pub(crate) fn is_call(&self) -> bool {
        &*self.kind == CallStarted::KIND
    }

    /// Whether a child came into being with it.
    pub(crate) fn is_child(&self) -> bool {
        &*self.kind == CHILD
    }

    /// The call to which it belongs and which it does not begin.
    pub(crate) fn inner_of(&self) -> Option<Seq> {
        self.call.filter(|call| *call != self.seq)
    }
}

/// An event in one line.
#[derive(Debug)]
pub(crate) struct Gist {
    pub(crate) text: String,
    pub(crate) tone: Tone,
    /// The child that came into being with it.
    pub(crate) child: Option<String>,
}

/// How a call ended, as far as that is known.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// The last event of it that was seen.
    pub(crate) last: Seq,
    pub(crate) outcome: Option<(CallStatus, u64)>,
}

impl Past {
    /// The history of a session up to its present end. With `shared` another process may be adding to it.
    pub(crate) fn new(sessions: &Sessions, session: &Session, shared: bool) -> Result<Self, Trouble> {
        Ok(Self {
            head: AtomicU64::new(session.head()?),
            session: session.clone(),
            sessions: sessions.clone(),
            shared,
            chunks: Cache::new(CHUNKS),
            gists: Cache::new(GISTS),
            ends: Cache::new(GISTS),
        })
    }

    /// The history of another session of the same store.
    pub(crate) fn sibling(&self, name: &str) -> Result<Self, Trouble> {
        let entry = self.sessions.find(name)?;
        Self::new(&self.sessions, &self.sessions.session(entry.id)?, self.shared)
    }

    pub(crate) fn name(&self) -> &str {
        self.session.name()
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.id()
    }

    /// The position of the last event when it was last asked for.
    pub(crate) fn head(&self) -> Seq {
        self.head.load(Ordering::Relaxed)
    }

    /// Looks whether there are more events by now.
    pub(crate) fn refresh(&self) -> Result<Seq, Trouble> {
        let head = self.session.head()?;
        self.head.store(head, Ordering::Relaxed);
        Ok(head)
    }

    pub(crate) fn state(&self, seq: Seq) -> Result<State, Trouble> {
        Ok(self.session.state_at(seq)?)
    }

    pub(crate) fn event(&self, seq: Seq) -> Result<Recorded, Trouble> {
        Ok(self.session.event(seq)?)
    }

    /// A cursor with the state at a position.
    pub(crate) fn replay(&self, at: Seq) -> Result<Replay, Trouble> {
        let mut replay = Replay::at_start(&self.session)?;
        replay.jump(at.min(replay.head()))?;
        Ok(replay)
    }

    /// Shows events from one position to another, both included, until `visit` says that it is enough.
    pub(crate) fn visit(
        &self,
        from: Seq,
        until: Seq,
        visit: &mut dyn FnMut(&EventRef<'_>) -> bool,
    ) -> Result<(), Trouble> {
        if from > until {
            return Ok(());
        }
        self.session.visit(from, &mut |event| {
            let goes_on = event.seq <= until && visit(event) && event.seq < until;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(())
    }

    /// A content, of a long one the beginning.
    pub(crate) fn content(&self, digest: &Digest) -> Result<bytes::Bytes, Trouble> {
        Ok(self.session.content(digest)?)
    }

    /// The event as JSON, long texts in it as they were.
    pub(crate) fn json(&self, event: &EventRef<'_>) -> Value {
        calls::whole(&self.session, &self.session.event_json(event))
    }

    /// The event as JSON, long texts in it as marks.
    pub(crate) fn plain_json(&self, event: &EventRef<'_>) -> Value {
        self.session.event_json(event)
    }

    /// A change as patches.
    pub(crate) fn patches(&self, change: &Change) -> Result<Vec<diffs::Patch>, Trouble> {
        Ok(diffs::patches(&self.session, change)?)
    }

    /// What is known of the event at a position; none where there is none.
    pub(crate) fn brief(&self, seq: Seq) -> Result<Option<Brief>, Trouble> {
        if seq == 0 || seq > self.head() {
            return Ok(None);
        }
        let chunk = self.chunk((seq - 1) / CHUNK)?;
        Ok(usize::try_from((seq - 1) % CHUNK).ok().and_then(|at| chunk.get(at).cloned()))
    }

    /// A chunk of the history; the events of chunk `n` begin after position `n * CHUNK`.
    pub(crate) fn chunk(&self, number: u64) -> Result<Arc<[Brief]>, Trouble> {
        let from = number * CHUNK + 1;
        let until = (from + CHUNK - 1).min(self.head());
        let length = (until + 1).saturating_sub(from);
        if let Some(known) = self.chunks.get(&number).filter(|known| known.len() as u64 >= length) {
            return Ok(known);
        }
        let mut briefs: Vec<Brief> = Vec::new();
        self.visit(from, until, &mut |event| {
            let (kind, agent) = match briefs.last() {
                Some(last) => (shared(&last.kind, event.kind), shared(&last.agent, event.agent)),
                None => (Arc::from(event.kind), Arc::from(event.agent)),
            };
            briefs.push(Brief { seq: event.seq, kind, call: event.call, agent });
            true
        })?;
        let chunk: Arc<[Brief]> = briefs.into();
        self.chunks.insert(number, Arc::clone(&chunk));
        Ok(chunk)
    }

    /// An event in one line.
    pub(crate) fn gist(&self, seq: Seq) -> Result<Arc<Gist>, Trouble> {
        if let Some(known) = self.gists.get(&seq) {
            return Ok(known);
        }
        let event = self.event(seq)?;
        let view = event.view();
        let child = (view.kind == CHILD).then(|| {
            let value = self.session.event_json(&view);
            let name = value.get("name").or_else(|| value.get("child")).and_then(Value::as_str);
            name.unwrap_or("child").to_owned()
        });
        let gist = Gist { text: events::gist(&self.session, &view), tone: tone_of(view.kind), child };
        let gist = Arc::new(gist);
        self.gists.insert(seq, Arc::clone(&gist));
        Ok(gist)
    }

    /// The same of an event that is at hand.
    pub(crate) fn gist_of(&self, event: &EventRef<'_>) -> String {
        events::gist(&self.session, event)
    }

    /// How a call ended; nobody looks further than `chunks` for that.
    pub(crate) fn end_of(&self, call: Seq, chunks: u64) -> Result<End, Trouble> {
        if let Some(known) = self.ends.get(&call) {
            return Ok(known);
        }
        let mut end = End { last: call, outcome: None };
        let (first, last) = (call.saturating_sub(1) / CHUNK, self.head().saturating_sub(1) / CHUNK);
        for number in first..=last.min(first.saturating_add(chunks)) {
            for brief in self.chunk(number)?.iter().filter(|brief| brief.call == Some(call)) {
                end.last = brief.seq;
                if &*brief.kind != CallFinished::KIND {
                    continue;
                }
                let finished = self.event(brief.seq)?.typed::<CallFinished>().and_then(Result::ok);
                end.outcome = finished.map(|finished| (finished.event.status, finished.event.micros));
                self.ends.insert(call, end.clone());
                return Ok(end);
            }
        }
        Ok(end)
    }

    /// How a call without an outcome stands.
    pub(crate) fn unfinished(&self) -> &'static str {
        if self.shared { "running" } else { "interrupted" }
    }
}

fn shared(known: &Arc<str>, text: &str) -> Arc<str> {
    if **known == *text { Arc::clone(known) } else { Arc::from(text) }
}

fn tone_of(kind: &str) -> Tone {
    match kind {
        "WriteFile" => Tone::Good,
        "DeleteEntry" => Tone::Bad,
        "CallStarted" | "CommandResult" | "EvalResult" => Tone::Noted,
        "CallFinished" | "WorkspaceTouched" | "CommandDecided" => Tone::Dim,
        "SessionStarted" | "MountHydrated" | "DriftFound" | CHILD => Tone::Odd,
        _ => Tone::Plain,
    }
}
