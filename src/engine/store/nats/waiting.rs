//! Waiting for a cluster that lacks a leader or can't be reached.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use crate::engine::lock::lock;
use crate::engine::store::Result;

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time without an answer before trying another server, because this one may be cut off from the others. Longer than an
/// election.
const SAME_SERVER: Duration = Duration::from_secs(8);

/// The waits of a store for its cluster.
pub(super) struct Waiting {
    patience: Duration,
    cluster: Cluster,
    since: Mutex<Option<(Instant, u32)>>,
    /// The time of the last switch to another server.
    left: Mutex<Instant>,
}

impl Waiting {
    pub(super) fn for_cluster(cluster: Cluster, patience: Duration) -> Self {
        Self { patience, cluster, since: Mutex::default(), left: Mutex::new(Instant::now()) }
    }

    /// Repeats an attempt until its outcome is known; it returns `None` to be repeated. Fails once that exceeds the
    /// store's patience.
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
                let reach = if self.cluster.is_connected() { "has had no leader" } else { "was unreachable" };
                return Err(self.cluster.failed(format!("{reach} for {seconds} s and could not {what}")));
            }
            self.leave_server(begun.elapsed()).await;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Connects to another server if the current one has not answered for long.
    pub(super) async fn leave_server(&self, silence: Duration) {
        let is_due = {
            let mut left = lock(&self.left);
            let is_due = silence >= SAME_SERVER && left.elapsed() >= SAME_SERVER;
            *left = if is_due { Instant::now() } else { *left };
            is_due
        };
        if is_due {
            tracing::info!("trying another server of the cluster");
            self.cluster.reconnect().await;
        }
    }

    /// Returns the duration of the longest current wait. `None` if nothing waits.
    pub(super) fn waited(&self) -> Option<Duration> {
        lock(&self.since).map(|(since, _)| since.elapsed())
    }
}

/// A wait in progress, until it is dropped.
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
