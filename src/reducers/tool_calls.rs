//! The tool calls of a session.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::clock::Timestamp;
use crate::engine::collections::Vector;
use crate::engine::event::{CallFinished, CallStarted, CallStatus, CodecError, Event, finished_view, started_tool};
use crate::engine::recorded::{EventRef, Seq};
use crate::engine::reducer::Folding;
use crate::engine::registry::{Registry, RegistryError};
use crate::engine::slice::{OnRewind, Slice, SliceError};

/// Finished calls that the slice remembers, at least; older ones are in the journal only.
const REMEMBERED: usize = 1024;
/// Calls in a block of a snapshot.
const BLOCK: usize = 64;

/// The calls that are open, the latest finished ones, and how many there were.
///
/// The slice is bounded: at most some 1,100 finished calls. The journal has them all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCalls {
    /// How many calls were begun.
    pub total: u64,
    /// The latest calls and all open ones, in the order in which they began.
    calls: Vector<CallEntry>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEntry {
    /// The position of its intent, which is its name.
    pub call: Seq,
    /// The tool.
    pub tool: Arc<str>,
    /// Who called.
    pub agent: Arc<str>,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; none while it is open.
    pub status: Option<CallStatus>,
    /// The position of its outcome; 0 while it is open.
    pub finished: Seq,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// What was wrong; empty after a success.
    pub message: Arc<str>,
}

impl ToolCalls {
    /// The call that began at `call`, as far as the slice remembers it.
    pub fn get(&self, call: Seq) -> Option<&CallEntry> {
        self.position(call).and_then(|at| self.calls.get(at))
    }

    /// The calls that the slice remembers, in the order in which they began.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CallEntry> {
        self.calls.iter()
    }

    /// Calls without an outcome.
    pub fn open(&self) -> impl Iterator<Item = &CallEntry> {
        self.calls.iter().filter(|call| call.status.is_none())
    }

    fn position(&self, call: Seq) -> Option<usize> {
        // Most calls end right after they began.
        let last = self.calls.len().checked_sub(1)?;
        if self.calls[last].call == call {
            return Some(last);
        }
        self.calls.binary_search_by_key(&call, |known| known.call).ok()
    }

    fn begin(&mut self, call: CallEntry) {
        if self.calls.last().is_some_and(|last| last.call >= call.call) {
            return;
        }
        self.total += 1;
        self.calls.push_back(call);
        // Whole blocks are let go, so that those that stay look the same in every snapshot.
        if self.calls.len() >= REMEMBERED + BLOCK {
            let (old, kept) = self.calls.clone().split_at(BLOCK);
            let mut calls: Vector<CallEntry> = old.into_iter().filter(|call| call.status.is_none()).collect();
            calls.append(kept);
            self.calls = calls;
        }
    }
}

impl Slice for ToolCalls {
    const NAME: &'static str = "ToolCalls";
    const ON_REWIND: OnRewind = OnRewind::Keep;

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        let mut blocks = vec![self.total.to_le_bytes().to_vec()];
        let calls: Vec<&CallEntry> = self.calls.iter().collect();
        for calls in calls.chunks(BLOCK) {
            let mut block = Vec::with_capacity(BLOCK * 64);
            calls.iter().for_each(|call| records::put(&mut block, call));
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let wrong = || SliceError::new(Self::NAME, "a record makes no sense");
        let (total, blocks) = blocks.split_first().ok_or_else(wrong)?;
        let total = <[u8; 8]>::try_from(&total[..]).map_err(|_| wrong())?;
        let (mut calls, mut names) = (Vector::new(), Names::default());
        for block in blocks {
            let mut rest = &block[..];
            while !rest.is_empty() {
                calls.push_back(records::take(&mut rest, &mut names).ok_or_else(wrong)?);
            }
        }
        Ok(Self { total: u64::from_le_bytes(total), calls })
    }
}

/// Calls in a snapshot.
mod records {
    use super::{CallEntry, CallStatus, Names};
    use crate::engine::clock::Timestamp;

    pub(super) fn put(block: &mut Vec<u8>, call: &CallEntry) {
        let status = match call.status {
            None => 0,
            Some(CallStatus::Ok) => 1,
            Some(CallStatus::Error) => 2,
            Some(CallStatus::Interrupted) => 3,
        };
        block.push(status);
        for number in [call.call, call.finished, call.micros] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        block.extend_from_slice(&call.started_at.0.to_le_bytes());
        for text in [&call.tool, &call.agent, &call.message] {
            block.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            block.extend_from_slice(text.as_bytes());
        }
    }

    pub(super) fn take(rest: &mut &[u8], names: &mut Names) -> Option<CallEntry> {
        let [status] = take_array(rest)?;
        let [call, finished, micros] =
            [take_array(rest)?, take_array(rest)?, take_array(rest)?].map(u64::from_le_bytes);
        let started_at = Timestamp(i64::from_le_bytes(take_array(rest)?));
        let mut text = || {
            let length = usize::try_from(u32::from_le_bytes(take_array(rest)?)).ok()?;
            let (text, after) = rest.split_at_checked(length)?;
            *rest = after;
            Some(names.get(std::str::from_utf8(text).ok()?))
        };
        let (tool, agent, message) = (text()?, text()?, text()?);
        let status = match status {
            0 => None,
            1 => Some(CallStatus::Ok),
            2 => Some(CallStatus::Error),
            3 => Some(CallStatus::Interrupted),
            _ => return None,
        };
        Some(CallEntry { call, tool, agent, started_at, status, finished, micros, message })
    }

    fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
        let (array, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(*array)
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, RegistryError> {
    let open = |slice: ToolCalls, _| Box::new(Fold { slice, names: Names::default() }) as Box<dyn Folding<ToolCalls>>;
    registry.folded_slice::<ToolCalls>(Some(&[CallStarted::KIND, CallFinished::KIND]), open)
}

struct Fold {
    slice: ToolCalls,
    names: Names,
}

impl Folding<ToolCalls> for Fold {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        if event.kind == CallStarted::KIND {
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
            self.slice.begin(call);
            return Ok(());
        }
        let outcome = finished_view(event.version, event.payload)?;
        let at = event.call.and_then(|call| self.slice.position(call));
        if let Some(call) = at.and_then(|at| self.slice.calls.get_mut(at))
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
        self.slice
    }
}

/// Texts that come again and again, allocated once per fold.
#[derive(Default)]
struct Names(Vec<Arc<str>>);

impl Names {
    fn get(&mut self, text: &str) -> Arc<str> {
        const KEPT: usize = 32;
        if let Some(known) = self.0.iter().find(|known| ***known == *text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = Arc::from(text);
        if self.0.len() < KEPT {
            self.0.push(Arc::clone(&text));
        }
        text
    }
}
