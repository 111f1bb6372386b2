//! A call with a recorded intent and no outcome yet.

use std::sync::Arc;

use serde_json::Value;

use super::confine::OutsideChanges;
use super::content_params::lift;
use super::context::ToolContext;
use super::error::ToolError;
use super::tool::ToolAnswer;
use super::tool_call::{ToolCall, ToolOutcome};
use crate::engine::commit::{CallLink, Commit};
use crate::engine::event::{CallFinished, CallStarted, CallStatus};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::engine::store::Pending;
use crate::reducers::{OnFailure, ToolRules, command_failed};
use crate::tools::off_thread::with_store;
use crate::tools::workspace::keeping::distrust;
use crate::tools::workspace::recording::EventBuffer;
use crate::tools::workspace::runtime::{SessionCall, WorkspaceLock};

/// Call with a recorded intent and no outcome. Dropping it kills its command, captures the changes, and records an
/// interruption.
pub(crate) struct OpenCall {
    pub(crate) call: Seq,
    session: Session,
    since: u64,
    closed: bool,
    /// True if a task finishes the call; a drop there does not hand it over again.
    handed_over: bool,
    pub(crate) context: Option<ToolContext>,
    /// Keeps other calls from changing files until the outcome is recorded.
    pub(crate) turn: Option<WorkspaceLock>,
    settling: Option<Pending>,
    in_flight: Option<SessionCall>,
    pub(crate) on_failure: OnFailure,
    /// Outcome of undoing the changes of a failed call, for its message.
    note: Option<String>,
}

/// Beginning of a call.
pub(crate) enum CallBeginning {
    Now(Box<(OpenCall, Result<State, SessionError>)>),
    /// An earlier request with the same id made the call at this position.
    Earlier(Seq),
}

impl OpenCall {
    /// Records the intent, without parameters that are too large, unless an earlier request with the same id made the
    /// call. Returns the call, and the state for its limits, scan, tool and outcome. The call holds the workspace lock
    /// in `turn`.
    pub(crate) async fn begin(
        session: &Session,
        call: &ToolCall,
        is_too_large: bool,
        turn: Option<WorkspaceLock>,
    ) -> Result<CallBeginning, SessionError> {
        let mut contents = Vec::new();
        let params = if is_too_large { Value::Null } else { lift(call.params.clone(), &mut contents) };
        let tool: String = call.tool.chars().take(100).collect();
        let mut commit = session.commit().of_call(CallLink::Opens);
        if let Some(id) = call.id {
            commit = commit.with_id(id);
        }
        commit.push(&CallStarted { tool: tool.clone(), params })?;
        contents.into_iter().for_each(|content| commit.keep(content));
        let of = session.clone();
        with_store(session, move || {
            let (open, pending) = match Self::submit(of, commit, turn)? {
                Ok(begun) => begun,
                Err(earlier) => return Ok(CallBeginning::Earlier(earlier)),
            };
            let state = match open.session.state() {
                Ok(state) => state,
                Err(error) => return Ok(CallBeginning::Now(Box::new((open, Err(error))))),
            };
            // A limit for calls counts this one and all earlier ones, so their intents have to be visible.
            let counts = state.seq() < open.call && ToolRules::of(&state).limits(&tool);
            let waited = pending.filter(|_| counts).map(|pending| pending.wait());
            let state = match waited {
                None => Ok(state),
                Some(waited) => waited.map_err(SessionError::from).and_then(|_| open.session.state()),
            };
            Ok(CallBeginning::Now(Box::new((open, state))))
        })
        .await?
    }

    /// Submits the intent; the inner error is the position of an earlier intent with the same id.
    fn submit(
        session: Session,
        intent: Commit,
        turn: Option<WorkspaceLock>,
    ) -> Result<Result<(Self, Option<Pending>), Seq>, SessionError> {
        let own = intent.has_id().then(|| intent.duplicate());
        // The outcome is committed after the intent, so waiting for the outcome is enough.
        let pending = session.submit(intent)?;
        let (committed, pending) = match pending.known() {
            Some(committed) if !committed.repeated => (committed, Some(pending)),
            _ => (pending.wait()?, None),
        };
        let call = committed.first;
        if let Some(own) = own.filter(|_| committed.repeated) {
            session.check_same(&own, committed)?;
            return Ok(Err(call));
        }
        let (since, in_flight) = (session.steady_micros(), Some(SessionCall::begin(&session, call)));
        let open = Self {
            call,
            session,
            since,
            closed: false,
            handed_over: false,
            context: None,
            turn,
            settling: None,
            in_flight,
            on_failure: OnFailure::Keep,
            note: None,
        };
        Ok(Ok((open, pending)))
    }

    pub(crate) fn micros(&self) -> u64 {
        self.session.steady_micros().saturating_sub(self.since)
    }

    /// Records the outcome and waits until it is durable. A success that can't be recorded becomes a failure.
    pub(crate) async fn finish(self, answer: Result<ToolAnswer, ToolError>) -> Result<ToolOutcome, SessionError> {
        let session = self.session.clone();
        let recorded = with_store(&session, move || {
            let mut open = self;
            let outcome = open.record(answer);
            (open, outcome)
        });
        let (open, outcome) = recorded.await?;
        let outcome = outcome?;
        open.settle().await?;
        Ok(outcome)
    }

    fn record(&mut self, answer: Result<ToolAnswer, ToolError>) -> Result<ToolOutcome, SessionError> {
        let answer = self.taken_back(answer);
        let answer = self.confined(answer);
        match answer.and_then(|answer| self.succeed(answer)) {
            Ok(outcome) => Ok(outcome),
            Err(error) => self.fail(&error),
        }
    }

    /// Undoes the changes of a failed call, if that was asked for, and says so.
    fn taken_back(&mut self, answer: Result<ToolAnswer, ToolError>) -> Result<ToolAnswer, ToolError> {
        let has_failed = answer.as_ref().map_or(true, |answer| command_failed(&answer.result));
        let Some(context) = self.context.as_mut().filter(|_| has_failed && self.on_failure == OnFailure::Undo) else {
            return answer;
        };
        let workspace = Arc::clone(context.workspace());
        let undone = context.files.take_back(workspace.as_ref());
        let note = match &undone {
            Ok(Some(0)) => return answer,
            Ok(Some(1)) => "its change of 1 entry was undone".to_owned(),
            Ok(Some(count)) => format!("its changes of {count} entries were undone"),
            Ok(None) => "its changes stay: an entry that it replaced can't be restored".to_owned(),
            Err(error) => {
                self.distrust();
                format!("its changes could not be undone: {error}")
            }
        };
        let count = undone.ok().flatten();
        self.noted(answer, note, count.map(|count| ("undone", count.into())))
    }

    /// Undoes or reports what the call's commands changed outside of the paths that the policy allows.
    fn confined(&mut self, answer: Result<ToolAnswer, ToolError>) -> Result<ToolAnswer, ToolError> {
        let confine = |context: &mut ToolContext| {
            let workspace = Arc::clone(context.workspace());
            context.files.confine(workspace.as_ref())
        };
        let Some(OutsideChanges { note, field, is_unsettled }) = self.context.as_mut().and_then(confine) else {
            return answer;
        };
        if is_unsettled {
            self.distrust();
        }
        self.noted(answer, note, Some(("outside", field)))
    }

    /// Adds a note to an answer, and to its result a field.
    fn noted(
        &mut self,
        answer: Result<ToolAnswer, ToolError>,
        note: String,
        field: Option<(&str, Value)>,
    ) -> Result<ToolAnswer, ToolError> {
        let answer = answer.map(|mut answer| {
            if let (Value::Object(fields), Some((name, value))) = (&mut answer.result, field) {
                fields.insert(name.to_owned(), value);
            }
            answer.text = format!("{}\n[{note}]", answer.text);
            answer
        });
        self.note = Some(self.note.take().map_or(note.clone(), |earlier| format!("{earlier}; {note}")));
        answer
    }

    /// Records a success with its facts, changes and events. On an error the call stays open, and only its facts can be
    /// recorded again.
    fn succeed(&mut self, answer: ToolAnswer) -> Result<ToolOutcome, ToolError> {
        let mut recording = self.recording();
        let mut changes = Vec::new();
        if let Some(context) = &mut self.context {
            context.record_facts(&mut recording)?;
            changes = context.record_work(&mut recording)?;
        }
        let mut contents = Vec::new();
        let result = lift(answer.result.clone(), &mut contents);
        let micros = self.micros();
        let finished = CallFinished { status: CallStatus::Ok, result, message: String::new(), micros, reason: None };
        contents.into_iter().for_each(|content| recording.keep(content));
        recording.push(&finished)?;
        if let Some(context) = self.context.as_ref().filter(|_| !changes.is_empty()) {
            context.workspace().apply(&changes)?;
        }
        let pending = recording.submit().inspect_err(|_| self.distrust())?;
        Ok(ToolOutcome {
            call: self.call,
            finished: self.close(pending),
            status: CallStatus::Ok,
            result: answer.result,
            text: answer.text,
            micros,
            reason: None,
            ran: self.context.as_mut().and_then(|context| context.ran.take()),
            limit: None,
            repeated: false,
        })
    }

    /// Records a failure with its facts, and with the changes that are on the disk.
    fn fail(&mut self, error: &ToolError) -> Result<ToolOutcome, SessionError> {
        let micros = self.micros();
        let message = match &self.note {
            Some(note) => format!("{error}; {note}"),
            None => error.to_string(),
        };
        let status = match error {
            ToolError::Cancelled => CallStatus::Interrupted,
            _ => CallStatus::Error,
        };
        let finished = CallFinished::without_success(status, error.reason(), message.clone(), micros);
        let reason = finished.reason;
        let pending = self.record_failure(&finished).inspect_err(|_| self.distrust())?;
        let (call, finished) = (self.call, self.close(pending));
        let limit = match error {
            ToolError::OverLimit(_, limit) => Some(Box::new(*limit)),
            _ => None,
        };
        let (result, text, ran, repeated) = (Value::Null, message, None, false);
        Ok(ToolOutcome { call, finished, status, result, text, micros, reason, ran, limit, repeated })
    }

    /// Waits until the outcome is durable.
    async fn settle(mut self) -> Result<(), SessionError> {
        let settled = match &self.settling {
            Some(pending) => pending.settled().await,
            None => return Ok(()),
        };
        self.settling = None;
        settled.inspect_err(|_| self.distrust())?;
        Ok(())
    }

    /// Notes in the workspace that files may have changed without a record.
    fn distrust(&self) {
        if let Some(context) = &self.context {
            distrust(context.workspace().as_ref());
        }
    }

    fn recording(&self) -> EventBuffer {
        let recording = EventBuffer::of_call(&self.session, self.call);
        match &self.context {
            Some(context) => recording.over(context.state()),
            None => recording,
        }
    }

    fn record_failure(&mut self, finished: &CallFinished) -> Result<Pending, SessionError> {
        let mut recording = self.recording();
        if let Some(context) = &mut self.context {
            context.record_facts(&mut recording)?;
            context.files.unstage();
            context.files.record_into(&mut recording)?;
        }
        recording.push(finished)?;
        self.closed = true;
        recording.submit()
    }

    /// Closes the call with a submitted outcome, and returns the outcome's position.
    fn close(&mut self, pending: Pending) -> Seq {
        self.closed = true;
        self.settling.insert(pending).last()
    }

    /// Waits for the end of the command and records an interruption. Holds the workspace lock until that is visible.
    async fn give_up(mut self) {
        if let Some(context) = &mut self.context {
            context.stop_running().await;
        }
        note_interruption(self.finish(Err(ToolError::Cancelled)).await);
    }
}

fn note_interruption(recorded: Result<ToolOutcome, SessionError>) {
    if let Err(error) = recorded {
        tracing::warn!(%error, "failed to record an interrupted call");
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(pending) = self.settling.take() {
            return keep_until_settled(pending, self.context.take(), self.turn.take(), self.in_flight.take());
        }
        if self.closed {
            return;
        }
        let ran = self.context.as_ref().is_some_and(ToolContext::has_run);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if (ran || self.session.store_may_wait()) && !self.handed_over => {
                self.closed = true;
                let abandoned = Self {
                    call: self.call,
                    session: self.session.clone(),
                    since: self.since,
                    closed: false,
                    handed_over: true,
                    context: self.context.take(),
                    turn: self.turn.take(),
                    settling: None,
                    in_flight: self.in_flight.take(),
                    on_failure: self.on_failure,
                    note: None,
                };
                runtime.spawn(abandoned.give_up());
            }
            // Without a runtime, dropping the context kills the command, and its changes are found as drift later.
            // The background writer makes the record durable.
            _ => note_interruption(self.record(Err(ToolError::Cancelled))),
        }
    }
}

/// Holds the workspace lock and the in-flight entry of a dropped call until its record is visible.
fn keep_until_settled(
    pending: Pending,
    context: Option<ToolContext>,
    turn: Option<WorkspaceLock>,
    in_flight: Option<SessionCall>,
) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            if let Err(error) = pending.settled().await {
                tracing::warn!(%error, "failed to record the outcome of a call");
                context.iter().for_each(|context| distrust(context.workspace().as_ref()));
            }
            drop((turn, in_flight));
        });
    }
}
