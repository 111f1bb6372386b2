use std::path::Path;

use serde::Serialize;

use super::checkpoint::Checkpoint;
use super::compare::{SealProblem, compare};
use super::leaf_log::{LeafKind, LeafLog};
use super::note::SignedNote;
use super::{IntegrityError, NoteVerifier};
use crate::engine::id::SessionId;
use crate::engine::session::sessions::Sessions;

/// Signature of a witness on a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cosignature {
    /// Name of the witness.
    pub witness: String,
    /// Time of the signature, in seconds since 1970.
    pub time: u64,
}

/// Result of the comparison of a store with a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedSeal {
    /// Log that the checkpoint is of.
    pub origin: String,
    /// Number of leaves that the checkpoint covers.
    pub size: u64,
    /// Number of sessions with an unchanged history.
    pub sessions: u64,
    /// Number of their sealed events, including inherited ones.
    pub events: u64,
    /// Number of these sessions that have new events.
    pub extended: u64,
    /// Removed sessions with a seal of the removal.
    pub removed: Vec<SessionId>,
    /// Signatures of the requested witnesses.
    pub cosignatures: Vec<Cosignature>,
    /// Differences from the checkpoint.
    pub problems: Vec<SealProblem>,
}

/// Reads a checkpoint that the key and all witnesses signed.
pub(super) fn trusted(
    note: &str,
    key: &NoteVerifier,
    witnesses: &[NoteVerifier],
) -> Result<(Checkpoint, Vec<Cosignature>), IntegrityError> {
    let note = SignedNote::parse(note)?;
    if key.is_witness() || witnesses.iter().any(|witness| !witness.is_witness()) {
        return Err(IntegrityError::Invalid("key: a log has a key of type 1, a witness one of type 4".to_owned()));
    }
    let checkpoint = Checkpoint::signed_by(&note, key)?;
    let cosigned = |witness: &NoteVerifier| {
        let (_, time) = note.signed_by(witness)?;
        Ok(Cosignature { witness: witness.name().to_owned(), time })
    };
    Ok((checkpoint, witnesses.iter().map(cosigned).collect::<Result<_, IntegrityError>>()?))
}

/// Compares a store with a checkpoint of it, signed by the key and by all witnesses. The directory `data` has the log
/// of seals.
///
/// Every covered session must still have its sealed events; it may have new ones. Rewound events are part of the
/// history. A removed session is no problem if a seal with the same key records the removal.
pub fn check_seal(
    sessions: &Sessions,
    data: &Path,
    note: &str,
    key: &NoteVerifier,
    witnesses: &[NoteVerifier],
) -> Result<CheckedSeal, IntegrityError> {
    let (checkpoint, cosignatures) = trusted(note, key, witnesses)?;
    let log = LeafLog::read(data)?;
    let size = log.covered(&checkpoint)?.len();
    // Later leaves count only if a checkpoint covers them.
    let end = log.last_checkpoint(key)?.map_or(size, |(_, leaves)| leaves.len().max(size));
    let later = log.sessions(end);
    let is_recorded = |session| {
        let mut leaves = log.leaves[size..end].iter();
        leaves.any(|leaf| leaf.session == session && leaf.kind == LeafKind::Changed)
    };
    let Checkpoint { origin, size: leaves, .. } = checkpoint;
    let (removed, problems) = (Vec::new(), Vec::new());
    let mut checked =
        CheckedSeal { origin, size: leaves, sessions: 0, events: 0, extended: 0, removed, cosignatures, problems };
    for (session, sealed) in log.sessions(size) {
        let is_removed = later.get(&session).is_some_and(|later| later.is_removed);
        let Some(until) = sealed.seals.last().map(|(seq, ..)| *seq) else {
            checked.removed.push(session);
            continue;
        };
        match sessions.store().entry(session)? {
            None if is_removed => checked.removed.push(session),
            None => {
                let what = "the session is missing".to_owned();
                checked.problems.push(SealProblem { session, from: 1, until, what });
            }
            Some(entry) => match compare(sessions.store().as_ref(), session, entry.head, &sealed)?.1 {
                Some(mut problem) => {
                    problem.what.push_str(if is_recorded(session) { ", as a later seal records" } else { "" });
                    checked.problems.push(problem);
                }
                None => {
                    checked.sessions += 1;
                    checked.events += until;
                    checked.extended += u64::from(entry.head > until);
                }
            },
        }
    }
    Ok(checked)
}
