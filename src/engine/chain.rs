//! Hash chains over the commits of a session.

use std::ops::ControlFlow;

use super::store::{EventStore, READ_MAX, Result, StoreError};
use super::{CommitView, Digest, Seq, SessionId};

/// The input of the first value.
const LABEL: &[u8] = b"foldspace chain of commits v1\n";

/// The hash chain of a history up to a position. Each commit's value is the BLAKE3 digest of the previous value and the
/// encoded commit without its session and id, so forks continue the parent's chain, and an export has the same chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryChain {
    /// The position of the last covered event, or 0.
    pub seq: Seq,
    /// The value.
    pub value: Digest,
}

impl HistoryChain {
    /// Returns the chain before the first event.
    pub fn start() -> Self {
        Self { seq: 0, value: Digest::of(LABEL) }
    }

    /// Adds the next commit. Returns false if the commit does not follow.
    pub(crate) fn add(&mut self, commit: &CommitView<'_>, buffer: &mut Vec<u8>) -> bool {
        if commit.first != self.seq + 1 {
            return false;
        }
        buffer.clear();
        commit.encode(buffer);
        // The session (16), position and time (8 and 8), the id (16), the rest.
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.value.as_bytes()).update(&buffer[16..32]).update(&buffer[48..]);
        *self = Self { seq: commit.last(), value: Digest::from_bytes(*hasher.finalize().as_bytes()) };
        true
    }
}

/// Visits the chain of a session after each commit up to the one that contains `until`.
fn follow(
    store: &dyn EventStore,
    session: SessionId,
    until: Seq,
    visit: &mut dyn FnMut(HistoryChain) -> ControlFlow<()>,
) -> Result<()> {
    let (mut chain, mut buffer) = (HistoryChain::start(), Vec::new());
    while chain.seq < until {
        let next = chain.seq + 1;
        let batch = store.read(session, next, until, READ_MAX)?;
        for commit in batch.commits() {
            if !chain.add(&commit, &mut buffer) {
                break;
            }
            if visit(chain).is_break() {
                return Ok(());
            }
        }
        batch.check(chain.seq + 1)?;
        if chain.seq < next {
            break;
        }
    }
    Ok(())
}

/// Returns the values of a session's chain at ascending positions; `None` for positions inside a commit.
pub fn chain_at(store: &dyn EventStore, session: SessionId, positions: &[Seq]) -> Result<Vec<Option<Digest>>> {
    let mut found = vec![None; positions.len()];
    let mut at = 0;
    follow(store, session, positions.last().copied().unwrap_or(0), &mut |chain| {
        at += positions[at..].iter().take_while(|seq| **seq < chain.seq).count();
        if positions.get(at) == Some(&chain.seq) {
            found[at] = Some(chain.value);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the start for [`chain_of_export`](super::portable::chain_of_export). The export of a fork replaces the
/// parent's first event by the fork's, so its chain starts after the first commit.
pub fn chain_before_export(store: &dyn EventStore, session: SessionId) -> Result<HistoryChain> {
    let entry = store.entry(session)?.ok_or(StoreError::NoSession(session))?;
    let mut start = HistoryChain::start();
    if entry.origin.seq > 1 {
        follow(store, session, 1, &mut |chain| {
            start = chain;
            ControlFlow::Break(())
        })?;
    }
    Ok(start)
}
