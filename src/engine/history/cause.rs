//! Who or what changed files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::engine::clock::Timestamp;
use crate::engine::event::{
    CallFinished, CallStarted, ChildMerged, DriftFound, Event, MountHydrated, SessionRewound, started_tool,
};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};

/// Why an entry changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// A tool call.
    Call {
        /// The call, by the position of its intent.
        call: Seq,
        /// The tool; empty when the intent can't be read.
        tool: Arc<str>,
    },
    /// A host directory was copied into the workspace.
    Mount,
    /// Somebody changed it outside of any call.
    Drift,
    /// The session was rewound.
    Rewind {
        /// The position whose files are back; none when the event can't be read.
        to: Option<Seq>,
    },
    /// A child was merged.
    Merge {
        /// How it is called; empty when the event can't be read.
        child: Arc<str>,
        /// The child; none when the event can't be read.
        child_id: Option<SessionId>,
        /// The position of the child's history that its changes were counted from; none when the event can't be read.
        since: Option<Seq>,
        /// The event of the child's history that made the change; none when that is not known.
        from: Option<Seq>,
    },
    /// It was recorded by a program, without a call.
    Recorded,
}

impl Cause {
    /// The call; none when it was none.
    pub fn call(&self) -> Option<Seq> {
        match self {
            Self::Call { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// In a word: the tool of a call, or what else it was.
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

/// What is known of why entries changed that were recorded together.
#[derive(Clone)]
pub(super) struct Why {
    cause: Cause,
    /// From which events of a child the changes of a merge come.
    merged: Option<Arc<BTreeMap<EntryPath, Seq>>>,
}

impl Why {
    fn of(cause: Cause) -> Self {
        Self { cause, merged: None }
    }

    /// What an event says of the changes beside it. One that can't be read says what it is all the same.
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

    /// Why the entry changed that an event names.
    pub(super) fn cause(&self, named: &EntryPath) -> Cause {
        let mut cause = self.cause.clone();
        if let (Cause::Merge { from, .. }, Some(merged)) = (&mut cause, &self.merged) {
            *from = merged.get(named).copied();
        }
        cause
    }
}

/// Finds out the cause of events, which have to be shown to it in order.
#[derive(Default)]
pub(super) struct Causes {
    tools: BTreeMap<Seq, Arc<str>>,
    run: Option<EventRow>,
    runs: u64,
}

/// Events in a row of one call, or of none: what is recorded together stands in a row.
struct EventRow {
    number: u64,
    call: Option<Seq>,
    time: Timestamp,
    /// What an event in it has told.
    told: Option<Why>,
}

/// What is known of an event's cause.
pub(super) struct KnownCause {
    /// The same for events that were recorded together.
    pub(super) run: u64,
    /// What told the cause. A later event of the run may tell it, too.
    pub(super) why: Why,
    /// The cause of the changes of this run until now, where this event tells it.
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

    /// The run that the event belongs to. Without a call what was recorded at another time was recorded apart;
    /// so was what comes after a cause that has been told already.
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
