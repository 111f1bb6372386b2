//! Reducer of the calls, in two shapes with one rule: a persistent vector for few events, a queue for many.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{BLOCK, CallEntry, REMEMBERED, ToolCalls};
use crate::engine::collections::Vector;
use crate::engine::event::{CallStatus, CodecError, Common, Event, SessionStarted, started_tool};
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::reducer::Folding;

/// Events below which a queue is not worth filling.
const MANY: usize = 4 * REMEMBERED;

/// The rule needs only these of a sequence.
pub(super) trait CallMap: Send + Sized + 'static {
    fn last(&self) -> Option<&CallEntry>;
    fn len(&self) -> usize;
    /// Returns the indices of open calls: to ask each for itself would copy all of a persistent vector.
    fn open(&self) -> Vec<usize>;
    fn get_mut(&mut self, at: usize) -> Option<&mut CallEntry>;
    fn push(&mut self, call: CallEntry);
    /// Lets go of the oldest block but for what is open in it.
    fn trim(&mut self);
    fn search_all(&self, call: Seq) -> Option<usize>;
    fn into_vector(self) -> Vector<CallEntry>;

    fn search(&self, call: Seq) -> Option<usize> {
        // Most calls end right after they began.
        match self.last() {
            Some(last) if last.call == call => Some(self.len() - 1),
            _ => self.search_all(call),
        }
    }
}

impl CallMap for Vector<CallEntry> {
    fn last(&self) -> Option<&CallEntry> {
        Self::last(self)
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn open(&self) -> Vec<usize> {
        where_open(self.iter())
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut CallEntry> {
        Self::get_mut(self, at)
    }

    fn push(&mut self, call: CallEntry) {
        self.push_back(call);
    }

    fn trim(&mut self) {
        let (old, kept) = self.clone().split_at(BLOCK);
        *self = old.into_iter().filter(|call| call.status.is_none()).collect();
        self.append(kept);
    }

    fn search_all(&self, call: Seq) -> Option<usize> {
        self.binary_search_by_key(&call, |known| known.call).ok()
    }

    fn into_vector(self) -> Self {
        self
    }
}

impl CallMap for VecDeque<CallEntry> {
    fn last(&self) -> Option<&CallEntry> {
        self.back()
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn open(&self) -> Vec<usize> {
        where_open(self.iter())
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut CallEntry> {
        Self::get_mut(self, at)
    }

    fn push(&mut self, call: CallEntry) {
        self.push_back(call);
    }

    fn trim(&mut self) {
        let open: Vec<_> = self.drain(..BLOCK).filter(|call| call.status.is_none()).collect();
        open.into_iter().rev().for_each(|call| self.push_front(call));
    }

    fn search_all(&self, call: Seq) -> Option<usize> {
        self.binary_search_by_key(&call, |known| known.call).ok()
    }

    fn into_vector(self) -> Vector<CallEntry> {
        self.into_iter().collect()
    }
}

fn where_open<'a>(calls: impl Iterator<Item = &'a CallEntry>) -> Vec<usize> {
    calls.enumerate().filter(|(_, call)| call.status.is_none()).map(|(at, _)| at).collect()
}

pub(super) fn open(slice: ToolCalls, expected: usize) -> Box<dyn Folding<ToolCalls>> {
    let (total, names) = (slice.total, InternedNames::default());
    if expected < MANY {
        return Box::new(ToolCallsFold { total, calls: slice.calls, names });
    }
    let calls: VecDeque<CallEntry> = slice.calls.into_iter().collect();
    Box::new(ToolCallsFold { total, calls, names })
}

struct ToolCallsFold<C> {
    total: u64,
    calls: C,
    names: InternedNames,
}

impl<C: CallMap> ToolCallsFold<C> {
    fn begin(&mut self, call: CallEntry) {
        if self.calls.last().is_some_and(|last| last.call >= call.call) {
            return;
        }
        self.total += 1;
        self.calls.push(call);
        // Whole blocks are let go, so that those that stay look the same in every snapshot.
        if self.calls.len() >= REMEMBERED + BLOCK {
            self.calls.trim();
        }
    }
}

impl<C: CallMap> ToolCallsFold<C> {
    fn leave_to_parent(&mut self, seq: Seq) {
        let message = self.names.get("it was under way in the parent when this session began");
        for at in self.calls.open() {
            if let Some(call) = self.calls.get_mut(at) {
                call.status = Some(CallStatus::Interrupted);
                call.finished = seq;
                call.message = Arc::clone(&message);
            }
        }
    }
}

impl<C: CallMap> Folding<ToolCalls> for ToolCallsFold<C> {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        if event.common == Common::CallStarted {
            let call = CallEntry {
                call: event.seq,
                tool: self.names.get(started_tool(event.version, event.payload)?),
                agent: self.names.get(event.agent),
                started_at: event.time,
                status: None,
                finished: 0,
                micros: 0,
                message: self.names.get(""),
            };
            self.begin(call);
            return Ok(());
        }
        if event.kind == SessionStarted::KIND {
            if SessionStarted::decode(event.version, event.payload)?.begins_child() {
                self.leave_to_parent(event.seq);
            }
            return Ok(());
        }
        let outcome = event.finished()?;
        let at = event.call.and_then(|call| self.calls.search(call));
        if let Some(call) = at.and_then(|at| self.calls.get_mut(at))
            && call.status.is_none()
        {
            call.status = Some(outcome.status);
            call.finished = event.seq;
            call.micros = outcome.micros;
            call.message = self.names.get(outcome.message);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> ToolCalls {
        ToolCalls { total: self.total, calls: self.calls.into_vector() }
    }
}

/// Texts that come again and again, allocated once per fold.
#[derive(Default)]
pub(super) struct InternedNames {
    known: Vec<Arc<str>>,
    empty: Arc<str>,
}

impl InternedNames {
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        const KEPT: usize = 32;
        if text.is_empty() {
            return Arc::clone(&self.empty);
        }
        if let Some(known) = self.known.iter().find(|known| ***known == *text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = Arc::from(text);
        if self.known.len() < KEPT {
            self.known.push(Arc::clone(&text));
        }
        text
    }
}
