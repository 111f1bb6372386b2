//! Following what others record.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use futures_util::StreamExt;

use super::NatsInner;
use super::lane::Lane;
use crate::engine::lock::lock;
use crate::engine::store::EventStore;

const PAUSE: Duration = Duration::from_secs(1);
/// Time between two tellings of sessions' ends.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Follows the stream, and adds to the local copy what others record in sessions that somebody here follows.
pub(super) async fn watch(store: Weak<NatsInner>) {
    loop {
        let Some(inner) = store.upgrade() else { return };
        let config = OrderedConfig {
            filter_subject: format!("{}.s.*", inner.cluster.name()),
            deliver_policy: DeliverPolicy::New,
            headers_only: true,
            ..OrderedConfig::default()
        };
        let stream = inner.cluster.stream.clone();
        drop(inner);
        let opened = async { stream.create_consumer(config).await.ok()?.messages().await.ok() };
        if let Some(mut messages) = opened.await {
            follow_again(&store);
            while let Some(Ok(message)) = messages.next().await {
                let Some(inner) = store.upgrade() else { return };
                let Ok(at) = message.info().map(|info| info.stream_sequence) else { continue };
                let Some(session) = inner.cluster.session_of(&message.subject) else { continue };
                let Some(lane) = lock(&inner.lanes).get(&session).cloned() else { continue };
                lane.saw(at);
                if lane.is_held() || inner.local.bus().wanted(lane.session) {
                    tokio::spawn(catch_up(inner, lane));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks at the cluster again for all sessions, of which something may have been missed.
fn follow_again(store: &Weak<NatsInner>) {
    let Some(inner) = store.upgrade() else { return };
    let lanes: Vec<_> = lock(&inner.lanes).values().cloned().collect();
    for lane in lanes {
        lane.doubt();
        if lane.is_held() || inner.local.bus().wanted(lane.session) {
            tokio::spawn(catch_up(Arc::clone(&inner), lane));
        }
    }
}

async fn catch_up(inner: Arc<NatsInner>, lane: Arc<Lane>) {
    if lane.is_fresh() {
        return;
    }
    let mut cursor = lane.cursor.lock().await;
    // The message may have been this store's own.
    if lane.is_fresh() {
        return;
    }
    if let Err(error) = inner.catch_up(&lane, &mut cursor).await {
        tracing::warn!(%error, "what others record is not followed");
    }
}

/// Tells the ends of the sessions that this process extends, from time to time.
pub(super) async fn tell_moved(store: Weak<NatsInner>) {
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        let Some(inner) = store.upgrade() else { return };
        inner.catalogue.tell_moved(&inner.local).await;
        super::cursors::save(&inner);
    }
}
