//! Ownership of events: merges lead into the histories of children, which begin with their parents'.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;

use super::path::PathChange;
use crate::engine::event::SessionStarted;
use crate::engine::store::StoreError;
use crate::engine::{Seq, Session, SessionError, SessionId, SessionResult};

/// Maximum depth of followed merges, as an imported history may be circular.
pub(super) const DEPTH_MAX: usize = 64;

/// Change, with the session that owns its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionChange {
    /// Session that recorded it.
    pub session: SessionId,
    /// Name of the session.
    pub session_name: Arc<str>,
    /// Recorded change.
    #[serde(flatten)]
    pub change: PathChange,
    /// True if a child's merge could not be followed because the child is no longer in the store.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub child_removed: bool,
}

pub(super) struct SessionLineage {
    asked: Session,
    open: BTreeMap<SessionId, Option<Session>>,
    pasts: BTreeMap<SessionId, Vec<LineagePart>>,
}

#[derive(Clone)]
struct LineagePart {
    from: Seq,
    session: SessionId,
    name: Arc<str>,
}

impl SessionLineage {
    pub(super) fn of(asked: &Session) -> Self {
        Self { asked: asked.clone(), open: BTreeMap::new(), pasts: BTreeMap::new() }
    }

    pub(super) fn find(&mut self, id: SessionId) -> SessionResult<Option<Session>> {
        if let Some(known) = self.open.get(&id) {
            return Ok(known.clone());
        }
        let found = match self.asked.kin().session(id) {
            Ok(session) => Some(session),
            Err(SessionError::Store(StoreError::NoSession(_))) => None,
            Err(error) => return Err(error),
        };
        self.open.insert(id, found.clone());
        Ok(found)
    }

    /// Returns a change with its owner. The requested session owns every change that is also in its history.
    pub(super) fn owned(&mut self, session: &Session, change: PathChange) -> SessionResult<SessionChange> {
        let asked = self.asked.clone();
        let (mut owner, mut name) = (asked.id(), Arc::from(asked.name()));
        if session.id() != asked.id()
            && let Some(part) = self.part(session, change.seq)?
        {
            let is_shared = self.part(&asked, change.seq)?.is_some_and(|own| own.session == part.session);
            if !is_shared || change.seq > asked.head()? {
                (owner, name) = (part.session, part.name);
            }
        }
        Ok(SessionChange { session: owner, session_name: name, change, child_removed: false })
    }

    fn part(&mut self, session: &Session, seq: Seq) -> SessionResult<Option<LineagePart>> {
        let parts = match self.pasts.get(&session.id()) {
            Some(parts) => parts,
            None => self.pasts.entry(session.id()).or_insert(parts(session)?),
        };
        Ok(parts.iter().rfind(|part| part.from <= seq).cloned())
    }
}

/// Reads the parts of a history: each begins with a session's first event, which names the owner of the part before it.
fn parts(session: &Session) -> SessionResult<Vec<LineagePart>> {
    let mut parts = vec![LineagePart { from: 0, session: session.id(), name: Arc::from(session.name()) }];
    // No other session begins after its own first event.
    let own = session.origin().map_or(1, |origin| origin.at.saturating_add(1));
    session.visit(1, &mut |event| {
        if let Some(Ok(started)) = event.typed::<SessionStarted>() {
            let (name, from) = (Arc::from(started.event.name), if event.seq == 1 { 0 } else { event.seq });
            if let (Some(before), Some(origin)) = (parts.last_mut(), started.event.origin) {
                before.session = origin.parent;
            }
            if from == 0 {
                parts.clear();
            }
            parts.push(LineagePart { from, session: session.id(), name });
        }
        if event.seq < own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(parts)
}
