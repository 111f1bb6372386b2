//! Comparison of the host's clock with the cluster's. The times of a session never go back, so a host with a fast clock
//! would spoil the times of all later events.

use std::sync::Weak;
use std::time::Duration;

use super::NatsInner;
use super::cluster::Cluster;
use super::waiting::Waiting;
use crate::engine::store::Result;
use crate::engine::{Clock, SystemClock, Timestamp};

/// Maximum difference between the clocks, in milliseconds.
const MOST: u64 = 5 * 60 * 1000;
const EVERY: Duration = Duration::from_secs(60);

/// Returns both times if they differ too much. `None` without an answer.
async fn compared(cluster: &Cluster) -> Option<Result<(), [Timestamp; 2]>> {
    let clock = SystemClock::default();
    let asked = clock.now();
    let (theirs, own) = (cluster.time().await?, clock.now());
    // The answer may have been in transit for all of that time.
    let between = Timestamp(theirs.0.clamp(asked.0.min(own.0), own.0));
    Some(if theirs.0.abs_diff(between.0) > MOST { Err([own, theirs]) } else { Ok(()) })
}

fn problem([own, theirs]: [Timestamp; 2]) -> String {
    let minutes = MOST / 60_000;
    format!(
        "has the time {theirs}, and this host {own}, more than {minutes} minutes apart; set the clock that is wrong"
    )
}

/// Fails if the host's clock is wrong.
pub(super) async fn check(cluster: &Cluster, waiting: &Waiting) -> Result<()> {
    let compare = || async {
        let Some(compared) = compared(cluster).await else { return Ok(None) };
        compared.map(Some).map_err(|times| cluster.failed(problem(times)))
    };
    waiting.until_settled("return its time", compare).await
}

/// Warns while the clocks differ, until the store is dropped.
pub(super) async fn watch(store: Weak<NatsInner>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(cluster) = store.upgrade().map(|inner| inner.cluster.clone()) else { return };
        if let Some(Err(times)) = compared(&cluster).await {
            tracing::warn!("the cluster {}", problem(times));
        }
    }
}
