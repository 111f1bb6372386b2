//! Calls in flight, and parked calls, which wait for a person's answer without an open request of their client.

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

/// Limit for a client's parked calls.
pub(super) const PARKED_MAX: usize = 8;
/// Time limit of a parked call. It keeps its session busy, and its client may never return.
const PARKED_FOR: Duration = Duration::from_secs(2 * 60);

/// Time limit of a call that may need a person's approval. The command has a separate limit.
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
            // Fails for a call that another process took over, which already has a position.
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

/// Calls that wait for an answer, by handle. Dropping a call cancels it.
#[derive(Clone, Default)]
pub(super) struct Parked(Arc<Mutex<Calls>>);

impl Parked {
    /// Parks a call for a while. Returns an unguessable handle, or the call if too many are parked.
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
