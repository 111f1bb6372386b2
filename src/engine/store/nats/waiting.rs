//! Waiting for a cluster that has no leader, or can't be reached.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use crate::engine::lock::lock;
use crate::engine::store::Result;

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Waits of a store for its cluster: the longest, and the one that goes on.
pub(super) struct Waiting {
    patience: Duration,
    cluster: Cluster,
    since: Mutex<Option<(Instant, u32)>>,
}

impl Waiting {
    pub(super) fn for_cluster(cluster: Cluster, patience: Duration) -> Self {
        Self { patience, cluster, since: Mutex::default() }
    }

    /// Repeats something until its outcome is known; the attempt says none while it is not. Fails once that takes longer
    /// than the store waits.
    pub(super) async fn until_settled<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<Option<T>>>,
    {
        let begun = Instant::now();
        let mut pause = PAUSE_FIRST;
        let mut counted = None;
        loop {
            if let Some(settled) = attempt().await.transpose() {
                return settled;
            }
            counted.get_or_insert_with(|| WaitingCount::of(self, begun));
            if begun.elapsed() >= self.patience {
                let seconds = self.patience.as_secs();
                let reach = if self.cluster.is_connected() { "has had no leader" } else { "could not be reached" };
                return Err(self.cluster.failed(format!("{reach} for {seconds} s, so it could not {what}")));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the time for which something has been waited for; none where nothing is.
    pub(super) fn waited(&self) -> Option<Duration> {
        lock(&self.since).map(|(since, _)| since.elapsed())
    }
}

/// A wait that goes on, until it is dropped.
struct WaitingCount<'a>(&'a Waiting);

impl<'a> WaitingCount<'a> {
    fn of(waiting: &'a Waiting, begun: Instant) -> Self {
        let mut since = lock(&waiting.since);
        let (first, count) = since.unwrap_or((begun, 0));
        *since = Some((first.min(begun), count + 1));
        Self(waiting)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        let mut since = lock(&self.0.since);
        *since = since.filter(|(_, count)| *count > 1).map(|(first, count)| (first, count - 1));
    }
}
