//! Calls in a snapshot.

use bytes::Buf;

use super::folding::InternedNames;
use super::{CallEntry, CallStatus};
use crate::engine::clock::Timestamp;

/// Statuses by their code.
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
    let status = *STATUSES.get(usize::from(rest.try_get_u8().ok()?))?;
    let (call, finished) = (rest.try_get_u64_le().ok()?, rest.try_get_u64_le().ok()?);
    let (micros, started_at) = (rest.try_get_u64_le().ok()?, Timestamp(rest.try_get_i64_le().ok()?));
    let mut text = || {
        let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
        Some(names.get(std::str::from_utf8(rest.split_off(..length)?).ok()?))
    };
    let (tool, agent, message) = (text()?, text()?, text()?);
    Some(CallEntry { call, tool, agent, started_at, status, finished, micros, message })
}
