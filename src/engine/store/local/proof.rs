//! Proofs of a loss: an index that goes further than the journal, or a seal that nothing follows.

use crate::engine::commit::CommitView;
use crate::engine::id::SessionId;
use crate::engine::recorded::Seq;
use crate::engine::store::index::{Index, Row};
use crate::engine::store::journal::{self, Place, Segments, scan};
use crate::engine::store::{Loss, LostEvents, StoreError};

/// A loss with what the index knows of its sessions.
pub(super) struct Found {
    pub(super) loss: Loss,
    pub(super) rows: Vec<Row>,
}

/// End of a journal.
pub(super) struct Ending {
    pub(super) place: Place,
    /// Set where its last segment says that another one follows.
    pub(super) is_followed: bool,
    /// Set where all before the end is known to be whole.
    pub(super) is_whole: bool,
}

/// Finds a loss behind the journal's end. An index is given where it does not fit the journal.
pub(super) fn find(segments: &Segments, ending: &Ending, index: Option<&Index>) -> Option<Found> {
    if let Some(found) = index.and_then(|index| by_index(index, segments, ending).ok().flatten()) {
        return Some(found);
    }
    let Place { segment, offset } = ending.place;
    let proof = format!("whose seal says that segment {} follows", segment + 1);
    let loss = Loss { segment, offset: u64::from(offset), proof, sessions: Vec::new() };
    ending.is_followed.then_some(Found { loss, rows: Vec::new() })
}

/// Finds what an index of this journal proves: it is told only of what is durable. One of another journal, or
/// damaged, proves nothing.
fn by_index(index: &Index, segments: &Segments, ending: &Ending) -> Result<Option<Found>, StoreError> {
    let end = ending.place;
    let identity = journal::identity(segments, &segments.numbers()?);
    let stamp = index.stamp().filter(|stamp| stamp.end > end && identity.is_none_or(|id| id == stamp.journal));
    let Some(stamp) = stamp else { return Ok(None) };
    let (mut sessions, mut rows) = (Vec::new(), Vec::new());
    for row in index.rows()?.into_iter().filter(|row| !row.buried) {
        let (session, last) = (row.entry.id, row.entry.head);
        let positions = index.positions(session, row.entry.origin.seq, usize::MAX)?;
        let kept = positions.partition_point(|(_, place)| *place < end);
        if let Some((first, place)) = positions[..kept].last() {
            let found = commit_at(segments, *place);
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
    Ok(Some(Found { loss, rows }))
}

/// The session and the first position of a commit in the journal.
fn commit_at(segments: &Segments, place: Place) -> Option<(SessionId, Seq)> {
    let segment = segments.get(place.segment).ok()?;
    let (kind, payload) = scan::frame_at(&segment, u64::from(place.offset)).ok()?;
    let commit = CommitView::parse(kind.commit_in(&payload)?).ok()?;
    Some((commit.session, commit.first))
}
