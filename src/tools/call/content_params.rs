//! Long texts in recorded parameters and results: stored once, as contents.

use serde_json::{Map, Value, json};

use crate::engine::commit::Content;
use crate::engine::content_ref::{CONTENT, LITERAL, mark_of};
use crate::engine::id::Digest;
use crate::tools::builtin::files::FILE_TEXT_MAX;

const PARAMS_MAX: usize = 1 << 20;
/// Maximum bytes of a character of a text in JSON: `\u0000`.
const CHAR_BYTES: usize = 6;
/// Texts above this many bytes are lifted out.
const INLINE_MAX: usize = 256;

/// Returns the maximum bytes of a call's parameters, with the set limit for the characters of a file's text.
pub(crate) fn params_max(text_chars: Option<usize>) -> usize {
    PARAMS_MAX.max(text_chars.unwrap_or_default().min(FILE_TEXT_MAX).saturating_mul(CHAR_BYTES))
}

/// Replaces each long text in a value with `{"$content": digest, "bytes": n}`.
///
/// A text that equals a file's contents is then stored only once. An object that already looks like such a mark is
/// wrapped in `{"$literal": ...}`, so [`lower`] restores the exact value.
pub fn lift(value: Value, contents: &mut Vec<Content>) -> Value {
    lift_over(value, INLINE_MAX, contents)
}

/// Replaces each text of more than `limit` bytes; see [`lift`].
pub(crate) fn lift_over(value: Value, limit: usize, contents: &mut Vec<Content>) -> Value {
    match value {
        Value::String(text) if text.len() > limit => {
            let content = Content::of(text);
            let mark = json!({ CONTENT: content.digest, "bytes": content.bytes.len() });
            contents.push(content);
            mark
        }
        Value::Array(items) => items.into_iter().map(|item| lift_over(item, limit, contents)).collect(),
        Value::Object(fields) => {
            let marked = fields.contains_key(CONTENT) || fields.contains_key(LITERAL);
            let fields: Map<_, _> =
                fields.into_iter().map(|(name, item)| (name, lift_over(item, limit, contents))).collect();
            if marked { json!({ LITERAL: fields }) } else { Value::Object(fields) }
        }
        other => other,
    }
}

/// Restores lifted texts; a mark stays if `read` returns no content for it.
pub fn lower(value: Value, read: &mut dyn FnMut(&Digest) -> Option<Vec<u8>>) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| lower(item, read)).collect(),
        Value::Object(mut fields) => {
            if let Some(Value::Object(literal)) = fields.remove(LITERAL) {
                return Value::Object(literal.into_iter().map(|(name, item)| (name, lower(item, read))).collect());
            }
            match mark_of(&fields).and_then(|digest| read(&digest)).map(String::from_utf8) {
                Some(Ok(text)) => Value::String(text),
                _ => Value::Object(fields.into_iter().map(|(name, item)| (name, lower(item, read))).collect()),
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_params_round_trip() {
        let long = "x".repeat(INLINE_MAX + 1);
        let value = json!({
            "short": "x".repeat(INLINE_MAX),
            "list": [long, { "$content": "not a digest" }, { "$literal": { "$content": long } }],
        });
        let mut contents = Vec::new();
        let lifted = lift(value.clone(), &mut contents);
        assert_eq!(contents.len(), 2);
        assert!(lifted.to_string().len() < 1000);
        let mut read = |digest: &Digest| contents.iter().find(|c| c.digest == *digest).map(|c| c.bytes.to_vec());
        assert_eq!(lower(lifted, &mut read), value);
    }
}
