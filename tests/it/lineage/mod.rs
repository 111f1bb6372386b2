//! Children: what they have of their parents, and that nothing else goes between relatives.

mod isolation;
mod past;
mod random;

use std::sync::Arc;

use foldspace::{Seq, Session, ToolRunner};

/// An outcome's digest of every slice, at a position.
fn digests(session: &Session, seq: Seq) -> Vec<(&'static str, foldspace::event::Digest)> {
    session.state_at(seq).unwrap().digests().unwrap()
}

/// The same tool runner, shared.
fn shared(runner: ToolRunner) -> Arc<ToolRunner> {
    Arc::new(runner)
}
