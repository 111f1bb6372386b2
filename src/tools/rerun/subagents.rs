//! The sessions of a run's subagents.

use super::past::PastRun;
use crate::engine::event::{Isolation, SessionStarted};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;

/// Returns the sessions of the transcripts of a run's subagents, and of their subagents.
///
/// # Errors
/// [`SessionError`] if a session can't be read.
pub fn subagents_of(session: &Session, sessions: &Sessions) -> Result<Vec<Session>, SessionError> {
    let entries = sessions.list()?;
    let (mut found, mut parents) = (Vec::new(), vec![session.id()]);
    while let Some(parent) = parents.pop() {
        for entry in &entries {
            let origin = entry.origin.typed::<SessionStarted>().and_then(|started| started.ok()?.event.origin);
            if !origin.is_some_and(|origin| origin.parent == parent && origin.isolation == Isolation::Fork) {
                continue;
            }
            let child = sessions.session(entry.id)?;
            let past = PastRun::of(&child);
            if past.agent_run()?.is_some_and(|(_, run)| run.seq > past.own_from() && !run.format.is_empty()) {
                parents.push(child.id());
                found.push(child);
            }
        }
    }
    Ok(found)
}
