//! Proofs of a loss: an index that is ahead of the journal, a seal that no segment follows, or the note of a loss that
//! is being accepted.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::store::index::{CatalogueRow, SledIndex};
use crate::engine::store::journal::disk::{JournalDisk, read_whole};
use crate::engine::store::journal::segment::{put_file, sync_directory};
use crate::engine::store::journal::{self, FramePosition, Segments, scan};
use crate::engine::store::{Loss, LostEvents, Result, StoreError};
use crate::engine::{Clock, CommitId, CommitView, Seq, SessionId, SystemClock};

pub(super) struct ProvenLoss {
    pub(super) loss: Loss,
    pub(super) rows: Vec<CatalogueRow>,
}

/// The file that preserves a loss, from before its other proofs are removed until all sessions have recorded it.
const NOTE: &str = "loss.json";

#[derive(Serialize, Deserialize)]
struct LossNote {
    /// Id of the commits that record the loss, so that a retry after a crash does not record it twice.
    id: [u8; 16],
    loss: Loss,
    rows: Vec<Vec<u8>>,
}

/// Saves a loss durably, unless one is saved already; returns the id of the commits that record it.
pub(super) fn note(disk: &dyn JournalDisk, directory: &Path, found: &ProvenLoss) -> Result<CommitId> {
    if let Some((id, _)) = noted(disk, directory)? {
        return Ok(id);
    }
    let rows = found.rows.iter().map(CatalogueRow::encode).collect::<Result<_, _>>()?;
    let note = LossNote { id: SystemClock::default().fresh_id(), loss: found.loss.clone(), rows };
    put_file(disk, &directory.join(NOTE), &serde_json::to_vec(&note).unwrap_or_default())?;
    Ok(CommitId::from_bytes(note.id))
}

pub(super) fn noted(disk: &dyn JournalDisk, directory: &Path) -> Result<Option<(CommitId, ProvenLoss)>> {
    let path = directory.join(NOTE);
    if !disk.exists(&path) {
        return Ok(None);
    }
    let bytes = read_whole(disk, &path).map_err(StoreError::io("read", &path))?;
    let note = serde_json::from_slice::<LossNote>(&bytes).ok();
    let found = note.and_then(|LossNote { id, loss, rows }| {
        let rows = rows.iter().map(|row| CatalogueRow::decode(row)).collect::<Option<_>>()?;
        Some((CommitId::from_bytes(id), ProvenLoss { loss, rows }))
    });
    let what = "is not a valid record of lost events; remove it to rely on the journal and the index alone".to_owned();
    found.map(Some).ok_or(StoreError::Format { path, what })
}

pub(super) fn forget(disk: &dyn JournalDisk, directory: &Path) -> Result<()> {
    let path = directory.join(NOTE);
    disk.remove(&path).map_err(StoreError::io("remove", &path))?;
    sync_directory(disk, directory)
}

pub(super) struct JournalEnd {
    pub(super) place: FramePosition,
    /// True if its last segment's seal says that another segment follows.
    pub(super) is_followed: bool,
    /// True if everything before the end is known to be intact.
    pub(super) is_whole: bool,
}

/// Finds a loss behind the journal's end. Pass `index` only if it does not match the journal.
pub(super) fn find(segments: &Segments, ending: &JournalEnd, index: Option<&SledIndex>) -> Option<ProvenLoss> {
    if let Some(found) = index.and_then(|index| by_index(index, segments, ending).ok().flatten()) {
        return Some(found);
    }
    let FramePosition { segment, offset } = ending.place;
    let proof = format!("but a seal there says that segment {} follows", segment + 1);
    let loss = Loss { segment, offset: u64::from(offset), proof, sessions: Vec::new() };
    ending.is_followed.then_some(ProvenLoss { loss, rows: Vec::new() })
}

/// Finds a loss by the index, which contains only durable frames. A damaged or foreign index proves nothing.
fn by_index(index: &SledIndex, segments: &Segments, ending: &JournalEnd) -> Result<Option<ProvenLoss>> {
    let end = ending.place;
    let identity = journal::identity(segments, &segments.numbers()?);
    let stamp = index.stamp().filter(|stamp| stamp.end > end && identity.is_none_or(|id| id == stamp.journal));
    let Some(stamp) = stamp else { return Ok(None) };
    let (mut sessions, mut rows) = (Vec::new(), Vec::new());
    for row in index.rows()?.into_iter().filter(|row| !row.buried) {
        let (session, last) = (row.entry.id, row.entry.head);
        let positions = index.positions(session, row.entry.origin.seq, Seq::MAX, usize::MAX)?;
        let kept = positions.partition_point(|(_, place)| *place < end);
        if let Some((first, place)) = positions[..kept].last() {
            let found = commit_at(segments, session, *place);
            if found.map_or(ending.is_whole, |found| found != (session, *first)) {
                return Ok(None);
            }
        }
        if let Some((first, _)) = positions.get(kept) {
            sessions.push(LostEvents { session, first: *first, last });
            rows.push(row);
        }
    }
    let proof = format!("but the index goes up to byte {} of segment {}", stamp.end.offset, stamp.end.segment);
    let loss = Loss { segment: end.segment, offset: u64::from(end.offset), proof, sessions };
    Ok(Some(ProvenLoss { loss, rows }))
}

fn commit_at(segments: &Segments, session: SessionId, place: FramePosition) -> Option<(SessionId, Seq)> {
    let segment = segments.get(place.segment).ok()?;
    let (kind, payload) = scan::frame_at(&segment, journal::session_group(session), u64::from(place.offset)).ok()?;
    let commit = CommitView::parse(kind.commit_in(&payload)?).ok()?;
    Some((commit.session, commit.first))
}
