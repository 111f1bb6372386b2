//! The calls that are under way through HTTP, and the questions that they wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::engine::id::SessionId;
use crate::engine::recorded::Seq;
use crate::tools::Answer;

type Calls = BTreeMap<(SessionId, Seq), UnderWay>;

/// The calls that are under way.
#[derive(Clone, Default)]
pub(super) struct Running {
    calls: Arc<Mutex<Calls>>,
}

struct UnderWay {
    cancel: CancellationToken,
    question: Option<oneshot::Sender<Answer>>,
}

/// A call that is under way, until this is dropped.
pub(super) struct Begun {
    running: Running,
    key: (SessionId, Seq),
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    NoCall,
    NoQuestion,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that has begun, with what takes it back.
    pub(super) fn begin(&self, session: SessionId, call: Seq, cancel: CancellationToken) -> Begun {
        self.lock().insert((session, call), UnderWay { cancel, question: None });
        Begun { running: self.clone(), key: (session, call) }
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
    pub(super) fn ask(&self, session: SessionId, call: Seq) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        if let Some(under_way) = self.lock().get_mut(&(session, call)) {
            under_way.question = Some(sender);
        }
        receiver
    }

    /// Gives a call the answer that it waits for.
    pub(super) fn answer(&self, session: SessionId, call: Seq, answer: Answer) -> Taken {
        let mut calls = self.lock();
        let Some(under_way) = calls.get_mut(&(session, call)) else { return Taken::NoCall };
        match under_way.question.take().map(|question| question.send(answer)) {
            Some(Ok(())) => Taken::Yes,
            _ => Taken::NoQuestion,
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}
