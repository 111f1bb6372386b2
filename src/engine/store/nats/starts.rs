//! Snapshots on the cluster: a host begins its copy of a long session with one, and reads the events behind it.

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

/// Bytes of a snapshot for each event since the last one.
const BYTES_PER_EVENT: u64 = 100;
/// Time to read one, after which the whole history is read, and for those to end that are under way.
const PATIENCE: Duration = Duration::from_secs(5);
/// Events that are read of the past of a session at once.
const PAST_AT_ONCE: u64 = 4096;

/// A session at a snapshot.
struct ClusterSnapshot {
    /// A position in the stream: what is up to there is in the snapshot, and more may be.
    at: u64,
    start: LateStart,
    snapshot: Snapshot,
}

impl ClusterSnapshot {
    /// Encodes the digest of what follows, the position, the length of the start, the start, and the snapshot.
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
    /// Keeps a snapshot on the cluster if enough has happened in its session since the last one.
    pub(super) async fn offer(self: Arc<Self>, snapshot: Snapshot) {
        let (session, seq) = (snapshot.session, snapshot.seq);
        let lane = self.lane(session);
        // One at a time.
        let Ok(mut due) = lane.snapshot_due.try_lock() else { return };
        if seq < self.snapshot_every.max(*due) || !lane.is_ours() {
            return;
        }
        match self.put_start(&lane, snapshot).await {
            Ok(bytes) => *due = self.next_due(seq, bytes),
            Err(why) => tracing::debug!(why, %session, seq, "a snapshot is not kept on the cluster"),
        }
    }

    fn next_due(&self, seq: Seq, bytes: u64) -> Seq {
        seq + self.snapshot_every.max(bytes / BYTES_PER_EVENT)
    }

    /// Waits for those that are under way.
    pub(super) async fn end_offers(&self) {
        let all = async {
            for lane in self.lanes() {
                drop(lane.snapshot_due.lock().await);
            }
        };
        drop(timeout(PATIENCE, all).await);
    }

    async fn put_start(&self, lane: &Lane, snapshot: Snapshot) -> Result<u64, String> {
        let session = lane.session;
        let start = {
            let _cursor = lane.cursor.lock().await;
            self.local.start_at(session, snapshot.seq).map_err(|error| error.to_string())?
        };
        let at = lane.place_of(snapshot.seq).ok_or("its place in the stream is not known")?;
        let value = ClusterSnapshot { at, start, snapshot }.encode().map_err(|error| error.to_string())?;
        let put = self.snapshots.put(session.to_string().as_str(), &mut &value[..]).await;
        put.map_err(|error| error.to_string())?;
        Ok(value.len() as u64)
    }

    /// Begins the copy of a session with the snapshot that the cluster has of it, if it has one. What goes wrong with it
    /// is no loss: the events suffice.
    pub(super) async fn begin_late(&self, lane: &Lane, cursor: &mut Option<u64>) {
        match timeout(PATIENCE, self.begin_at_snapshot(lane)).await {
            Ok(Ok(Some(at))) => *cursor = Some(at),
            Ok(Ok(None)) => {}
            outcome => tracing::debug!(?outcome, session = %lane.session, "the whole history is read"),
        }
    }

    async fn begin_at_snapshot(&self, lane: &Lane) -> Result<Option<u64>, String> {
        let Some(value) = self.object(lane.session).await? else { return Ok(None) };
        let found = ClusterSnapshot::decode(lane.session, &value).ok_or("the snapshot makes no sense")?;
        let (ClusterSnapshot { at, start, snapshot }, bytes) = (found, value.len() as u64);
        if !self.local.begin_late(start).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        // What was read of its past went with a copy that was removed.
        lock(&self.pasts).remove(&lane.session);
        if let Ok(mut due) = lane.snapshot_due.try_lock() {
            *due = self.next_due(snapshot.seq, bytes);
        }
        self.local.put_snapshot(&snapshot).map_err(|error| error.to_string())?;
        Ok(Some(at))
    }

    /// Reads the object of a session; none if there is none. The library would make a consumer for it, of which a stream has
    /// 1,000 at most.
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
            from = batch.last().ok_or("a part of the snapshot is not there")?.0 + 1;
            batch.iter().for_each(|(_, part)| value.extend_from_slice(&part.payload));
        }
        Ok(Some(value))
    }

    /// Makes sure that the local copy has an event, also of a session that it began late.
    pub(super) async fn fill(&self, session: SessionId, seq: Seq) -> Result<()> {
        while let Err(StoreError::NotHere { session: late, until }) = self.local.read(session, seq, seq, 1) {
            let past = self.past_lane(late);
            let mut cursor = past.cursor.lock().await;
            self.read_until(&past, &mut cursor, u64::MAX, until.min(seq.saturating_add(PAST_AT_ONCE))).await?;
        }
        Ok(())
    }

    /// Forgets the snapshot of a session that is removed.
    pub(super) async fn forget_snapshot(&self, session: SessionId) {
        if let Err(error) = self.snapshots.delete(session.to_string()).await {
            tracing::debug!(%error, %session, "no snapshot is removed from the cluster");
        }
    }
}
