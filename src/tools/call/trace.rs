//! The trace that a call belongs to.

use std::collections::HashMap;

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// The headers of W3C Trace Context, which MCP has as members of `_meta`.
const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Bytes of a state that is passed on: the standard wants 512 at least.
const STATE_MAX: usize = 2048;

/// The span of somebody else's in which a call is made: the call's own span becomes a child of it, so that a trace of an
/// agent's run goes on through its tool calls. It is told as W3C Trace Context.
///
/// ```
/// use foldspace::TraceContext;
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let trace = TraceContext::read(text, Some("vendor=1")).expect("it is one");
/// assert_eq!((trace.traceparent().as_str(), trace.tracestate().as_str()), (text, "vendor=1"));
/// assert_eq!(TraceContext::read("00-of-no-trace", None), None);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TraceContext(SpanContext);

impl TraceContext {
    /// What the two say. None where the first can't be read: the call has a trace of its own then, as the standard asks.
    /// The second is left out where it can't be read or has more than 2048 bytes.
    pub fn read(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let traceparent = traceparent.trim();
        if !is_parent(traceparent) {
            return None;
        }
        // Else no header could have it.
        let is_header = |state: &&str| state.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let tracestate = tracestate.filter(|state| state.len() <= STATE_MAX).filter(is_header);
        let told = TraceFields { traceparent, tracestate };
        let context = TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &told);
        Self::of(&context)
    }

    /// The span of a context, if it has one.
    pub(crate) fn of(context: &opentelemetry::Context) -> Option<Self> {
        let span = context.span().span_context().clone();
        span.is_valid().then_some(Self(span))
    }

    /// A context in which that span is the parent of others.
    pub(crate) fn context(&self) -> opentelemetry::Context {
        opentelemetry::Context::new().with_remote_span_context(self.0.clone())
    }

    /// As `traceparent` has it.
    pub fn traceparent(&self) -> String {
        let mut headers = HashMap::new();
        TraceContextPropagator::new().inject_context(&self.context(), &mut headers);
        headers.remove(PARENT).unwrap_or_default()
    }

    /// As `tracestate` has it; empty when there is nothing.
    pub fn tracestate(&self) -> String {
        self.0.trace_state().header()
    }
}

/// Whether it has the standard's form, which the propagator does not look at closely. What a later version has behind
/// that is passed over.
fn is_parent(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = parts.iter().map(|part| part.len()).take(4);
    lengths.eq([2, 32, 16, 2]) && parts[..4].iter().all(|part| is_hex(part)) && (parts.len() == 4 || parts[0] != "00")
}

struct TraceFields<'a> {
    traceparent: &'a str,
    tracestate: Option<&'a str>,
}

impl Extractor for TraceFields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            PARENT => Some(self.traceparent),
            STATE => self.tracestate,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![PARENT, STATE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_malformed_is_none() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let none = "0".repeat(32);
        for text in [
            String::new(),
            "-".repeat(10_000),
            format!("ff-{trace}-{span}-01"),
            format!("00-{none}-{span}-01"),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}é-{span}-01"),
            format!("00-{trace}-{span}-01-"),
            format!("00-{trace}-{span}-+1"),
            "00-abcd-1111-01".to_owned(),
            "+0-+dcba-+2222-+1".to_owned(),
        ] {
            assert_eq!(TraceContext::read(&text, None), None, "{text}");
        }
    }

    #[test]
    fn traceparent_of_later_version_is_accepted() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let read = TraceContext::read(&format!(" cc-{trace}-{span}-01-what-else "), Some("a=1,\tb=2")).unwrap();
        assert_eq!((read.traceparent(), read.tracestate().as_str()), (format!("00-{trace}-{span}-01"), "a=1,b=2"));
    }

    #[test]
    fn tracestate_malformed_is_left_out() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let long = format!("vendor={}", "x".repeat(STATE_MAX));
        for state in ["no state", "vendor=a\r\nhost: b", "vendor=é", "vendor=\0", &long] {
            let trace = TraceContext::read(text, Some(state)).unwrap();
            assert_eq!((trace.traceparent().as_str(), trace.tracestate().as_str()), (text, ""), "{state}");
        }
    }
}
