//! Calls, rewinds and merges in flight in a hub.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::HubError;
use super::figures::Figures;
use crate::engine::event::CallStatus;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::tools::{ApprovalAnswer, CommandQuestion, Tools};

#[derive(Default)]
pub struct InFlight {
    work: Mutex<InFlightWork>,
    ended: Notify,
    pub(super) figures: Figures,
}

#[derive(Default)]
struct InFlightWork {
    is_ending: bool,
    last: u64,
    going: BTreeMap<u64, InFlightEntry>,
}

struct InFlightEntry {
    cancel: CancellationToken,
    call: Option<(SessionId, Seq)>,
    since: Instant,
    question: Option<(CommandQuestion, oneshot::Sender<ApprovalAnswer>)>,
    /// Cancelled when the work ends.
    over: CancellationToken,
    /// True for a process in the background, which may never end.
    is_process: bool,
}

/// A call in flight.
pub struct CallGoing {
    pub session: SessionId,
    pub call: Seq,
    pub since: Duration,
    /// The pending question, if any.
    pub question: Option<CommandQuestion>,
}

/// A guard that counts as work in flight until it is dropped.
pub struct Going {
    in_flight: Arc<InFlight>,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerTaken {
    Yes,
    NoCall,
    NoQuestion,
}

impl InFlightWork {
    fn call(&mut self, session: SessionId, call: Seq) -> Option<&mut InFlightEntry> {
        self.going.values_mut().find(|entry| entry.call == Some((session, call)))
    }
}

impl InFlight {
    pub fn begin(self: &Arc<Self>, cancel: CancellationToken) -> Result<Going, HubError> {
        let mut work = self.lock();
        if work.is_ending {
            return Err(HubError::Ending);
        }
        work.last += 1;
        let number = work.last;
        let (since, over) = (Instant::now(), CancellationToken::new());
        work.going.insert(number, InFlightEntry { cancel, call: None, since, question: None, over, is_process: false });
        Ok(Going { in_flight: Arc::clone(self), number })
    }

    /// Begins the process of a call.
    pub(super) fn begin_process(
        self: &Arc<Self>,
        cancel: CancellationToken,
        (session, call): (SessionId, Seq),
    ) -> Result<Going, HubError> {
        let going = self.begin(cancel)?;
        if let Some(entry) = self.lock().going.get_mut(&going.number) {
            (entry.call, entry.is_process) = (Some((session, call)), true);
        }
        Ok(going)
    }

    /// Refuses new work from now on.
    pub(super) fn end(&self) {
        self.lock().is_ending = true;
    }

    pub(super) fn still_going(&self) -> Result<(), HubError> {
        if self.lock().is_ending { Err(HubError::Ending) } else { Ok(()) }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().going.len()
    }

    /// Returns the calls in flight, oldest first.
    pub fn calls(&self) -> Vec<CallGoing> {
        let work = self.lock();
        let call = |entry: &InFlightEntry| {
            let (session, call) = entry.call?;
            let question = entry.question.as_ref().filter(|(_, answer)| !answer.is_closed());
            let question = question.map(|(question, _)| question.clone());
            Some(CallGoing { session, call, since: entry.since.elapsed(), question })
        };
        work.going.values().filter_map(call).collect()
    }

    /// Returns a token that is cancelled when a call ends; `None` if the call is not in flight.
    pub fn end_of(&self, session: SessionId, call: Seq) -> Option<CancellationToken> {
        self.lock().call(session, call).map(|entry| entry.over.clone())
    }

    pub(super) fn cancel(&self) {
        self.lock().going.values().for_each(|entry| entry.cancel.cancel());
    }

    /// Cancels one call of a session, or all of them, and returns the cancelled calls.
    pub(crate) fn cancel_calls(&self, session: SessionId, wanted: Option<Seq>) -> Vec<Seq> {
        let work = self.lock();
        let is_meant = |(of, call): (SessionId, Seq)| of == session && wanted.is_none_or(|wanted| wanted == call);
        let meant = work.going.values().filter(|entry| entry.call.is_some_and(is_meant));
        meant.inspect(|entry| entry.cancel.cancel()).filter_map(|entry| Some(entry.call?.1)).collect()
    }

    pub fn ask(&self, session: SessionId, question: CommandQuestion) -> oneshot::Receiver<ApprovalAnswer> {
        let (sender, receiver) = oneshot::channel();
        if let Some(entry) = self.lock().call(session, question.call) {
            entry.question = Some((question, sender));
        }
        receiver
    }

    pub(crate) fn answer(&self, session: SessionId, call: Seq, answer: ApprovalAnswer) -> AnswerTaken {
        let mut work = self.lock();
        let Some(entry) = work.call(session, call) else { return AnswerTaken::NoCall };
        match entry.question.take().map(|(_, question)| question.send(answer)) {
            Some(Ok(())) => AnswerTaken::Yes,
            _ => AnswerTaken::NoQuestion,
        }
    }

    pub(super) async fn ended(&self) {
        self.until(|work| work.going.is_empty()).await;
    }

    /// Waits until only processes are in flight.
    pub(super) async fn calls_ended(&self) {
        self.until(|work| work.going.values().all(|entry| entry.is_process)).await;
    }

    async fn until(&self, is_so: impl Fn(&InFlightWork) -> bool) {
        loop {
            let ended = self.ended.notified();
            if is_so(&self.lock()) {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, InFlightWork> {
        lock(&self.work)
    }
}

impl Going {
    pub(super) fn begun(&self, session: SessionId, call: Seq) {
        if let Some(entry) = self.in_flight.lock().going.get_mut(&self.number) {
            entry.call = Some((session, call));
        }
    }

    pub(super) fn called(&self, tool: &str, tools: &Tools, status: CallStatus, micros: u64) {
        self.in_flight.figures.ended(tool, tools, status, micros);
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let mut work = self.in_flight.lock();
        if let Some(entry) = work.going.remove(&self.number) {
            entry.over.cancel();
        }
        drop(work);
        self.in_flight.ended.notify_waiters();
    }
}
