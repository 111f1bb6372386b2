//! Spans of calls in OpenTelemetry traces.

use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::tools::TraceContext;

/// Makes the span a child of the call's span. If spans are exported, the call continues in the new span.
pub(super) fn join(span: &Span, trace: &mut Option<TraceContext>) {
    if let Some(parent) = trace.as_ref() {
        let (trace, id) = (TraceId::from(parent.trace), SpanId::from(parent.span));
        let state = TraceState::from_str(&parent.state).unwrap_or_default();
        let parent = SpanContext::new(trace, id, TraceFlags::new(parent.flags), true, state);
        // Fails if no subscriber exports spans, which is the usual case.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    if own.is_valid() {
        let (id, span) = (u128::from_be_bytes(own.trace_id().to_bytes()), u64::from_be_bytes(own.span_id().to_bytes()));
        let flags = own.trace_flags().to_u8();
        *trace = Some(TraceContext { trace: id, span, flags, state: own.trace_state().header() });
    }
}
