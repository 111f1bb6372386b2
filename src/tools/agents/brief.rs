//! Shortening texts to their first line and digest.

use serde_json::{Map, Value, json};

use crate::engine::id::Digest;

/// The number of recorded characters of a line.
const LINE_MAX: usize = 200;
/// The maximum number of bytes of a single line that is recorded whole.
const WHOLE_MAX: usize = 256;

/// Returns the beginning of the first line that is not empty.
pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LINE_MAX).collect()
}

/// Replaces each text that is long or has several lines by `{"line", "bytes", "digest"}`.
pub(super) fn brief(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > WHOLE_MAX || text.trim_end().contains('\n') => {
            json!({ "line": first_line(&text), "bytes": text.len(), "digest": Digest::of(text.as_bytes()) })
        }
        Value::Array(items) => items.into_iter().map(brief).collect(),
        Value::Object(fields) => {
            let fields: Map<_, _> = fields.into_iter().map(|(name, value)| (name, brief(value))).collect();
            Value::Object(fields)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brief_keeps_short_texts_and_first_lines() {
        let value = json!({ "stdout": "one\ntwo\n", "list": ["short\n", 3], "long": "x".repeat(300) });
        let brief = brief(value);
        assert_eq!(brief["list"], json!(["short\n", 3]));
        assert_eq!((&brief["stdout"]["line"], &brief["stdout"]["bytes"]), (&json!("one"), &json!(8)));
        assert_eq!(brief["stdout"]["digest"], json!(Digest::of(b"one\ntwo\n")));
        assert_eq!(brief["long"]["line"], json!("x".repeat(LINE_MAX)));
        assert_eq!(first_line("\n\n  hello \nworld"), "hello");
    }
}
