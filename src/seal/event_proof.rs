//! Proofs that an exported event is in a checkpoint (C2SP tlog-proof).

use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use super::check::{Cosignature, trusted};
use super::checkpoint::{decimal, tree_hash};
use super::leaf_log::{LeafKind, LeafLog, SealLeaf};
use super::merkle::{self, TreeHash};
use super::{IntegrityError, NoteVerifier};
use crate::engine::chain::{HistoryChain, chain_before_export};
use crate::engine::id::{Seq, SessionId};
use crate::engine::portable::chain_of_export;
use crate::engine::recorded::Recorded;
use crate::engine::session::sessions::Sessions;

const HEAD: &str = "c2sp.org/tlog-proof@v1";

/// Event of an export that a checkpoint covers.
#[derive(Debug, Clone, Serialize)]
pub struct ProvenEvent {
    /// Event.
    pub event: Recorded,
    /// First covered event of the export: 1, or for a fork the event after its first commit.
    pub from: Seq,
    /// Last covered event of the export.
    pub until: Seq,
    /// Log that the checkpoint is of.
    pub origin: String,
    /// Number of leaves that the checkpoint covers.
    pub size: u64,
    /// Signatures of the requested witnesses.
    pub cosignatures: Vec<Cosignature>,
}

/// Returns a proof that the last checkpoint, signed by the key, covers an event. [`check_event_proof`] checks it with
/// an export of the session. Fails with [`IntegrityError::NotProvable`].
pub fn prove_event(
    sessions: &Sessions,
    data: &Path,
    key: &NoteVerifier,
    session: SessionId,
    seq: Seq,
) -> Result<String, IntegrityError> {
    let log = LeafLog::read(data)?;
    let unsealed = || IntegrityError::NotProvable(seq, "no seal covers it");
    let (note, leaves) = log.last_checkpoint(key)?.ok_or_else(unsealed)?;
    let sealed = log.sessions(leaves.len()).remove(&session).unwrap_or_default();
    let seal = sealed.seals.iter().find(|(until, ..)| seq > 0 && *until >= seq);
    let (_, _, index) = *seal.ok_or_else(unsealed)?;
    let start = chain_before_export(sessions.store().as_ref(), session)?;
    if seq <= start.seq {
        return Err(IntegrityError::NotProvable(seq, "an export of a fork has the fork's own start in its place"));
    }
    let extra = format!("{}\nafter {} {}\nevent {seq}\n", log.leaves[index], start.seq, start.value);
    let proof = merkle::inclusion(index, leaves);
    let hashes: String = proof.iter().map(|hash| format!("{}\n", BASE64_STANDARD.encode(hash))).collect();
    Ok(format!("{HEAD}\nextra {}\nindex {index}\n{hashes}\n{note}", BASE64_STANDARD.encode(extra)))
}

/// The parts of a proof.
struct EventProof<'a> {
    leaf: SealLeaf,
    start: HistoryChain,
    seq: Seq,
    index: u64,
    hashes: Vec<TreeHash>,
    note: &'a str,
}

impl<'a> EventProof<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (proof, note) = text.split_once("\n\n")?;
        let mut lines = proof.lines();
        lines.next().filter(|head| *head == HEAD)?;
        let extra = BASE64_STANDARD.decode(lines.next()?.strip_prefix("extra ")?).ok()?;
        let index = decimal(lines.next()?.strip_prefix("index ")?)?;
        let hashes = lines.map(tree_hash).collect::<Option<_>>()?;
        let extra = String::from_utf8(extra).ok()?;
        let [leaf, after, event] = *extra.lines().collect::<Vec<_>>() else { return None };
        let (after, value) = after.strip_prefix("after ")?.split_once(' ')?;
        let start = HistoryChain { seq: decimal(after)?, value: value.parse().ok()? };
        let seq = decimal(event.strip_prefix("event ")?)?;
        Some(Self { leaf: leaf.parse().ok()?, start, seq, index, hashes, note })
    }
}

/// Checks without a store that a checkpoint, signed by the key and all witnesses, covers an event of an export. Fails
/// with [`IntegrityError::Differs`].
pub fn check_event_proof(
    proof: &str,
    export: &mut dyn Read,
    key: &NoteVerifier,
    witnesses: &[NoteVerifier],
) -> Result<ProvenEvent, IntegrityError> {
    let malformed = || IntegrityError::Malformed("proof: it is no tlog-proof of an event".to_owned());
    let EventProof { leaf, start, seq, index, hashes, note } = EventProof::parse(proof).ok_or_else(malformed)?;
    let (checkpoint, cosignatures) = trusted(note, key, witnesses)?;
    let refused = |problem: &str| Err(IntegrityError::Differs(format!("the proof does not hold: {problem}")));
    if merkle::included_in(index, checkpoint.size, leaf.hash(), &hashes) != Some(checkpoint.root) {
        return refused("its leaf is not in the checkpoint");
    }
    if leaf.kind != LeafKind::Session || seq <= start.seq || seq > leaf.seq {
        return refused("its leaf does not cover the event");
    }
    let found = chain_of_export(export, start, leaf.seq, seq)?;
    if found.session != leaf.session {
        return refused("the export is of another session");
    }
    let (from, until) = (start.seq + 1, leaf.seq);
    let Some(event) = found.event.filter(|_| found.value == Some(leaf.chain)) else {
        return refused(&format!("the export does not have the events {from} to {until} as they were sealed"));
    };
    Ok(ProvenEvent { event, from, until, origin: checkpoint.origin, size: checkpoint.size, cosignatures })
}
