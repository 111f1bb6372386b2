//! Calls in a snapshot.

use super::folding::InternedNames;
use super::{CallEntry, CallStatus};
use crate::engine::clock::Timestamp;

/// Statuses, each at its code.
const STATUSES: [Option<CallStatus>; 4] =
    [None, Some(CallStatus::Ok), Some(CallStatus::Error), Some(CallStatus::Interrupted)];

pub(super) fn put(block: &mut Vec<u8>, call: &CallEntry) {
    block.extend((0..).zip(STATUSES).find(|(_, status)| *status == call.status).map(|(code, _): (u8, _)| code));
    for number in [call.call, call.finished, call.micros] {
        block.extend_from_slice(&number.to_le_bytes());
    }
    block.extend_from_slice(&call.started_at.0.to_le_bytes());
    for text in [&call.tool, &call.agent, &call.message] {
        block.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        block.extend_from_slice(text.as_bytes());
    }
}

pub(super) fn take(rest: &mut &[u8], names: &mut InternedNames) -> Option<CallEntry> {
    let [status] = take_array(rest)?;
    let [call, finished, micros] = [take_array(rest)?, take_array(rest)?, take_array(rest)?].map(u64::from_le_bytes);
    let started_at = Timestamp(i64::from_le_bytes(take_array(rest)?));
    let mut text = || {
        let length = usize::try_from(u32::from_le_bytes(take_array(rest)?)).ok()?;
        let (text, after) = rest.split_at_checked(length)?;
        *rest = after;
        Some(names.get(std::str::from_utf8(text).ok()?))
    };
    let (tool, agent, message) = (text()?, text()?, text()?);
    let status = *STATUSES.get(usize::from(status))?;
    Some(CallEntry { call, tool, agent, started_at, status, finished, micros, message })
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*array)
}
