//! Spans and metrics of calls.

use std::sync::OnceLock;

use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::in_flight::Going;
use crate::engine::event::CallStatus;
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::tools::{ToolCall, ToolOutcome, Tools};

/// The span of a call. If it is dropped without an outcome, a call that has begun counts as interrupted.
pub(super) struct CallSpan<'a> {
    span: Span,
    going: Going,
    session: SessionId,
    tool: String,
    tools: &'a Tools,
    since: Instant,
    call: OnceLock<Seq>,
    has_ended: bool,
}

impl<'a> CallSpan<'a> {
    /// Starts a span in the call's trace. The call's work in other processes becomes a child of this span.
    pub(super) fn begin(session: &Session, tools: &'a Tools, going: Going, call: &mut ToolCall) -> Self {
        let span = tracing::debug_span!(
            "tool_call", session = %session.id(), agent = %session.agent(), tool = %call.tool,
            call = Empty, status = Empty, micros = Empty,
        );
        #[cfg(feature = "otel")]
        super::otel::join(&span, &mut call.trace);
        let (tool, since) = (call.tool.clone(), Instant::now());
        Self { span, going, session: session.id(), tool, tools, since, call: OnceLock::new(), has_ended: false }
    }

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn begun(&self, call: Seq) {
        self.going.begun(self.session, call);
        // Its position never changes.
        let _ = self.call.set(call);
    }

    pub(super) fn end(mut self, outcome: &ToolOutcome) {
        self.has_ended = true;
        // Counted when it was made.
        if outcome.repeated {
            return;
        }
        self.note(outcome.call, outcome.status, outcome.micros);
    }

    fn note(&self, call: Seq, status: CallStatus, micros: u64) {
        self.span.record("call", call).record("status", status.word()).record("micros", micros);
        self.span.in_scope(|| tracing::debug!("tool call"));
        self.going.called(&self.tool, self.tools, status, micros);
    }
}

impl Drop for CallSpan<'_> {
    fn drop(&mut self) {
        if let (false, Some(call)) = (self.has_ended, self.call.get()) {
            let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.note(*call, CallStatus::Interrupted, micros);
        }
    }
}
