//! Shortening of results that report changes and must not be refused.

use std::collections::BTreeMap;

use serde_json::Value;

/// The list entries and text characters that remain in successive tries. The last limits leave positions, digests and
/// names whole.
const TRIES: [(usize, usize); 4] = [(10_000, 1 << 16), (1000, 8192), (100, 1024), (20, 200)];
/// Limit for the named fields.
const NAMED: usize = 20;

/// Lengths after and before the cut, by field. Of several values, the longest counts.
type Cuts = BTreeMap<String, (usize, usize, &'static str)>;

/// Cuts a text and its document to `max` bytes each. Appends the cuts and the hint to the text.
pub(super) fn both(text: &mut String, document: &mut Value, max: usize, hint: &str) {
    let cuts = to_fit(document, max);
    let is_cut = text.len() > max;
    if is_cut {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
    if is_cut || !cuts.is_empty() {
        let what = if cuts.is_empty() { String::new() } else { format!(" ({})", cuts.join("; ")) };
        text.push_str(&format!("\nresult cut{what}: {hint}"));
    }
}

fn to_fit(document: &mut Value, max: usize) -> Vec<String> {
    let mut cuts = Cuts::new();
    for limits in TRIES {
        if document.to_string().len() <= max {
            break;
        }
        cut(document, "", limits, &mut cuts);
    }
    let told = cuts.into_iter().take(NAMED);
    let told: Vec<String> = told.map(|(name, (left, of, what))| format!("{name}: {left} of {of} {what}")).collect();
    if let (false, Some(fields)) = (told.is_empty(), document.as_object_mut()) {
        fields.insert("shortened".to_owned(), told.clone().into());
    }
    told
}

fn cut(value: &mut Value, name: &str, (entries, chars): (usize, usize), cuts: &mut Cuts) {
    let mut note = |left: usize, of: usize, what| {
        let known = cuts.entry(name.to_owned()).or_insert((left, of, what));
        *known = (left, of.max(known.1), what);
    };
    match value {
        Value::Array(list) => {
            if list.len() > entries {
                note(entries, list.len(), "entries");
                list.truncate(entries);
            }
            list.iter_mut().for_each(|one| cut(one, name, (entries, chars), cuts));
        }
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(chars) {
                note(chars, text.chars().count(), "characters");
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| cut(field, name, (entries, chars), cuts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shorten_cuts_until_it_fits() {
        let small = json!({ "first_bad": 7, "bad": [{ "patch": "x".repeat(500) }] });
        let mut same = small.clone();
        assert_eq!(to_fit(&mut same, 1 << 20), [""; 0]);
        assert_eq!(same, small);
        let many: Vec<_> = (0..50_000).map(|n| json!({ "path": format!("some/file/{n}") })).collect();
        let mut large = json!({ "first_bad": 7, "bad": [{ "patch": "é".repeat(2 << 20), "changes": many }] });
        let told = to_fit(&mut large, 1 << 20);
        assert_eq!(told, ["changes: 10000 of 50000 entries", "patch: 65536 of 2097152 characters"]);
        assert!(large.to_string().len() <= 1 << 20);
        assert_eq!((&large["first_bad"], &large["shortened"]), (&json!(7), &json!(told)));
        let (mut text, mut event) = ("x".repeat(3 << 20), json!({ "x": "y".repeat(3 << 20) }));
        both(&mut text, &mut event, 1 << 20, "ask for less");
        assert!(event.to_string().len() <= 1 << 20 && text.len() <= (1 << 20) + 200);
        assert!(text.ends_with("result cut (x: 65536 of 3145728 characters): ask for less"));
        let told = to_fit(&mut large, 10_000);
        assert!(large.to_string().len() <= 10_000 + 500, "except for the list of cuts: {told:?}");
    }
}
