//! The calls that are under way through HTTP, and the questions that they wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::engine::id::{Seq, SessionId};
use crate::tools::ApprovalAnswer;

type Calls = BTreeMap<(SessionId, Seq), InFlightEntry>;

/// The calls that are under way.
#[derive(Clone, Default)]
pub(super) struct InFlightCalls {
    calls: Arc<Mutex<Calls>>,
}

struct InFlightEntry {
    cancel: CancellationToken,
    question: Option<oneshot::Sender<ApprovalAnswer>>,
}

/// A call that is under way, until this is dropped.
pub(super) struct InFlightGuard {
    running: InFlightCalls,
    key: (SessionId, Seq),
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakenBack {
    Yes,
    NoCall,
    NoQuestion,
}

impl InFlightCalls {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that has begun, with what takes it back.
    pub(super) fn begin(&self, session: SessionId, call: Seq, cancel: CancellationToken) -> InFlightGuard {
        self.lock().insert((session, call), InFlightEntry { cancel, question: None });
        InFlightGuard { running: self.clone(), key: (session, call) }
    }

    /// Takes a call back; false where none of that name is under way.
    pub(super) fn cancel(&self, session: SessionId, call: Seq) -> bool {
        match self.lock().get(&(session, call)) {
            Some(under_way) => {
                under_way.cancel.cancel();
                true
            }
            None => false,
        }
    }

    /// Notes that a call waits for an answer.
    pub(super) fn ask(&self, session: SessionId, call: Seq) -> oneshot::Receiver<ApprovalAnswer> {
        let (sender, receiver) = oneshot::channel();
        if let Some(under_way) = self.lock().get_mut(&(session, call)) {
            under_way.question = Some(sender);
        }
        receiver
    }

    /// Gives a call the answer that it waits for.
    pub(super) fn answer(&self, session: SessionId, call: Seq, answer: ApprovalAnswer) -> TakenBack {
        let mut calls = self.lock();
        let Some(under_way) = calls.get_mut(&(session, call)) else { return TakenBack::NoCall };
        match under_way.question.take().map(|question| question.send(answer)) {
            Some(Ok(())) => TakenBack::Yes,
            _ => TakenBack::NoQuestion,
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}
