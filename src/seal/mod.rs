//! Proof of integrity: signed checkpoints of a store's histories, in the formats of C2SP (signed-note, tlog-checkpoint,
//! tlog-cosignature, tlog-proof). docs/integrity.md describes their use.

mod check;
mod checkpoint;
mod compare;
mod error;
mod event_proof;
mod leaf_log;
mod merkle;
mod note;
mod seal_store;

pub use check::{CheckedSeal, Cosignature, check_seal};
pub use compare::SealProblem;
pub use error::IntegrityError;
pub use event_proof::{ProvenEvent, check_event_proof, prove_event};
pub use leaf_log::seals_of;
pub use note::{NoteSigner, NoteVerifier};
pub use seal_store::{NewSeal, seal_store, witness_request};
