//! Requests in flight.

use std::sync::{Arc, Mutex, MutexGuard};

use rmcp::model::RequestId;
use tokio::sync::Notify;

use crate::engine::lock::lock;
use crate::mcp::order::Order;

#[derive(Clone, Default)]
pub(super) struct InFlightRequests(Arc<RequestsInner>);

#[derive(Default)]
struct RequestsInner {
    requests: Mutex<Vec<LineRequest>>,
    fewer: Notify,
}

struct LineRequest {
    id: RequestId,
    order: Order,
    is_worked_on: bool,
    is_cancelled: bool,
}

/// Goes with a request. Dropping the last clone ends the work on it.
#[derive(Clone)]
pub(super) struct RequestGuard(#[expect(dead_code, reason = "it is there to be dropped")] Arc<RequestWork>);

struct RequestWork {
    id: RequestId,
    of: InFlightRequests,
}

impl InFlightRequests {
    fn requests(&self) -> MutexGuard<'_, Vec<LineRequest>> {
        lock(&self.0.requests)
    }

    pub(super) fn count(&self) -> usize {
        self.requests().len()
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.requests().iter().any(|known| known.id == *id)
    }

    pub(super) fn admits(&self, order: Order) -> bool {
        self.requests().iter().all(|known| order.fits(known.order))
    }

    pub(super) fn begin(&self, id: RequestId, order: Order) -> RequestGuard {
        self.requests().push(LineRequest { id: id.clone(), order, is_worked_on: true, is_cancelled: false });
        RequestGuard(Arc::new(RequestWork { id, of: self.clone() }))
    }

    pub(super) fn end(&self, id: &RequestId) {
        self.requests().retain(|known| known.id != *id);
        self.0.fewer.notify_one();
    }

    /// Cancels a request. It counts until its work ends: cancelled requests must not run without limit.
    pub(super) fn cancel(&self, id: &RequestId) {
        self.settle(id, |request| request.is_cancelled = true);
    }

    fn settle(&self, id: &RequestId, note: impl FnOnce(&mut LineRequest)) {
        let mut requests = self.requests();
        let Some(at) = requests.iter().position(|known| known.id == *id) else { return };
        note(&mut requests[at]);
        if requests[at].is_cancelled && !requests[at].is_worked_on {
            requests.remove(at);
            self.0.fewer.notify_one();
        }
    }

    /// Waits until one has ended since the last wait. Only one task may wait.
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
    use super::*;

    #[test]
    fn in_flight_cancelled_request_still_counts() {
        let (under_way, id) = (InFlightRequests::default(), RequestId::Number(1));
        let slot = under_way.begin(id.clone(), Order::Free);
        under_way.cancel(&id);
        assert_eq!(under_way.count(), 1);
        let other = slot.clone();
        drop(slot);
        assert_eq!(under_way.count(), 1);
        drop(other);
        assert_eq!(under_way.count(), 0);
        drop(under_way.begin(id.clone(), Order::Free));
        assert_eq!(under_way.count(), 1, "its answer is on its way");
        under_way.cancel(&id);
        assert_eq!(under_way.count(), 0);
        let _slot = under_way.begin(id.clone(), Order::Free);
        under_way.end(&id);
        assert_eq!(under_way.count(), 0);
    }
}
