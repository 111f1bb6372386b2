//! The subject of a call, in one line.

use std::borrow::Cow;

use serde_json::Value;

use super::{visible, whole};
use crate::engine::counted::counted;
use crate::engine::session::Session;

const TEXT_MAX: u64 = 1 << 20;

/// Returns the first line of a text, escaped, and cut to `max` characters.
pub fn one_line(text: &str, max: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let more = text.trim_end().len() > line.len() && !text.trim().eq(line.trim());
    let mut shown: String = line.chars().take(max).collect();
    if more || line.chars().nth(max).is_some() {
        shown.push_str("...");
    }
    visible(&shown).into_owned()
}

/// Returns the subject of a call from its parameters: a command, a path, a pattern; each cut to `max` characters.
pub fn subject(session: &Session, params: &Value, max: usize) -> String {
    let named =
        |name: &str| params.get(name).and_then(|value| text_of(session, value)).map(|text| one_line(&text, max));
    let first = || params.get("paths")?.get(0)?.as_str().map(|path| one_line(path, max));
    let path = named("file_path").or_else(|| named("path")).or_else(first);
    let what = named("pattern").map(|pattern| format!("'{pattern}'")).or_else(|| named("command"));
    let what =
        what.or_else(|| params.get("command").and_then(Value::as_array).map(|words| command_line(session, words, max)));
    match (what, path) {
        (Some(what), Some(path)) => format!("{what} in {path}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => {
            let values = params.as_object().into_iter().flat_map(|fields| fields.values());
            let first = values.filter_map(|value| text_of(session, value)).next();
            let process = params.get("process").and_then(Value::as_u64).map(|number| number.to_string());
            let words: Vec<_> = process.into_iter().chain(first.map(|text| one_line(&text, max))).collect();
            words.join(" ")
        }
    }
}

fn command_line(session: &Session, words: &[Value], max: usize) -> String {
    let words: Vec<_> = words.iter().take(max).filter_map(|word| text_of(session, word)).collect();
    one_line(&words.join(" "), max)
}

/// Returns a text, or the stored content in its place; if that is huge or missing, a note of its length.
pub(super) fn text_of<'a>(session: &Session, value: &'a Value) -> Option<Cow<'a, str>> {
    if let Value::String(text) = value {
        return Some(Cow::Borrowed(text));
    }
    let bytes = value.get("$content").and(value.get("bytes")).and_then(Value::as_u64)?;
    let whole = if bytes <= TEXT_MAX { whole(session, value) } else { Value::Null };
    Some(match whole {
        Value::String(text) => Cow::Owned(text),
        _ => Cow::Owned(format!("[a text of {}]", counted(bytes, "byte"))),
    })
}
