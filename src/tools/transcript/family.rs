//! A session with its children, for exports.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::Value;

use crate::engine::clock::Timestamp;
use crate::engine::event::{ChildStarted, Origin, SessionStarted};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::reducers::{AgentRun, is_built_in};
use crate::tools::call::content_params::lower;
use crate::tools::rerun::past::{PastRun, RecordedCall};

/// An own event.
pub(super) struct ExportedEvent {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) kind: String,
    /// Its data, with long texts restored.
    pub(super) data: Value,
}

/// A session of a family.
pub(super) struct ExportedRun {
    pub(super) session: Session,
    /// The position before the first exported event: the fork position for a child, else 0.
    pub(super) from: Seq,
    /// The run of another program that the session was imported from, or is a rerun of.
    pub(super) run: Option<(String, AgentRun)>,
    /// The calls after `from`; for the root of a family, this includes inherited calls.
    pub(super) calls: Vec<RecordedCall>,
    /// The own events after `from`, by the calls that they belong to.
    pub(super) own: BTreeMap<Option<Seq>, Vec<ExportedEvent>>,
    /// The children, each with the call that began it.
    pub(super) children: Vec<(Self, Option<Seq>)>,
}

impl ExportedRun {
    pub(super) fn read(session: Session, sessions: &Sessions) -> Result<Self, SessionError> {
        let entries = sessions.list()?;
        let started = entries.iter().filter_map(|entry| {
            let started = entry.origin.typed::<SessionStarted>()?.ok()?.event;
            Some((entry.id, started.origin?))
        });
        Self::with(session, 0, sessions, &started.collect::<Vec<_>>())
    }

    fn with(
        session: Session,
        from: Seq,
        sessions: &Sessions,
        origins: &[(SessionId, Origin)],
    ) -> Result<Self, SessionError> {
        let past = PastRun::of(&session);
        let (run, calls) = (past.agent_run()?, past.calls(from)?);
        let (mut begun, mut own) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        let mut read = |digest: &Digest| session.content(digest).ok().map(|bytes| bytes.to_vec());
        session.visit(from + 1, &mut |event| {
            if let Some(Ok(child)) = event.typed::<ChildStarted>() {
                begun.push((child.event.child, event.call));
            } else if !is_built_in(event.kind) {
                let (kind, data) = (event.kind.to_owned(), lower(session.event_json(event), &mut read));
                own.entry(event.call).or_default().push(ExportedEvent { seq: event.seq, at: event.time, kind, data });
            }
            ControlFlow::Continue(())
        })?;
        let mut found = Vec::new();
        for (id, Origin { at, .. }) in origins.iter().filter(|(_, origin)| origin.parent == session.id()) {
            let child = sessions.session(*id)?;
            let noted = begun.iter().find(|(begun, _)| begun == id);
            // An imported subagent forks from its parent just before the call that began it.
            let call = match noted {
                Some((_, call)) => *call,
                None => calls.iter().map(|call| call.call).find(|call| call > at),
            };
            let own_from = PastRun::of(&child).own_from();
            found.push((Self::with(child, own_from, sessions, origins)?, call));
        }
        Ok(Self { session, from, run, calls, own, children: found })
    }

    /// Returns the run that the session was imported from.
    pub(super) fn transcript(&self) -> Option<&(String, AgentRun)> {
        let own_from = self.own_from();
        self.run.as_ref().filter(|(_, run)| !run.format.is_empty() && run.seq > own_from)
    }

    pub(super) fn own_from(&self) -> Seq {
        PastRun::of(&self.session).own_from()
    }

    /// Returns the own events of a call, or those that belong to none.
    pub(super) fn events_of(&self, call: Option<Seq>) -> &[ExportedEvent] {
        self.own.get(&call).map_or(&[], Vec::as_slice)
    }

    /// Returns the agent's name, and its model if known.
    pub(super) fn agent(&self) -> (&str, Option<&str>) {
        let made = self.calls.iter().map(|call| &*call.agent).find(|agent| !agent.is_empty()).unwrap_or("foldspace");
        match &self.run {
            Some((_, run)) => (&run.agent, run.facts.get("model").and_then(|model| model.as_str())),
            None => (made, None),
        }
    }
}
