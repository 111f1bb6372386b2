//! Rows of the catalogue of sessions.

use crate::engine::clock::Timestamp;
use crate::engine::commit::{Commit, CommitView, ForkPoint};
use crate::engine::id::SessionId;
use crate::engine::store::journal::FramePosition;
use crate::engine::store::{Result, SessionEntry};

use super::{place_bytes, place_of};

#[derive(Debug, Clone)]
pub(in crate::engine::store) struct CatalogueRow {
    pub(in crate::engine::store) entry: SessionEntry,
    /// Position of its first own commit.
    pub(in crate::engine::store) begun: FramePosition,
    pub(in crate::engine::store) base: Option<ForkPoint>,
    /// Set if it was removed and is kept for its children.
    pub(in crate::engine::store) buried: bool,
}

impl CatalogueRow {
    /// Encodes head, its time, begin, buried, base (16 zeros for none), and the first event as a commit of its own.
    pub(in crate::engine::store) fn encode(&self) -> Result<Vec<u8>> {
        let mut value = self.entry.head.to_le_bytes().to_vec();
        value.extend_from_slice(&self.entry.updated.0.to_le_bytes());
        value.extend_from_slice(&place_bytes(self.begun));
        value.push(u8::from(self.buried));
        value.extend_from_slice(self.base.as_ref().map_or(&[0; 16], |base| base.session.as_bytes()));
        value.extend_from_slice(&self.base.map_or(0, |base| base.seq).to_le_bytes());
        let origin = &self.entry.origin;
        let mut commit = Commit::new(self.entry.id, origin.time).as_agent(&origin.agent);
        commit.push_encoded(&origin.event.kind, origin.event.version, &origin.event.bytes)?;
        commit.encode(origin.seq, origin.time, &mut value);
        Ok(value)
    }

    pub(in crate::engine::store) fn decode(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<8>()?;
        let (updated, rest) = rest.split_first_chunk::<8>()?;
        let (begun, rest) = rest.split_first_chunk::<8>()?;
        let ([buried], rest) = rest.split_first_chunk::<1>()?;
        let (session, rest) = rest.split_first_chunk::<16>()?;
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let seq = u64::from_le_bytes(*seq);
        let commit = CommitView::parse(rest).ok()?;
        let origin = commit.events().next()?.ok()?.to_recorded();
        let entry = SessionEntry {
            id: commit.session,
            head: u64::from_le_bytes(*head),
            updated: Timestamp(i64::from_le_bytes(*updated)),
            origin,
        };
        let base = (seq > 0).then(|| ForkPoint { session: SessionId::from_bytes(*session), seq });
        Some(Self { entry, begun: place_of(begun)?, base, buried: *buried == 1 })
    }
}
