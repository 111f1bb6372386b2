use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use super::compare::{SealProblem, compare};
use super::leaf_log::{LeafKind, LeafLog, SealLeaf};
use super::{IntegrityError, NoteSigner, NoteVerifier, merkle};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::sessions::Sessions;

/// New checkpoint of a store.
#[derive(Debug, Clone, Serialize)]
pub struct NewSeal {
    /// Signed checkpoint.
    pub checkpoint: String,
    /// Number of leaves that it covers.
    pub size: u64,
    /// Number of new or longer sessions, which were sealed now.
    pub sealed: u64,
    /// Removed sessions. The log now records the removal.
    pub removed: Vec<SessionId>,
    /// Sessions that differ from their last seal. The log now records the difference.
    pub changed: Vec<SealProblem>,
}

/// Signs a checkpoint of all histories in the store. The directory `data` has the log of seals.
///
/// Reads only new and longer sessions. Fails with [`IntegrityError::Differs`] if the log was changed, or if a session
/// differs from its last seal and `accept_changes` is false.
pub fn seal_store(
    sessions: &Sessions,
    data: &Path,
    signer: &NoteSigner,
    accept_changes: bool,
) -> Result<NewSeal, IntegrityError> {
    let mut log = LeafLog::append_to(data)?;
    log.last_checkpoint(signer.verifier())?;
    let mut known = log.sessions(log.leaves.len());
    let (mut leaves, mut changed, mut removed, mut sealed) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for entry in sessions.store().entries()? {
        let (session, seq) = (entry.id, entry.head);
        let seals = known.remove(&session).unwrap_or_default();
        let last = seals.seals.last().copied();
        if last.is_some_and(|(last, ..)| last == seq) {
            continue;
        }
        let (chain, problem) = compare(sessions.store().as_ref(), session, seq, &seals)?;
        if let (Some(problem), Some((seq, chain, _))) = (problem, last) {
            changed.push(problem);
            leaves.push(SealLeaf { kind: LeafKind::Changed, session, seq, chain });
        }
        if let Some(chain) = chain {
            leaves.push(SealLeaf { kind: LeafKind::Session, session, seq, chain });
            sealed += 1;
        }
    }
    for (session, seals) in known {
        if let Some((seq, chain, _)) = seals.seals.last().copied() {
            leaves.push(SealLeaf { kind: LeafKind::Removed, session, seq, chain });
            removed.push(session);
        }
    }
    if let Some(problem) = changed.first().filter(|_| !accept_changes) {
        return Err(IntegrityError::Differs(format!(
            "sessions that differ from their last seal: {}; {problem}",
            changed.len()
        )));
    }
    log.append(&leaves)?;
    let checkpoint = log.checkpoint(signer.verifier().name());
    let size = checkpoint.size;
    let checkpoint = signer.sign(&checkpoint.to_string());
    log.put_checkpoint(&checkpoint)?;
    Ok(NewSeal { checkpoint, size, sealed, removed, changed })
}

/// Returns the body of a request to a witness to cosign the last checkpoint (C2SP tlog-witness). `old` is the size of
/// the checkpoint that it last cosigned, or 0.
pub fn witness_request(data: &Path, key: &NoteVerifier, old: Seq) -> Result<String, IntegrityError> {
    let log = LeafLog::read(data)?;
    let (note, leaves) = log.last_checkpoint(key)?.ok_or_else(|| IntegrityError::Unsigned(key.name().to_owned()))?;
    let proof = match usize::try_from(old).ok().filter(|old| *old <= leaves.len()) {
        None => {
            return Err(IntegrityError::Invalid(format!(
                "size {old}: the last checkpoint has {} leaves",
                leaves.len()
            )));
        }
        Some(0) => Vec::new(),
        Some(old) => merkle::consistency(old, leaves),
    };
    let lines: String = proof.iter().map(|hash| format!("{}\n", BASE64_STANDARD.encode(hash))).collect();
    Ok(format!("old {old}\n{lines}\n{note}"))
}
