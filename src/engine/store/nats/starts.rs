//! Snapshots on the cluster: a host starts its copy of a long session at a snapshot, and reads the events after it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::object_store::InfoErrorKind;
use tokio::time::timeout;

use super::NatsInner;
use super::lane::Lane;
use crate::engine::lock::lock;
use crate::engine::store::index::{packed_snapshot, unpacked_snapshot};
use crate::engine::store::local::late::LateStart;
use crate::engine::store::{EventStore, Result, Snapshot, StoreError};
use crate::engine::{Digest, Seq, SessionId};

/// Bytes of a snapshot for each event until the next snapshot.
const BYTES_PER_EVENT: u64 = 100;
/// Time limit to read a snapshot before falling back to the whole history, and to finish uploads in flight.
const SNAPSHOT_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Events per step when reading the past of a session.
const PAST_AT_ONCE: u64 = 4096;

/// A session's start at a snapshot.
struct ClusterSnapshot {
    /// A stream position: the snapshot includes everything up to it, and perhaps more.
    at: u64,
    start: LateStart,
    snapshot: Snapshot,
}

impl ClusterSnapshot {
    /// Encodes the digest of the rest, the position, the length of the start, the start, and the snapshot.
    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = self.at.to_le_bytes().to_vec();
        let start = self.start.encode()?;
        bytes.extend_from_slice(&u32::try_from(start.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&start);
        bytes.extend_from_slice(&packed_snapshot(&self.snapshot)?);
        Ok([&Digest::of(&bytes).as_bytes()[..], &bytes].concat())
    }

    fn decode(session: SessionId, mut bytes: &[u8]) -> Option<Self> {
        let digest = Digest::from_bytes(*bytes.split_off(..32)?.first_chunk()?);
        digest.is_of(bytes).then_some(())?;
        let at = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
        let length = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let start = LateStart::decode(bytes.split_off(..usize::try_from(length).ok()?)?)?;
        let snapshot = unpacked_snapshot(session, start.entry.head, bytes)?;
        (start.entry.id == session).then_some(Self { at, start, snapshot })
    }
}

impl NatsInner {
    /// Uploads a snapshot to the cluster, if its session has grown enough since the last one.
    pub(super) async fn offer(self: Arc<Self>, snapshot: Snapshot) {
        let (session, seq) = (snapshot.session, snapshot.seq);
        let lane = self.lane(session);
        // One upload at a time.
        let Ok(mut due) = lane.snapshot_due.try_lock() else { return };
        if seq < self.snapshot_every.max(*due) || !lane.is_ours() {
            return;
        }
        match self.put_start(&lane, snapshot).await {
            Ok(bytes) => *due = self.next_due(seq, bytes),
            Err(why) => tracing::debug!(why, %session, seq, "failed to upload a snapshot to the cluster"),
        }
    }

    fn next_due(&self, seq: Seq, bytes: u64) -> Seq {
        seq + self.snapshot_every.max(bytes / BYTES_PER_EVENT)
    }

    /// Waits for uploads in flight.
    pub(super) async fn end_offers(&self) {
        let all = async {
            for lane in self.lanes() {
                drop(lane.snapshot_due.lock().await);
            }
        };
        drop(timeout(SNAPSHOT_TIME_LIMIT, all).await);
    }

    async fn put_start(&self, lane: &Lane, snapshot: Snapshot) -> Result<u64, String> {
        let session = lane.session;
        let start = {
            let _cursor = lane.cursor.lock().await;
            self.local.start_at(session, snapshot.seq).map_err(|error| error.to_string())?
        };
        let at = lane.place_of(snapshot.seq).ok_or("its stream position is unknown")?;
        let value = ClusterSnapshot { at, start, snapshot }.encode().map_err(|error| error.to_string())?;
        let put = self.snapshots.put(session.to_string().as_str(), &mut &value[..]).await;
        put.map_err(|error| error.to_string())?;
        Ok(value.len() as u64)
    }

    /// Starts the copy of a session at the cluster's snapshot, if any. Errors are harmless, because the events suffice.
    pub(super) async fn begin_late(&self, lane: &Lane, cursor: &mut Option<u64>) {
        match timeout(SNAPSHOT_TIME_LIMIT, self.begin_at_snapshot(lane)).await {
            Ok(Ok(Some(at))) => *cursor = Some(at),
            Ok(Ok(None)) => {}
            outcome => tracing::debug!(?outcome, session = %lane.session, "reading the whole history"),
        }
    }

    async fn begin_at_snapshot(&self, lane: &Lane) -> Result<Option<u64>, String> {
        let Some(value) = self.object(lane.session).await? else { return Ok(None) };
        let found = ClusterSnapshot::decode(lane.session, &value).ok_or("the snapshot is invalid")?;
        let (ClusterSnapshot { at, start, snapshot }, bytes) = (found, value.len() as u64);
        if !self.local.begin_late(start).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        // An earlier lane of its past belongs to a removed copy.
        lock(&self.pasts).remove(&lane.session);
        if let Ok(mut due) = lane.snapshot_due.try_lock() {
            *due = self.next_due(snapshot.seq, bytes);
        }
        self.local.put_snapshot(&snapshot).map_err(|error| error.to_string())?;
        Ok(Some(at))
    }

    /// Reads the object of a session. `None` if it does not exist. The library would create a consumer for it, and a
    /// stream has 1,000 consumers at most.
    async fn object(&self, session: SessionId) -> Result<Option<Vec<u8>>, String> {
        let info = match self.snapshots.info(session.to_string()).await {
            Ok(info) if !info.deleted => info,
            Err(error) if error.kind() != InfoErrorKind::NotFound => return Err(error.to_string()),
            _ => return Ok(None),
        };
        let (stream, parts) = (format!("OBJ_{}", info.bucket), format!("$O.{}.C.{}", info.bucket, info.nuid));
        let (mut value, mut from) = (Vec::new(), 1);
        while value.len() < info.size {
            let batch = self.cluster.messages_from(&stream, &parts, from).await?;
            from = batch.last().ok_or("a part of the snapshot is missing")?.0 + 1;
            batch.iter().for_each(|(_, part)| value.extend_from_slice(&part.payload));
        }
        Ok(Some(value))
    }

    /// Ensures that the local copy has an event, even if it started the session late.
    pub(super) async fn fill(&self, session: SessionId, seq: Seq) -> Result<()> {
        while let Err(StoreError::NotHere { session: late, until }) = self.local.read(session, seq, seq, 1) {
            let past = self.past_lane(late);
            let mut cursor = past.cursor.lock().await;
            self.read_until(&past, &mut cursor, u64::MAX, until.min(seq.saturating_add(PAST_AT_ONCE))).await?;
        }
        Ok(())
    }

    /// Deletes the snapshot of a removed session.
    pub(super) async fn forget_snapshot(&self, session: SessionId) {
        if let Err(error) = self.snapshots.delete(session.to_string()).await {
            tracing::debug!(%error, %session, "failed to delete a snapshot from the cluster");
        }
    }
}
