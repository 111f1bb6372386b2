//! Last stream position of each session in the local copy, stored for the next process.

use std::collections::BTreeMap;

use super::NatsInner;
use crate::engine::store::{EventStore, LocalStore};
use crate::engine::{Seq, SessionId};

const FILE: &str = "nats-cursors";

/// Reads the positions that an earlier process stored, for sessions that the copy still has.
#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
pub(super) fn load(local: &LocalStore) -> BTreeMap<SessionId, u64> {
    let kept = std::fs::read(local.directory().join(FILE)).unwrap_or_default();
    let kept: BTreeMap<SessionId, (Seq, u64)> = serde_json::from_slice(&kept).unwrap_or_default();
    let is_there = |(session, (seq, at)): (SessionId, (Seq, u64))| {
        local.head(session).is_ok_and(|head| head >= seq).then_some((session, at))
    };
    kept.into_iter().filter_map(is_there).collect()
}

/// Stores the positions. Without them, sessions are read from their beginning.
pub(super) fn save(inner: &NatsInner) {
    let mut kept = BTreeMap::new();
    for lane in inner.lanes() {
        let at = lane.cursor.try_lock().ok().and_then(|cursor| *cursor);
        if let (Some(at), Ok(head)) = (at, inner.local.head(lane.session)) {
            kept.insert(lane.session, (head, at));
        }
    }
    let written = serde_json::to_vec(&kept).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|kept| super::replace(inner.local.directory(), FILE, &kept)) {
        tracing::debug!(%error, "failed to store the cursors");
    }
}
