//! Calls in flight, and those that wait for a person's answer while no request of their client is open.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::approver::Question;
use crate::engine::clock::Clock;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::hub::{HubError, OpenSession};
use crate::tools::{ToolCall, ToolOutcome};

/// Calls of a client that wait at most.
pub(super) const PARKED_MAX: usize = 8;
/// Time that a call waits. It keeps its session busy, and its client may never come back.
const PARKED_FOR: Duration = Duration::from_secs(2 * 60);

/// Time that a call may take whose command a person may have to allow first. The command has a limit of its own.
pub(super) const ASKING_MAX: Duration = Duration::from_secs(10 * 60);

/// A call in flight. Dropping it cancels it.
pub(super) struct RunningCall {
    pub(super) session: Session,
    pub(super) tool: String,
    pub(super) outcome: JoinHandle<Result<ToolOutcome, HubError>>,
    pub(super) questions: mpsc::Receiver<Question>,
    pub(super) cancel: CancellationToken,
    _taken_back: DropGuard,
    pub(super) position: Arc<OnceLock<Seq>>,
}

impl RunningCall {
    pub(super) fn begin(
        cancel: CancellationToken,
        open: OpenSession,
        mut call: ToolCall,
        questions: mpsc::Receiver<Question>,
    ) -> Self {
        call.cancel = cancel.clone();
        call.limit = Some(ASKING_MAX);
        let position = Arc::new(OnceLock::new());
        let cell = Arc::clone(&position);
        let begun = move |seq| {
            // A call that another process takes over has a position already.
            let _ = cell.set(seq);
        };
        let (session, tool) = (open.session().clone(), call.tool.clone());
        let outcome = tokio::spawn(async move { open.call_telling(call, begun).await });
        let taken_back = cancel.clone().drop_guard();
        Self { session, tool, outcome, questions, cancel, _taken_back: taken_back, position }
    }
}

pub(super) struct PendingQuestion {
    pub(super) running: RunningCall,
    pub(super) question: Question,
}

type Calls = Vec<(String, PendingQuestion)>;

/// Calls that wait for an answer, by their handles. Dropping one cancels it.
#[derive(Clone, Default)]
pub(super) struct Parked(Arc<Mutex<Calls>>);

impl Parked {
    /// Keeps a call for a while; returns an unguessable handle, or the call when too many wait.
    pub(super) fn keep(&self, waiting: PendingQuestion, clock: &dyn Clock) -> Result<String, Box<PendingQuestion>> {
        let handle = SessionId::from_bytes(clock.fresh_id()).to_string();
        let mut calls = lock(&self.0);
        calls.retain(|(_, waiting)| !waiting.running.outcome.is_finished());
        if calls.len() >= PARKED_MAX {
            return Err(Box::new(waiting));
        }
        calls.push((handle.clone(), waiting));
        drop(calls);
        let (parked, late) = (Arc::downgrade(&self.0), handle.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PARKED_FOR).await;
            if let Some(parked) = parked.upgrade().map(Self) {
                drop(parked.remove(|known, _| known == late));
            }
        });
        Ok(handle)
    }

    pub(super) fn take(&self, handle: &str, tool: &str) -> Option<PendingQuestion> {
        self.remove(|known, waiting| known == handle && waiting.running.tool == tool)
    }

    fn remove(&self, is_it: impl Fn(&str, &PendingQuestion) -> bool) -> Option<PendingQuestion> {
        let mut calls = lock(&self.0);
        let at = calls.iter().position(|(handle, waiting)| is_it(handle, waiting))?;
        Some(calls.remove(at).1)
    }
}
