//! Sessions that start late: copies that begin at a snapshot.
//!
//! The missing history, the [past](past_of), is a separate session, filled on first read.

use std::sync::Arc;

use bytes::Buf;

use super::LocalInner;
use super::session_head::{SessionHead, past_of};
use super::session_heads::Slots;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::journal::frame::FrameKind;
use crate::engine::store::journal::{FramePosition, NO_SESSION, scan};
use crate::engine::store::{Result, SessionEntry, StoreError};
use crate::engine::{CommitId, ForkPoint, Seq, SessionId};

/// The starting point of a session's copy that begins at a later position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine::store) struct LateStart {
    /// The session's entry at that position.
    pub(in crate::engine::store) entry: SessionEntry,
    /// The last commits with ids, to recognise retries.
    pub(in crate::engine::store) recent: Vec<(CommitId, Seq, Seq)>,
}

impl LateStart {
    /// Decodes the output of `encode`. `None` for other bytes.
    pub(in crate::engine::store) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let session = SessionId::from_bytes(*bytes.split_off(..16)?.first_chunk()?);
        let (seq, length) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u32_le().ok()?);
        let entry = CatalogueRow::decode(bytes.split_off(..usize::try_from(length).ok()?)?)?.entry;
        let mut recent = Vec::new();
        while !bytes.is_empty() {
            let id = CommitId::from_bytes(*bytes.split_off(..16)?.first_chunk()?);
            recent.push((id, bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?));
        }
        (entry.id == session && entry.head == seq && seq > 0).then_some(Self { entry, recent })
    }
}

impl Slots {
    /// Starts a session late, with its frame at `begun`.
    pub(super) fn begin_late(&self, entry: SessionEntry, begun: FramePosition) -> Arc<SessionHead> {
        let base = Some(ForkPoint { session: past_of(entry.id), seq: entry.head });
        let slot = Arc::new(SessionHead::of_row(&CatalogueRow { begun, base, ..CatalogueRow::of(entry) }));
        self.add_past(&slot);
        self.add(Arc::clone(&slot));
        slot
    }

    /// Adds the session for the past of a session that started late.
    pub(super) fn add_past(&self, slot: &SessionHead) {
        self.get_or_add(past_of(slot.id)).lock().children += 1;
    }

    /// Starts a session from a late start found in the journal. Returns false if that is invalid.
    pub(super) fn found_late(&self, payload: &[u8], place: FramePosition) -> bool {
        let start = LateStart::decode(payload).filter(|start| self.is_free(start.entry.id));
        start.map(|start| self.note(&self.begin_late(start.entry, place))).is_some()
    }

    pub(super) fn is_free(&self, session: SessionId) -> bool {
        self.get(session).is_none_or(|slot| slot.visible() == 0)
    }
}

impl LocalInner {
    /// Returns the commits with ids before a late start, in order; empty for other sessions.
    pub(super) fn named_before(&self, slot: &SessionHead, begun: FramePosition) -> Result<Vec<(CommitId, Seq, Seq)>> {
        if !slot.is_late() {
            return Ok(Vec::new());
        }
        let segment = self.segments.get(begun.segment)?;
        let (kind, payload) = scan::frame_at(&segment, NO_SESSION, u64::from(begun.offset))?;
        let start = LateStart::decode(&payload).filter(|_| kind == FrameKind::LateStart);
        let start = start.ok_or_else(|| StoreError::Index(format!("the start of session {} is missing", slot.id)))?;
        Ok(start.recent)
    }
}
