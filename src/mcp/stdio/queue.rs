//! Requests that wait until they may begin.

use std::collections::VecDeque;

use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};

use crate::mcp::order::Order;

/// Requests that wait. Calls begin in order of arrival; other requests overtake them.
#[derive(Default)]
pub(super) struct RequestQueue {
    calls: VecDeque<QueuedRequest>,
    others: VecDeque<QueuedRequest>,
    bytes: usize,
}

pub(super) struct QueuedRequest {
    pub(super) message: ClientJsonRpcMessage,
    pub(super) order: Order,
    pub(super) bytes: usize,
}

impl QueuedRequest {
    fn is(&self, id: &RequestId) -> bool {
        matches!(&self.message, JsonRpcMessage::Request(request) if request.id == *id)
    }
}

impl RequestQueue {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.others.is_empty()
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.calls.iter().chain(&self.others).any(|entry| entry.is(id))
    }

    pub(super) fn push(&mut self, entry: QueuedRequest) {
        self.bytes += entry.bytes;
        match entry.order {
            Order::Reads | Order::Changes => self.calls.push_back(entry),
            Order::Free | Order::Resumes => self.others.push_back(entry),
        }
    }

    pub(super) fn next(&mut self, admits: impl Fn(Order) -> bool) -> Option<QueuedRequest> {
        let next = match self.others.pop_front() {
            Some(entry) => Some(entry),
            None if self.calls.front().is_some_and(|entry| admits(entry.order)) => self.calls.pop_front(),
            None => None,
        };
        self.taken(next)
    }

    pub(super) fn remove(&mut self, id: &RequestId) -> Option<QueuedRequest> {
        let from = |queue: &mut VecDeque<QueuedRequest>| {
            let at = queue.iter().position(|entry| entry.is(id))?;
            queue.remove(at)
        };
        let removed = from(&mut self.calls).or_else(|| from(&mut self.others));
        self.taken(removed)
    }

    fn taken(&mut self, entry: Option<QueuedRequest>) -> Option<QueuedRequest> {
        self.bytes -= entry.as_ref().map_or(0, |entry| entry.bytes);
        entry
    }
}
