//! The tool calls of a session.

mod folding;
mod records;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use folding::InternedNames;

use super::BLOCK;
use crate::engine::collections::Vector;
use crate::engine::event::{CallFinished, CallStarted, CallStatus, Event, SessionStarted};
use crate::engine::{OnRewind, Registry, Seq, Slice, SliceError, Timestamp, ValueError};

/// Minimum number of finished calls that the slice remembers; older ones are only in the journal.
const REMEMBERED: usize = 1024;

/// The open calls, the latest finished ones, and the number of all.
///
/// The slice is bounded: at most some 1,100 finished calls. The journal has them all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCalls {
    /// Number of calls begun.
    pub total: u64,
    /// The latest calls and all open ones, oldest first.
    calls: Vector<CallEntry>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEntry {
    /// Call id: the position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: Arc<str>,
    /// Agent that called.
    pub agent: Arc<str>,
    /// Time of its beginning.
    pub started_at: Timestamp,
    /// Status; `None` while it is open.
    pub status: Option<CallStatus>,
    /// Position of its outcome; 0 while it is open.
    pub finished: Seq,
    /// Duration, in microseconds.
    pub micros: u64,
    /// Error text; empty after a success.
    pub message: Arc<str>,
}

impl ToolCalls {
    /// Returns the call with that id, as far as the slice remembers it.
    pub fn get(&self, call: Seq) -> Option<&CallEntry> {
        self.calls.binary_search_by_key(&call, |known| known.call).ok().and_then(|at| self.calls.get(at))
    }

    /// Iterates over the calls that the slice remembers, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CallEntry> {
        self.calls.iter()
    }

    /// Iterates over the calls without an outcome.
    pub fn open(&self) -> impl Iterator<Item = &CallEntry> {
        self.calls.iter().filter(|call| call.status.is_none())
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
        let wrong = || SliceError::new(Self::NAME, "a record is malformed");
        let (total, blocks) = blocks.split_first().ok_or_else(wrong)?;
        let total = <[u8; 8]>::try_from(&total[..]).map_err(|_| wrong())?;
        let (mut calls, mut names) = (Vector::new(), InternedNames::default());
        for block in blocks {
            let mut rest = &block[..];
            while !rest.is_empty() {
                calls.push_back(records::take(&mut rest, &mut names).ok_or_else(wrong)?);
            }
        }
        Ok(Self { total: u64::from_le_bytes(total), calls })
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .folded_slice::<ToolCalls>(Some(&[CallStarted::KIND, CallFinished::KIND, SessionStarted::KIND]), folding::open)
}
