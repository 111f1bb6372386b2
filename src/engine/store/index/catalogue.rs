//! Rows of the catalogue of sessions.

use bytes::Buf;

use crate::engine::store::journal::FramePosition;
use crate::engine::store::{Result, SessionEntry};
use crate::engine::{Commit, CommitView, ForkPoint, SessionId, Timestamp};

use super::{place_bytes, take_place};

#[derive(Debug, Clone)]
pub(in crate::engine::store) struct CatalogueRow {
    pub(in crate::engine::store) entry: SessionEntry,
    /// Number of calls started in its own events.
    pub(in crate::engine::store) own_calls: u64,
    /// Place of its first own commit.
    pub(in crate::engine::store) begun: FramePosition,
    pub(in crate::engine::store) base: Option<ForkPoint>,
    /// True if it was removed and is retained for its children.
    pub(in crate::engine::store) buried: bool,
}

impl CatalogueRow {
    /// Creates a row from an entry, without the fields that only the index knows.
    pub(in crate::engine::store) fn of(entry: SessionEntry) -> Self {
        Self { entry, own_calls: 0, begun: FramePosition::default(), base: None, buried: false }
    }

    /// Encodes head, its time, calls (all ones for `None`), own calls, begin, buried, base (zeros for `None`), and the
    /// first event as a separate commit.
    pub(in crate::engine::store) fn encode(&self) -> Result<Vec<u8>> {
        let mut value = self.entry.head.to_le_bytes().to_vec();
        value.extend_from_slice(&self.entry.updated.0.to_le_bytes());
        value.extend_from_slice(&self.entry.calls.unwrap_or(u64::MAX).to_le_bytes());
        value.extend_from_slice(&self.own_calls.to_le_bytes());
        value.extend_from_slice(&place_bytes(self.begun));
        value.push(u8::from(self.buried));
        value.extend_from_slice(self.base.as_ref().map_or(&[0; 16], |base| base.session.as_bytes()));
        value.extend_from_slice(&self.base.map_or(0, |base| base.seq).to_le_bytes());
        let origin = &self.entry.origin;
        Commit::of_recorded(origin)?.encode(origin.seq, origin.time, &mut value);
        Ok(value)
    }

    pub(in crate::engine::store) fn decode(value: &[u8]) -> Option<Self> {
        let mut rest = value;
        let (head, updated) = (rest.try_get_u64_le().ok()?, Timestamp(rest.try_get_i64_le().ok()?));
        let (calls, own_calls) = (rest.try_get_u64_le().ok()?, rest.try_get_u64_le().ok()?);
        let calls = (calls < u64::MAX).then_some(calls);
        let (begun, buried) = (take_place(&mut rest)?, rest.try_get_u8().ok()? == 1);
        let session = SessionId::from_bytes(*rest.split_off(..16)?.first_chunk()?);
        let seq = rest.try_get_u64_le().ok()?;
        let base = (seq > 0).then_some(ForkPoint { session, seq });
        let commit = CommitView::parse(rest).ok()?;
        let origin = commit.events().next()?.ok()?.to_recorded();
        let entry = SessionEntry { id: commit.session, head, updated, origin, calls };
        Some(Self { entry, own_calls, begun, base, buried })
    }
}
