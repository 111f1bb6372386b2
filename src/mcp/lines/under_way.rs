//! Which requests are under way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::Notify;

/// The requests that are under way.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<Inner>);

#[derive(Default)]
struct Inner {
    ids: Mutex<Ids>,
    fewer: Notify,
}

#[expect(clippy::disallowed_types, reason = "ids can't be ordered, and nobody sees their order here")]
type Ids = HashSet<RequestId>;

impl UnderWay {
    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.0.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.ids().len()
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.ids().contains(id)
    }

    pub(super) fn begin(&self, id: RequestId) {
        self.ids().insert(id);
    }

    /// It is answered, or nobody waits for its answer.
    pub(super) fn end(&self, id: &RequestId) {
        self.ids().remove(id);
        self.0.fewer.notify_one();
    }

    /// Waits until one has ended since this was last asked. Only one may wait.
    pub(super) async fn fewer(&self) {
        self.0.fewer.notified().await;
    }
}
