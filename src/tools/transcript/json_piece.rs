//! Parsing a JSON document or line, with limits on its text and on the memory for its values.

use regex::{Captures, Regex};
use serde_json::Value;

/// The limit for the text of a piece, in bytes.
pub(super) const TEXT_MAX: u64 = 128 << 20;
/// The limit for the memory of a piece's values, in bytes: a multiple of its text plus a constant, up to a maximum. An
/// attacker's `[],` takes more than 100 bytes per byte of text.
const PER_BYTE: u64 = 12;
const SPARE: u64 = 32 << 20;
const VALUES_MAX: u64 = 512 << 20;
/// The constant for JSON embedded in a string, which a piece may contain many times.
const PACKED_SPARE: u64 = 256 << 10;
const VALUE: u64 = size_of::<Value>() as u64;
const STRING: u64 = 32;

/// The reason that a piece can't be parsed.
pub(super) enum PieceError {
    Damaged(serde_json::Error),
    /// The piece exceeds a limit.
    Refused(String),
}

/// Parses a piece; `what` names its kind. `NaN` and `Infinity`, which Python writes, become null.
pub(super) fn parsed(what: &str, text: &[u8]) -> Result<Value, PieceError> {
    if text.len() as u64 > TEXT_MAX {
        return Err(PieceError::Refused(format!("a {what} has more than {} MiB of text; split it", TEXT_MAX >> 20)));
    }
    let weight = weight_of(text);
    if !fits(weight, text, SPARE) {
        let (weight, size) = (weight >> 20, text.len() >> 10);
        let reason = format!("the values in a {what} of {size} KiB would take about {weight} MiB of memory; split it");
        return Err(PieceError::Refused(reason));
    }
    serde_json::from_slice(text).or_else(|error| {
        // Strings match as a whole, so the numbers in them stay.
        let odd = Regex::new(r#"(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN"#);
        let text = std::str::from_utf8(text).unwrap_or_default();
        let Some(odd) = odd.ok().filter(|_| text.contains("NaN") || text.contains("Infinity")) else {
            return Err(PieceError::Damaged(error));
        };
        let is_text = |found: &Captures<'_>| found[0].starts_with('"');
        let clean = |found: &Captures<'_>| if is_text(found) { found[0].to_owned() } else { "null".to_owned() };
        serde_json::from_str(&odd.replace_all(text, clean)).map_err(PieceError::Damaged)
    })
}

/// Parses JSON embedded in a string. Returns `None` if its values would take much more memory than its text.
pub(super) fn packed(text: &str) -> Option<Value> {
    let fits = fits(weight_of(text.as_bytes()), text.as_bytes(), PACKED_SPARE);
    if fits { serde_json::from_str(text).ok() } else { None }
}

fn fits(weight: u64, text: &[u8], spare: u64) -> bool {
    weight <= (spare + PER_BYTE * text.len() as u64).min(VALUES_MAX)
}

/// Estimates the bytes of memory that values take, from the punctuation outside of strings.
fn weight_of(text: &[u8]) -> u64 {
    let (mut weight, mut is_in_text, mut is_escaped) = (0, false, false);
    for byte in text {
        weight += match byte {
            _ if is_in_text => 0,
            // The first allocation has room for several values.
            b'{' => 6 * VALUE,
            b'[' => 4 * VALUE,
            b',' => VALUE + VALUE / 2,
            b'"' => STRING,
            _ => 0,
        };
        is_in_text ^= *byte == b'"' && !is_escaped;
        is_escaped = is_in_text && *byte == b'\\' && !is_escaped;
    }
    weight
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_with_pythons_numbers_has_nulls() {
        let text = r#"{"a": [NaN, -Infinity, Infinity, -1, 1e-3], "-Infinity NaN\\\"": "NaN"}"#;
        let Ok(read) = parsed("document", text.as_bytes()) else { panic!("no value") };
        assert_eq!(read, json!({ "a": [null, null, null, -1, 1e-3], "-Infinity NaN\\\"": "NaN" }));
    }

    #[test]
    fn values_beyond_the_memory_limit_are_refused() {
        for (bomb, what) in [("[],", "arrays"), ("{},", "objects"), ("0,", "numbers"), ("\"\",", "texts")] {
            let text = format!("[{}0]", bomb.repeat(1 << 20));
            let Err(PieceError::Refused(reason)) = parsed("line", text.as_bytes()) else { panic!("{what}") };
            assert!(reason.contains("MiB of memory"), "{reason}");
            let text = format!("[{:?}]", text);
            assert!(parsed("line", text.as_bytes()).is_ok(), "{what} in a text are no values");
        }
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        assert!(matches!(parsed("line", deep.as_bytes()), Err(PieceError::Damaged(_))));
    }

    #[test]
    fn packed_bomb_stays_a_text() {
        assert_eq!(packed(r#"{"a": [1]}"#), Some(json!({ "a": [1] })));
        assert_eq!(packed(&format!("[{}0]", "[],".repeat(100_000))), None);
    }
}
