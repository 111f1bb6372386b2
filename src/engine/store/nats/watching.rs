//! Following the commits of other hosts.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use futures_util::StreamExt;
use tokio::time::{interval, sleep};

use super::NatsInner;
use super::lane::Lane;
use crate::engine::SessionId;
use crate::engine::lock::lock;
use crate::engine::store::EventStore;

const PAUSE: Duration = Duration::from_secs(1);
/// Time between two checks for local followers. Until then, a new follower polls.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Maximum sessions to follow by subject, because a server compares each subject with all others.
const SUBJECTS_MAX: usize = 500;
/// Time between two publications of heads, and their number: 10,000 hosts keep half a stream busy with that.
const TELL_EVERY: Duration = Duration::from_secs(5);
const TOLD_AT_ONCE: usize = 5;

/// Follows the sessions with local followers that other hosts may extend.
pub(super) async fn follow(store: Weak<NatsInner>) {
    loop {
        let Some(inner) = store.upgrade() else { return };
        let followed = inner.followed();
        if followed.is_empty() {
            drop(inner);
            sleep(LOOK_AGAIN).await;
        } else if follow_these(&store, inner, &followed).await.is_none() {
            sleep(PAUSE).await;
        }
    }
}

/// Adds new commits of some sessions to the local copy, until other sessions need to be followed. Returns `None` if the
/// subscription fails.
async fn follow_these(store: &Weak<NatsInner>, inner: Arc<NatsInner>, followed: &BTreeSet<SessionId>) -> Option<()> {
    let filter_subjects = if followed.len() > SUBJECTS_MAX {
        vec![format!("{}.s.*", inner.cluster.name())]
    } else {
        followed.iter().map(|session| inner.cluster.subject(*session)).collect()
    };
    let config = OrderedConfig {
        filter_subjects,
        deliver_policy: DeliverPolicy::New,
        headers_only: true,
        ..OrderedConfig::default()
    };
    let mut messages = inner.cluster.stream.create_consumer(config).await.ok()?.messages().await.ok()?;
    // Commits from before the subscription.
    for session in followed {
        tokio::spawn(catch_up(Arc::clone(&inner), inner.lane(*session)));
    }
    drop(inner);
    let mut look = interval(LOOK_AGAIN);
    loop {
        tokio::select! {
            message = messages.next() => {
                let message = message?.ok()?;
                let inner = store.upgrade()?;
                if let Some(session) = inner.cluster.session_of(&message.subject) && followed.contains(&session) {
                    tokio::spawn(catch_up(Arc::clone(&inner), inner.lane(session)));
                }
            }
            _ = look.tick() => {
                let wanted = store.upgrade()?.followed();
                if wanted.is_empty() || !wanted.is_subset(followed) {
                    return Some(());
                }
            }
        }
    }
}

impl NatsInner {
    /// Returns the sessions with local followers, except sessions that only this host extends.
    fn followed(&self) -> BTreeSet<SessionId> {
        let mut followed = self.local.bus().followed();
        if !followed.is_empty() {
            let lanes = lock(&self.lanes);
            followed.retain(|session| lanes.get(session).is_none_or(|lane| !lane.is_held()));
        }
        followed
    }
}

async fn catch_up(inner: Arc<NatsInner>, lane: Arc<Lane>) {
    let mut cursor = lane.cursor.lock().await;
    // This host may have claimed it since.
    if lane.is_fresh() {
        return;
    }
    if let Err(error) = inner.catch_up(&lane, &mut cursor).await {
        tracing::warn!(%error, "failed to follow another host's commits");
    }
}

/// Publishes the heads of the sessions that this process extends, periodically.
pub(super) async fn tell_moved(store: Weak<NatsInner>) {
    loop {
        sleep(TELL_EVERY).await;
        let Some(inner) = store.upgrade() else { return };
        inner.catalogue.tell_moved(&inner.local, TOLD_AT_ONCE).await;
        super::cursors::save(&inner);
    }
}
