//! A connection's requests, waiting and in flight.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, JsonRpcMessage, JsonRpcRequest, RequestId,
};
use rmcp::service::TxJsonRpcMessage;
use tokio::sync::Notify;

use super::client::ServerState;
use super::order::Order;
use crate::engine::lock::lock;

/// Limit for requests in flight.
const IN_FLIGHT_MAX: usize = 64;

/// A connection's requests. Calls begin in order of arrival; other requests overtake them.
pub(super) struct ConnectionRequests {
    shared: Arc<ServerState>,
    calls: VecDeque<WaitingRequest>,
    others: VecDeque<WaitingRequest>,
    bytes: usize,
    in_flight: InFlightRequests,
}

struct WaitingRequest {
    request: JsonRpcRequest<ClientRequest>,
    order: Order,
    bytes: usize,
}

/// Marks a request that is dropped if its client leaves before it begins. Dangling if the client left.
#[derive(Clone)]
pub(super) struct Awaited(pub(super) Weak<AtomicBool>);

impl ConnectionRequests {
    pub(super) fn new(shared: &Arc<ServerState>) -> Self {
        let (calls, others) = (VecDeque::new(), VecDeque::new());
        Self { shared: Arc::clone(shared), calls, others, bytes: 0, in_flight: InFlightRequests::default() }
    }

    pub(super) fn in_flight(&self) -> &InFlightRequests {
        &self.in_flight
    }

    /// Returns the size of the waiting requests in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.others.is_empty()
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.in_flight.has(id) || self.calls.iter().chain(&self.others).any(|waiting| waiting.request.id == *id)
    }

    pub(super) fn push(&mut self, request: JsonRpcRequest<ClientRequest>, bytes: usize) {
        let (order, bytes) = (Order::of(&self.shared, &request.request), bytes + size_of::<WaitingRequest>());
        self.bytes += bytes;
        let queue = match order {
            Order::Reads | Order::Changes => &mut self.calls,
            Order::Free | Order::Resumes => &mut self.others,
        };
        queue.push_back(WaitingRequest { request, order, bytes });
    }

    /// Begins the next request that may begin, if any.
    pub(super) fn next(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if self.in_flight.count() >= IN_FLIGHT_MAX {
                return None;
            }
            let next = match self.others.pop_front() {
                Some(other) => other,
                None if self.in_flight.admits(self.calls.front()?.order) => self.calls.pop_front()?,
                None => return None,
            };
            self.bytes -= next.bytes;
            let mut request = next.request;
            let extensions = request.request.extensions_mut();
            if extensions.get::<Awaited>().is_some_and(|awaited| awaited.0.strong_count() == 0) {
                continue;
            }
            extensions.insert(self.in_flight.begin(request.id.clone(), next.order));
            return Some(JsonRpcMessage::Request(request));
        }
    }

    /// Passes on a message that is not a request. A request that is cancelled before it began gets no answer.
    pub(super) fn pass(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        if let JsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            for queue in [&mut self.calls, &mut self.others] {
                let at = queue.iter().position(|waiting| waiting.request.id == *id);
                if let Some(removed) = at.and_then(|at| queue.remove(at)) {
                    self.bytes -= removed.bytes;
                    return None;
                }
            }
            self.in_flight.cancel(id);
        }
        Some(message)
    }
}

#[derive(Clone, Default)]
pub(super) struct InFlightRequests(Arc<InFlightInner>);

#[derive(Default)]
struct InFlightInner {
    requests: Mutex<Vec<InFlightRequest>>,
    fewer: Notify,
}

struct InFlightRequest {
    id: RequestId,
    order: Order,
    is_worked_on: bool,
    is_cancelled: bool,
}

/// Accompanies a request. Dropping the last clone ends the work on it.
#[derive(Clone)]
pub(super) struct RequestGuard(#[expect(dead_code, reason = "only dropped")] Arc<RequestWork>);

struct RequestWork {
    id: RequestId,
    of: InFlightRequests,
}

impl InFlightRequests {
    fn requests(&self) -> MutexGuard<'_, Vec<InFlightRequest>> {
        lock(&self.0.requests)
    }

    pub(super) fn count(&self) -> usize {
        self.requests().len()
    }

    fn has(&self, id: &RequestId) -> bool {
        self.requests().iter().any(|known| known.id == *id)
    }

    /// Returns true if a request may run concurrently with the active requests.
    fn admits(&self, order: Order) -> bool {
        self.requests().iter().all(|known| !known.is_worked_on || order.fits(known.order))
    }

    fn begin(&self, id: RequestId, order: Order) -> RequestGuard {
        self.requests().push(InFlightRequest { id: id.clone(), order, is_worked_on: true, is_cancelled: false });
        RequestGuard(Arc::new(RequestWork { id, of: self.clone() }))
    }

    /// Removes the request that a message answers.
    pub(super) fn sent(&self, message: &TxJsonRpcMessage<RoleServer>) {
        let answered = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if let Some(id) = answered {
            self.requests().retain(|known| known.id != *id);
            self.0.fewer.notify_one();
        }
    }

    /// Cancels a request. It counts until its work ends, so that cancelled work stays limited.
    fn cancel(&self, id: &RequestId) {
        self.settle(id, |request| request.is_cancelled = true);
    }

    fn settle(&self, id: &RequestId, note: impl FnOnce(&mut InFlightRequest)) {
        let mut requests = self.requests();
        let Some(at) = requests.iter().position(|known| known.id == *id) else { return };
        note(&mut requests[at]);
        if requests[at].is_cancelled && !requests[at].is_worked_on {
            requests.remove(at);
        }
        self.0.fewer.notify_one();
    }

    /// Waits until a request or the work on a request has ended since the last wait. Only one task may wait.
    pub(super) async fn fewer(&self) {
        self.0.fewer.notified().await;
    }
}

impl Drop for RequestWork {
    fn drop(&mut self) {
        self.of.settle(&self.id, |request| request.is_worked_on = false);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{EmptyResult, ServerJsonRpcMessage, ServerResult};

    use super::*;

    #[test]
    fn in_flight_cancelled_request_still_counts() {
        let (in_flight, id) = (InFlightRequests::default(), RequestId::Number(1));
        let slot = in_flight.begin(id.clone(), Order::Free);
        in_flight.cancel(&id);
        assert_eq!(in_flight.count(), 1);
        let other = slot.clone();
        drop(slot);
        assert_eq!(in_flight.count(), 1);
        drop(other);
        assert_eq!(in_flight.count(), 0);
        drop(in_flight.begin(id.clone(), Order::Free));
        assert_eq!(in_flight.count(), 1, "its answer is pending");
        in_flight.cancel(&id);
        assert_eq!(in_flight.count(), 0);
        let _slot = in_flight.begin(id.clone(), Order::Free);
        in_flight.sent(&ServerJsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), id));
        assert_eq!(in_flight.count(), 0);
    }
}
