//! The trace that a call belongs to.

/// Maximum size of a propagated state in bytes; the standard requires at least 512.
const STATE_MAX: usize = 2048;

/// The caller's span, as W3C Trace Context. The call's own span becomes its child, so the trace of an agent's run
/// continues through its tool calls.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{tools::TraceContext};
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let trace = TraceContext::read(text, Some("vendor=1")).expect("it is one");
/// assert_eq!((trace.traceparent().as_str(), trace.tracestate()), (text, "vendor=1"));
/// assert_eq!(TraceContext::read("00-of-no-trace", None), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    #[doc(hidden)]
    pub trace: u128,
    #[doc(hidden)]
    pub span: u64,
    #[doc(hidden)]
    pub flags: u8,
    #[doc(hidden)]
    pub state: String,
}

impl TraceContext {
    /// Parses the two headers. Returns `None` for an invalid `traceparent`: the standard then requires a new trace.
    /// Ignores a `tracestate` that is invalid or longer than 2048 bytes.
    pub fn read(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let parts: Vec<&str> = traceparent.trim().splitn(5, '-').collect();
        let [version, trace, span, flags, rest @ ..] = parts.as_slice() else { return None };
        let version = u8::try_from(hexadecimal(version, 2)?).ok()?;
        // A later version may append fields after the flags.
        if version == 0xff || (version == 0 && !rest.is_empty()) {
            return None;
        }
        let (trace, span) = (hexadecimal(trace, 32)?, u64::try_from(hexadecimal(span, 16)?).ok()?);
        let flags = u8::try_from(hexadecimal(flags, 2)?).ok()? & SAMPLED;
        let state = tracestate.and_then(read_state).unwrap_or_default();
        (trace != 0 && span != 0).then_some(Self { trace, span, flags, state })
    }

    /// Returns the `traceparent` header.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }

    /// Returns the `tracestate` header, which may be empty.
    pub fn tracestate(&self) -> &str {
        &self.state
    }
}

/// The only flag that is propagated.
const SAMPLED: u8 = 1;

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let are_digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == digits && are_digits { u128::from_str_radix(text, 16).ok() } else { None }
}

fn read_state(state: &str) -> Option<String> {
    let is_value = |value: &str| value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    let is_key = |key: &str| {
        let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
        !key.is_empty() && key.bytes().all(allowed)
    };
    let members: Vec<&str> = state.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
    let is_member = |member: &&str| member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value));
    (state.len() <= STATE_MAX && members.iter().all(is_member)).then(|| members.join(","))
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
        assert_eq!((read.traceparent(), read.tracestate()), (format!("00-{trace}-{span}-01"), "a=1,b=2"));
    }

    #[test]
    fn tracestate_malformed_is_left_out() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let long = format!("vendor={}", "x".repeat(STATE_MAX));
        for state in ["no state", "vendor=a\r\nhost: b", "vendor=é", "vendor=\0", &long] {
            let trace = TraceContext::read(text, Some(state)).unwrap();
            assert_eq!((trace.traceparent().as_str(), trace.tracestate()), (text, ""), "{state}");
        }
    }
}
