//! Causes of changes of files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::engine::event::{
    CallFinished, CallStarted, ChildMerged, DriftFound, Event, MountHydrated, SessionRewound, started_tool,
};
use crate::engine::{EntryPath, EventRef, Recorded, Seq, SessionId, Timestamp};

/// Cause of a change of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// Tool call.
    Call {
        /// Call id.
        call: Seq,
        /// Tool; empty if the intent can't be read.
        tool: Arc<str>,
    },
    /// Copy of a host directory into the workspace.
    Mount,
    /// External change, outside of any call.
    Drift,
    /// Rewind of the session.
    Rewind {
        /// Position of the restored files; `None` if the event can't be read.
        to: Option<Seq>,
    },
    /// Merge of a child.
    Merge {
        /// Name of the child; empty if the event can't be read.
        child: Arc<str>,
        /// Child session; `None` if the event can't be read.
        child_id: Option<SessionId>,
        /// Position in the child's history before its merged changes; `None` if the event can't be read.
        since: Option<Seq>,
        /// Child's event that made the change; `None` if unknown.
        from: Option<Seq>,
    },
    /// A program recorded it without a call.
    Recorded,
}

impl Cause {
    /// Returns the call id, if a call is the cause.
    pub fn call(&self) -> Option<Seq> {
        match self {
            Self::Call { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// Returns the cause as one word: the tool of a call, or its kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Call { tool, .. } => tool,
            Self::Mount => "mount",
            Self::Drift => "drift",
            Self::Rewind { .. } => "rewind",
            Self::Merge { .. } => "merge",
            Self::Recorded => "recorded",
        }
    }
}

#[derive(Clone)]
pub(super) struct Why {
    cause: Cause,
    /// Child's events behind the changes of a merge.
    merged: Option<Arc<BTreeMap<EntryPath, Seq>>>,
}

impl Why {
    fn of(cause: Cause) -> Self {
        Self { cause, merged: None }
    }

    /// Reads the cause that an event states for the changes around it. An unreadable event still shows its kind.
    fn told_by(event: &EventRef<'_>) -> Option<Self> {
        match event.kind {
            DriftFound::KIND => Some(Self::of(Cause::Drift)),
            MountHydrated::KIND => Some(Self::of(Cause::Mount)),
            SessionRewound::KIND => {
                let rewound = event.typed::<SessionRewound>().and_then(Result::ok);
                Some(Self::of(Cause::Rewind { to: rewound.map(|Recorded { event, .. }| event.to) }))
            }
            ChildMerged::KIND => Some(match event.typed::<ChildMerged>() {
                Some(Ok(Recorded { event: ChildMerged { child, child_name, base, merged, .. }, .. })) => {
                    let from = merged.into_iter().filter_map(|entry| Some((entry.path, entry.from?))).collect();
                    let (child_id, since) = (Some(child), Some(base));
                    let cause = Cause::Merge { child: Arc::from(child_name), child_id, since, from: None };
                    Self { cause, merged: Some(Arc::new(from)) }
                }
                _ => Self::of(Cause::Merge { child: Arc::from(""), child_id: None, since: None, from: None }),
            }),
            _ => None,
        }
    }

    pub(super) fn cause(&self, named: &EntryPath) -> Cause {
        let mut cause = self.cause.clone();
        if let (Cause::Merge { from, .. }, Some(merged)) = (&mut cause, &self.merged) {
            *from = merged.get(named).copied();
        }
        cause
    }
}

#[derive(Default)]
pub(super) struct Causes {
    tools: BTreeMap<Seq, Arc<str>>,
    run: Option<EventRow>,
    runs: u64,
}

/// Consecutive events of one call, or of none; events that were recorded together are consecutive.
struct EventRow {
    number: u64,
    call: Option<Seq>,
    time: Timestamp,
    told: Option<Why>,
}

pub(super) struct KnownCause {
    pub(super) run: u64,
    /// Cause so far. A later event of the run may still state it.
    pub(super) why: Why,
    /// Cause of the run's changes until now, if this event states it.
    pub(super) tells: Option<Why>,
}

impl Causes {
    pub(super) fn take(&mut self, event: &EventRef<'_>) -> KnownCause {
        if event.kind == CallStarted::KIND {
            let tool = started_tool(event.version, event.payload).unwrap_or_default();
            self.tools.insert(event.seq, Arc::from(tool));
        }
        let told = Why::told_by(event);
        let run = self.run_of(event, told.as_ref());
        let tells = told.clone().filter(|_| run.told.is_none());
        run.told = told.or_else(|| run.told.take());
        let (number, known) = (run.number, run.told.clone());
        let plain = || match event.call {
            Some(call) => Cause::Call { call, tool: self.tools.get(&call).cloned().unwrap_or_default() },
            None => Cause::Recorded,
        };
        let why = known.unwrap_or_else(|| Why::of(plain()));
        if event.kind == CallFinished::KIND
            && let Some(call) = event.call
        {
            self.tools.remove(&call);
        }
        KnownCause { run: number, why, tells }
    }

    /// Returns the run of the event. Without a call, a new run begins at another time, and if both the run and the
    /// event state a cause.
    fn run_of(&mut self, event: &EventRef<'_>, told: Option<&Why>) -> &mut EventRow {
        let goes_on = self.run.as_ref().is_some_and(|run| {
            let is_apart = run.time != event.time || (run.told.is_some() && told.is_some());
            run.call == event.call && !(event.call.is_none() && is_apart)
        });
        if !goes_on {
            self.run = None;
            self.runs += 1;
        }
        let (number, call, time) = (self.runs, event.call, event.time);
        self.run.get_or_insert(EventRow { number, call, time, told: None })
    }
}
