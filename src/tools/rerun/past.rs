//! A history as what is run again sees it: calls in the order in which they began, and what happened in between.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::super::lift::lower;
use crate::engine::event::{
    CallFinished, CallStarted, CallStatus, CommandDecided, DeleteEntry, DriftFound, Event, MountHydrated,
    SessionRewound, SliceRestored, WriteFile,
};
use crate::engine::id::{Digest, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded, Seq};
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::reducers::VirtualFileSystem;

/// What the dispatcher says of parameters that it did not record, because there were too many.
const TOO_LARGE: &str = "the parameters have ";
/// Events of no call that belong to a session's files and state.
const OUTSIDE: [&str; 6] = [
    WriteFile::KIND,
    DeleteEntry::KIND,
    DriftFound::KIND,
    MountHydrated::KIND,
    SessionRewound::KIND,
    SliceRestored::KIND,
];

/// A session that can only be looked at: nothing here records anything.
#[derive(Debug, Clone)]
pub(super) struct Past {
    session: Session,
}

/// A call as it is recorded.
#[derive(Debug, Clone)]
pub(super) struct RecordedCall {
    /// The position of its intent, which is its name.
    pub(super) call: Seq,
    pub(super) tool: String,
    pub(super) agent: Arc<str>,
    /// With long texts in their places.
    pub(super) params: Value,
    /// The position of its outcome, and that, with long texts in their places.
    pub(super) outcome: Option<(Seq, CallFinished)>,
    /// What was decided about its commands.
    pub(super) decisions: Vec<CommandDecided>,
    /// What it did to the files.
    pub(super) changes: Vec<Recorded>,
}

/// What happened outside of any call: drift, mounts, rewinds.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    pub(super) events: Vec<Recorded>,
}

/// What a history is made of.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Call(RecordedCall),
    Outside(Outside),
}

impl RecordedCall {
    /// Why it can't be run again; none when it can.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let Some((_, end)) = &self.outcome else { return Some("it never ended") };
        match end.status {
            CallStatus::Interrupted => Some("it was interrupted"),
            CallStatus::Error if self.params.is_null() && end.message.starts_with(TOO_LARGE) => {
                Some("its parameters were too large to be recorded")
            }
            CallStatus::Ok | CallStatus::Error => None,
        }
    }

    /// The paths that it wrote or deleted.
    pub(super) fn paths(&self) -> impl Iterator<Item = EntryPath> {
        self.changes.iter().filter_map(|event| path_of(&event.view()))
    }
}

/// The path that a file event is about.
pub(super) fn path_of(event: &EventRef<'_>) -> Option<EntryPath> {
    match event.kind {
        WriteFile::KIND => event.typed::<WriteFile>()?.ok().map(|write| write.event.path),
        DeleteEntry::KIND => event.typed::<DeleteEntry>()?.ok().map(|delete| delete.event.path),
        _ => None,
    }
}

impl Past {
    pub(super) fn of(session: &Session) -> Self {
        Self { session: session.clone() }
    }

    pub(super) fn id(&self) -> SessionId {
        self.session.id()
    }

    pub(super) fn head(&self) -> Result<Seq, SessionError> {
        self.session.head()
    }

    pub(super) fn content(&self, digest: &Digest) -> Result<Bytes, SessionError> {
        self.session.content(digest)
    }

    /// The files after the event at `seq`.
    pub(super) fn files_at(&self, seq: Seq) -> Result<VirtualFileSystem, SessionError> {
        Ok(self.session.state_at(seq)?.slice::<VirtualFileSystem>().cloned().unwrap_or_default())
    }

    /// The slices that are state at `seq`, but for the files, as events that put them there.
    pub(super) fn slices_at(&self, seq: Seq) -> Result<Vec<SliceRestored>, SessionError> {
        use crate::engine::slice::Slice;
        let pick = |seq| Ok::<_, SessionError>(self.session.state_at(seq)?.restorable(VirtualFileSystem::NAME)?);
        let empty = pick(0)?;
        let differing = pick(seq)?.into_iter().filter(|slice| !empty.contains(slice));
        let event = |slice: crate::engine::slice::EncodedSlice| SliceRestored {
            slice: slice.name.to_string(),
            version: slice.version,
            blocks: slice.blocks,
        };
        Ok(differing.map(event).collect())
    }

    /// The position before the first call; the head where there is none.
    pub(super) fn before_calls(&self) -> Result<Seq, SessionError> {
        let mut first = None;
        self.session.visit(1, &mut |event| {
            if event.kind == CallStarted::KIND {
                first = Some(event.seq - 1);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        first.map_or_else(|| self.head(), Ok)
    }

    /// What happened after `from`: calls that began up to `until`, in that order, each with all that it did.
    pub(super) fn happenings(&self, from: Seq, until: Seq) -> Result<Vec<Happening>, SessionError> {
        let mut reading = Reading { until, ..Reading::default() };
        self.session.visit(from + 1, &mut |event| {
            reading.take(event);
            ControlFlow::Continue(())
        })?;
        let mut happenings = reading.happenings;
        for happening in happenings.values_mut() {
            if let Happening::Call(call) = happening {
                self.complete(call);
            }
        }
        Ok(happenings.into_values().collect())
    }

    /// The calls after `from`, in the order in which they began.
    pub(super) fn calls(&self, from: Seq) -> Result<Vec<RecordedCall>, SessionError> {
        let happenings = self.happenings(from, Seq::MAX)?.into_iter();
        Ok(happenings
            .filter_map(|happening| match happening {
                Happening::Call(call) => Some(call),
                Happening::Outside(_) => None,
            })
            .collect())
    }

    /// The call of that name, when it has ended.
    pub(super) fn ended_call(&self, call: Seq, finished: Seq) -> Result<Option<RecordedCall>, SessionError> {
        let mut reading = Reading { until: call, ..Reading::default() };
        self.session.visit(call, &mut |event| {
            reading.take(event);
            if event.seq < finished { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let found = reading.happenings.into_values().find_map(|happening| match happening {
            Happening::Call(found) if found.call == call => Some(found),
            _ => None,
        });
        Ok(found.map(|mut found| {
            self.complete(&mut found);
            found
        }))
    }

    /// Puts long texts back in their places.
    fn complete(&self, call: &mut RecordedCall) {
        let mut read = |digest: &Digest| self.content(digest).ok().map(|bytes| bytes.to_vec());
        call.params = lower(std::mem::take(&mut call.params), &mut read);
        if let Some((_, end)) = &mut call.outcome {
            end.result = lower(std::mem::take(&mut end.result), &mut read);
        }
    }
}

/// A history while it is read. What is found outside stands before the call that found it.
#[derive(Default)]
struct Reading {
    until: Seq,
    /// By where they stand; at the same position what was found outside comes first.
    happenings: BTreeMap<(Seq, bool, Seq), Happening>,
    open: Vec<Seq>,
    /// Where the last event was put, if that was outside, and its position.
    outside: Option<((Seq, bool, Seq), Seq)>,
}

impl Reading {
    fn take(&mut self, event: &EventRef<'_>) {
        if let Some(call) = event.call {
            self.outside = None;
            self.take_of_call(call, event);
        } else if OUTSIDE.contains(&event.kind) {
            self.take_outside(event);
        }
    }

    fn take_of_call(&mut self, call: Seq, event: &EventRef<'_>) {
        let place = (call, true, call);
        if let Some(Ok(started)) = event.typed::<CallStarted>().filter(|_| call == event.seq && call <= self.until) {
            let Recorded { agent, event: CallStarted { tool, params }, .. } = started;
            let begun =
                RecordedCall { call, tool, agent, params, outcome: None, decisions: Vec::new(), changes: Vec::new() };
            self.happenings.insert(place, Happening::Call(begun));
            self.open.push(call);
            return;
        }
        let Some(Happening::Call(known)) = self.happenings.get_mut(&place) else { return };
        if path_of(event).is_some() {
            known.changes.push(event.to_recorded());
        } else if let Some(Ok(decided)) = event.typed::<CommandDecided>() {
            known.decisions.push(decided.event);
        } else if let Some(Ok(finished)) = event.typed::<CallFinished>() {
            known.outcome = Some((event.seq, finished.event));
            self.open.retain(|open| *open != call);
        }
    }

    fn take_outside(&mut self, event: &EventRef<'_>) {
        let place = match self.outside {
            Some((place, last)) if last + 1 == event.seq => place,
            _ if event.seq > self.until && self.open.is_empty() => return,
            _ => {
                // The call that found it has done nothing yet.
                let idle = |call: &&Seq| match self.happenings.get(&(**call, true, **call)) {
                    Some(Happening::Call(call)) => call.changes.is_empty(),
                    _ => false,
                };
                let finder = self.open.iter().find(idle).copied();
                (finder.unwrap_or(event.seq), false, event.seq)
            }
        };
        self.outside = Some((place, event.seq));
        let outside = self.happenings.entry(place).or_insert_with(|| Happening::Outside(Outside::default()));
        if let Happening::Outside(outside) = outside {
            outside.events.push(event.to_recorded());
        }
    }
}
