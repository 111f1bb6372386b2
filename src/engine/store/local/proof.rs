//! Proofs of a loss: an index that goes further than the journal, a seal that nothing follows, or a note that one was
//! found, and that going on without was begun.

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

/// File that keeps a loss from before its other proofs are removed until all sessions record it.
const NOTE: &str = "loss.json";

#[derive(Serialize, Deserialize)]
struct LossNote {
    /// Id of the commits that record it, so that a retry after a crash records it once.
    id: [u8; 16],
    loss: Loss,
    rows: Vec<Vec<u8>>,
}

/// Saves a loss durably unless it is; returns the id of the commits that record it.
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
    let what = "is no note of lost events; remove it to go by the journal and the index alone".to_owned();
    found.map(Some).ok_or(StoreError::Format { path, what })
}

pub(super) fn forget(disk: &dyn JournalDisk, directory: &Path) -> Result<()> {
    let path = directory.join(NOTE);
    disk.remove(&path).map_err(StoreError::io("remove", &path))?;
    sync_directory(disk, directory)
}

pub(super) struct JournalEnd {
    pub(super) place: FramePosition,
    /// Set if its last segment says that another one follows.
    pub(super) is_followed: bool,
    /// Set if everything before the end is known to be whole.
    pub(super) is_whole: bool,
}

/// Finds a loss behind the journal's end. `index` is given only if it does not fit the journal.
pub(super) fn find(segments: &Segments, ending: &JournalEnd, index: Option<&SledIndex>) -> Option<ProvenLoss> {
    if let Some(found) = index.and_then(|index| by_index(index, segments, ending).ok().flatten()) {
        return Some(found);
    }
    let FramePosition { segment, offset } = ending.place;
    let proof = format!("whose seal says that segment {} follows", segment + 1);
    let loss = Loss { segment, offset: u64::from(offset), proof, sessions: Vec::new() };
    ending.is_followed.then_some(ProvenLoss { loss, rows: Vec::new() })
}

/// Finds a loss by an index, which knows only durable frames. One that is damaged or of another journal proves nothing.
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
    let proof = format!("and the index knows of it up to byte {} of segment {}", stamp.end.offset, stamp.end.segment);
    let loss = Loss { segment: end.segment, offset: u64::from(end.offset), proof, sessions };
    Ok(Some(ProvenLoss { loss, rows }))
}

fn commit_at(segments: &Segments, session: SessionId, place: FramePosition) -> Option<(SessionId, Seq)> {
    let segment = segments.get(place.segment).ok()?;
    let (kind, payload) = scan::frame_at(&segment, journal::session_group(session), u64::from(place.offset)).ok()?;
    let commit = CommitView::parse(kind.commit_in(&payload)?).ok()?;
    Some((commit.session, commit.first))
}
