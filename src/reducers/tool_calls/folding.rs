//! Fold of the calls.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{BLOCK, CallEntry, REMEMBERED, ToolCalls};
use crate::engine::collections::Vector;
use crate::engine::event::{CallStatus, CodecError, Common, Event, SessionStarted, started_tool};
use crate::engine::reducer::Folding;
use crate::engine::{EventRef, Seq};

pub(super) fn open(slice: ToolCalls, _: usize) -> Box<dyn Folding<ToolCalls>> {
    let ToolCalls { total, calls } = slice;
    Box::new(ToolCallsFold { total, old: calls, new: VecDeque::new(), names: InternedNames::default() })
}

struct ToolCallsFold {
    total: u64,
    /// Calls from before the fold. Changing one copies a part of a persistent vector.
    old: Vector<CallEntry>,
    /// Later calls.
    new: VecDeque<CallEntry>,
    names: InternedNames,
}

fn is_open(call: &CallEntry) -> bool {
    call.status.is_none()
}

impl ToolCallsFold {
    fn begin(&mut self, call: CallEntry) {
        if self.new.back().or(self.old.last()).is_some_and(|last| last.call >= call.call) {
            return;
        }
        self.total += 1;
        self.new.push_back(call);
        // Drops whole blocks, so that the others are equal in every snapshot.
        if self.old.len() + self.new.len() >= REMEMBERED + BLOCK {
            self.drop_block();
        }
    }

    /// Drops the oldest block except for its open calls.
    fn drop_block(&mut self) {
        if self.old.len() >= BLOCK {
            #[expect(
                clippy::disallowed_methods,
                reason = "a call holds numbers and texts, which don't panic when dropped"
            )]
            let (block, kept) = std::mem::take(&mut self.old).split_at(BLOCK);
            self.old = block.into_iter().filter(is_open).collect();
            self.old.append(kept);
            return;
        }
        std::mem::take(&mut self.old).into_iter().rev().for_each(|call| self.new.push_front(call));
        let open: Vec<_> = self.new.drain(..BLOCK).filter(is_open).collect();
        open.into_iter().rev().for_each(|call| self.new.push_front(call));
    }

    fn find(&mut self, call: Seq) -> Option<&mut CallEntry> {
        // Most calls end right after they began.
        if self.new.back().is_some_and(|last| last.call == call) {
            return self.new.back_mut();
        }
        match self.new.binary_search_by_key(&call, |known| known.call) {
            Ok(at) => self.new.get_mut(at),
            Err(_) => self.old.binary_search_by_key(&call, |known| known.call).ok().and_then(|at| self.old.get_mut(at)),
        }
    }

    fn leave_to_parent(&mut self, seq: Seq) {
        let message = self.names.get("it was under way in the parent when this session began");
        let leave = |call: &mut CallEntry| {
            call.status = Some(CallStatus::Interrupted);
            call.finished = seq;
            call.message = Arc::clone(&message);
        };
        // By index: an iterator of mutable references would copy the whole vector.
        let open: Vec<usize> = (0..).zip(&self.old).filter(|(_, call)| is_open(call)).map(|(at, _)| at).collect();
        for at in open {
            self.old.get_mut(at).into_iter().for_each(leave);
        }
        self.new.iter_mut().filter(|call| is_open(call)).for_each(leave);
    }
}

impl Folding<ToolCalls> for ToolCallsFold {
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
        let message = self.names.get(outcome.message);
        if let Some(call) = event.call.and_then(|call| self.find(call)).filter(|call| is_open(call)) {
            call.status = Some(outcome.status);
            call.finished = event.seq;
            call.micros = outcome.micros;
            call.message = message;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> ToolCalls {
        let Self { total, old: mut calls, new, .. } = *self;
        calls.extend(new);
        ToolCalls { total, calls }
    }
}

/// Repeated texts, allocated once per fold.
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
