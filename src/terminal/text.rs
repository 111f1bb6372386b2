//! Formats text and numbers for people.

use std::borrow::Cow;

pub(crate) use foldspace::view::one_line;
use foldspace::{Timestamp, view};
use serde_json::Value;

/// The characters of a field in one line, the fields of an object, and the depth of objects in it.
const FIELD_MAX: usize = 100;
const FIELDS_MAX: usize = 40;
const FIELDS_DEPTH: usize = 3;

pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // The loss of precision is far below the shown digits.
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

pub(crate) fn duration(micros: u64) -> String {
    let millis = micros as f64 / 1000.0;
    match micros {
        0..10_000 => format!("{millis:.1} ms"),
        10_000..1_000_000 => format!("{millis:.0} ms"),
        1_000_000..120_000_000 => format!("{:.1} s", millis / 1000.0),
        _ => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

pub(crate) fn moment(time: Timestamp) -> String {
    formatted(time, "%Y-%m-%d %H:%M:%S")
}

pub(crate) fn exact_moment(time: Timestamp) -> String {
    formatted(time, "%Y-%m-%d %H:%M:%S%.3f")
}

pub(crate) fn time_of_day(time: Timestamp) -> String {
    formatted(time, "%H:%M:%S%.3f")
}

/// Returns the time since a moment in its largest unit: `2 minutes ago`.
pub(crate) fn ago(time: Timestamp, now: Timestamp) -> String {
    let seconds = u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0) / 1000;
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let unit = units.into_iter().find(|(length, _)| seconds >= *length);
    unit.map_or("just now".to_owned(), |(length, name)| format!("{} ago", count(seconds / length, name)))
}

pub(crate) fn day(time: Timestamp) -> String {
    formatted(time, "%Y-%m-%d")
}

fn formatted(time: Timestamp, format: &str) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(known) => known.to_zoned(jiff::tz::TimeZone::system()).strftime(format).to_string(),
        Err(_) => time.to_string(),
    }
}

pub(crate) fn count(number: u64, one: &str) -> String {
    match (number, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ => format!("{number} {one}s"),
    }
}

pub(crate) fn list(names: &[String]) -> String {
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Escapes terminal controls and invisible characters, except for line ends and tabs.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    view::visible_lines(text)
}

/// Returns the lines of a value, each with the name of its field; a text of several lines follows below its name.
pub(crate) fn value_lines(value: &Value) -> Vec<(String, String)> {
    let block = |text: &str| text.lines().map(|line| ("    ".to_owned(), line.to_owned())).collect::<Vec<_>>();
    let Value::Object(fields) = value else { return block(&plain(value)) };
    if fields.is_empty() {
        return vec![("  none".to_owned(), String::new())];
    }
    let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(16);
    let mut lines = Vec::new();
    for (name, value) in fields {
        let (name, shown) = (format!("  {:<width$}  ", visible(name)), plain(value));
        match shown.contains('\n') {
            true => lines.extend([(name, String::new())].into_iter().chain(block(&shown))),
            false => lines.push((name, shown)),
        }
    }
    lines
}

/// Returns the fields of a value in one line: `model opus, git.branch main`. A field without a value is left out.
pub(crate) fn fields(value: &Value) -> String {
    let mut parts = Vec::new();
    add_fields(value, "", &mut parts);
    parts.join(", ")
}

fn add_fields(value: &Value, name: &str, parts: &mut Vec<String>) {
    let words = |value: &Value| match value {
        Value::String(text) => one_line(text, FIELD_MAX),
        Value::Array(values) => count(values.len() as u64, "value"),
        Value::Object(fields) => count(fields.len() as u64, "field"),
        other => other.to_string(),
    };
    match value {
        Value::Null => {}
        Value::Object(fields) if name.matches('.').count() < FIELDS_DEPTH => {
            for (inner, value) in fields.iter().take(FIELDS_MAX) {
                let dot = if name.is_empty() { "" } else { "." };
                add_fields(value, &format!("{name}{dot}{}", one_line(inner, FIELD_MAX)), parts);
            }
        }
        value => parts.push(format!("{name} {}", words(value)).trim_start().to_owned()),
    }
}

fn plain(value: &Value) -> String {
    const SHORT: usize = 100;
    match value {
        Value::String(text) => text.clone(),
        other => match other.to_string() {
            long if long.len() > SHORT && (other.is_array() || other.is_object()) => {
                serde_json::to_string_pretty(other).unwrap_or_default()
            }
            short => short,
        },
    }
}

pub(crate) fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_duration_have_fitting_unit() {
        assert_eq!([0, 1023, 1024, 1_048_575, 1 << 20].map(size), ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.0 MiB"]);
        let micros = [0, 340, 9_999, 10_000, 999_999, 1_500_000, 125_000_000];
        assert_eq!(micros.map(duration), ["0.0 ms", "0.3 ms", "10.0 ms", "10 ms", "1000 ms", "1.5 s", "2 min 5 s"]);
    }

    #[test]
    fn text_has_no_terminal_control() {
        assert_eq!(visible("a\tb\n"), "a\tb\n");
        assert_eq!(visible("\u{1b}[2J\u{9b}1m\r\u{202e}"), "\\x1b[2J\\u{9b}1m\\r\\u{202e}");
        assert_eq!(one_line("\n  first\u{7}\nsecond", 80), "  first\\x07...");
        assert_eq!(one_line("abcdef\n", 3), "abc...");
        assert_eq!(one_line("abc\n", 3), "abc");
    }

    #[test]
    fn fields_are_one_line_without_json() {
        let value = serde_json::json!({
            "model": "m 1", "git": { "branch": "main", "tags": ["a", 2] }, "none": null, "is": true,
            "deep": { "a": { "b": { "c": { "d": 1 } } } }, "list": [{ "a": 1 }], "text": "one\ntwo",
        });
        let shown =
            "model m 1, git.branch main, git.tags 2 values, is true, deep.a.b.c 1 field, list 1 value, text one...";
        assert_eq!(fields(&value), shown);
        assert_eq!([fields(&serde_json::json!(7)), fields(&serde_json::json!({}))], ["7", ""]);
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        assert_eq!(shell_word("a-b/c.d"), "a-b/c.d");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn counts_are_pluralised() {
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(0, "directory"), "0 directories");
        assert_eq!(count(2, "key"), "2 keys");
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([list(&names[..1]), list(&names[..2]), list(&names)], ["a", "a and b", "a, b and c"]);
    }
}
