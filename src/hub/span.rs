//! The span of a call, for who traces.

use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::engine::session::Session;
use crate::tools::{ToolCall, ToolOutcome, TraceContext};

/// A span for a call, in the trace that the call belongs to. The call goes on in it: what another process does for it
/// there is a child of this span, where somebody traces here.
pub(super) fn begin(session: &Session, call: &mut ToolCall) -> Span {
    let span = tracing::debug_span!(
        "tool_call", session = %session.id(), agent = %session.agent(), tool = %call.tool,
        call = Empty, status = Empty, micros = Empty,
    );
    if let Some(trace) = &call.trace {
        // Nobody traces, as a rule.
        let _ = span.set_parent(trace.context());
    }
    call.trace = TraceContext::of(&span.context()).or(call.trace.take());
    span
}

/// Notes what came of it.
pub(super) fn end(span: &Span, outcome: &ToolOutcome) {
    let status = outcome.status.word();
    span.record("call", outcome.call).record("status", status).record("micros", outcome.micros);
    span.in_scope(|| tracing::debug!("tool call"));
}
