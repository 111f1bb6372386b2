//! Which requests are under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::Notify;

use crate::mcp::order::Order;

/// The requests that are under way.
#[derive(Clone, Default)]
pub(super) struct InFlightRequests(Arc<RequestsInner>);

#[derive(Default)]
struct RequestsInner {
    /// Few, and without an order of their own.
    requests: Mutex<Vec<LineRequest>>,
    fewer: Notify,
}

struct LineRequest {
    id: RequestId,
    order: Order,
    /// True while somebody works on it.
    is_worked_on: bool,
    /// True where nobody waits for its answer any more.
    is_cancelled: bool,
}

/// Goes with a request; when the last is dropped nobody works on it any more.
#[derive(Clone)]
pub(super) struct RequestGuard(#[expect(dead_code, reason = "it is there to be dropped")] Arc<RequestWork>);

struct RequestWork {
    id: RequestId,
    of: InFlightRequests,
}

impl InFlightRequests {
    fn requests(&self) -> MutexGuard<'_, Vec<LineRequest>> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.requests().len()
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.requests().iter().any(|known| known.id == *id)
    }

    /// Tells whether a request of that order may begin now.
    pub(super) fn admits(&self, order: Order) -> bool {
        self.requests().iter().all(|known| order.fits(known.order))
    }

    pub(super) fn begin(&self, id: RequestId, order: Order) -> RequestGuard {
        self.requests().push(LineRequest { id: id.clone(), order, is_worked_on: true, is_cancelled: false });
        RequestGuard(Arc::new(RequestWork { id, of: self.clone() }))
    }

    /// It is answered.
    pub(super) fn end(&self, id: &RequestId) {
        self.requests().retain(|known| known.id != *id);
        self.0.fewer.notify_one();
    }

    /// Nobody waits for its answer. It counts for as long as it is worked on all the same: else requests that are taken
    /// back at once would be worked on without end.
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

    /// Waits until one has ended since this was last asked. Only one may wait.
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
