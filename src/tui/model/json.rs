//! Differences between two JSON values.

use serde::Serialize;
use serde_json::Value;
use similar::{Algorithm, DiffOp, capture_diff_slices};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JsonDifference {
    pub(crate) pointer: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

impl JsonDifference {
    pub(crate) fn sign(&self) -> char {
        match (&self.before, &self.after) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        }
    }
}

pub(crate) fn differences(before: &Value, after: &Value) -> Vec<JsonDifference> {
    let mut found = Vec::new();
    compare(String::new(), before, after, &mut found);
    found
}

fn compare(pointer: String, before: &Value, after: &Value, found: &mut Vec<JsonDifference>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                found.push(JsonDifference {
                    pointer: pointer_to(&pointer, name),
                    before: Some(value.clone()),
                    after: None,
                });
            }
            for (name, value) in new {
                let pointer = pointer_to(&pointer, name);
                match old.get(name) {
                    Some(earlier) => compare(pointer, earlier, value, found),
                    None => found.push(JsonDifference { pointer, before: None, after: Some(value.clone()) }),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => compare_lists(&pointer, old, new, found),
        _ => found.push(JsonDifference { pointer, before: Some(before.clone()), after: Some(after.clone()) }),
    }
}

/// Aligns lists, so that a removed first element is one difference.
fn compare_lists(pointer: &str, old: &[Value], new: &[Value], found: &mut Vec<JsonDifference>) {
    let texts = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>();
    let (old_texts, new_texts) = (texts(old), texts(new));
    for op in capture_diff_slices(Algorithm::Myers, &old_texts, &new_texts) {
        let (old_at, new_at) = match op {
            DiffOp::Equal { .. } => continue,
            _ => (op.old_range(), op.new_range()),
        };
        let both = old_at.len().min(new_at.len());
        for (left, right) in old_at.clone().zip(new_at.clone()) {
            compare(pointer_to(pointer, &right.to_string()), &old[left], &new[right], found);
        }
        for left in old_at.skip(both) {
            let pointer = pointer_to(pointer, &left.to_string());
            found.push(JsonDifference { pointer, before: Some(old[left].clone()), after: None });
        }
        for right in new_at.skip(both) {
            let pointer = pointer_to(pointer, &right.to_string());
            found.push(JsonDifference { pointer, before: None, after: Some(new[right].clone()) });
        }
    }
}

/// Extends a pointer by one step.
pub(crate) fn pointer_to(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(before: &Value, after: &Value) -> Vec<String> {
        let tell = |d: &JsonDifference| format!("{} {}", d.sign(), d.pointer);
        differences(before, after).iter().map(tell).collect()
    }

    #[test]
    fn json_diff_shows_differences_only() {
        let (before, after) =
            (json!({"a": 1, "b": {"c": [1, 2]}, "gone": 0}), json!({"a": 1, "b": {"c": [1, 3]}, "n/w": 5}));
        assert_eq!(told(&before, &after), ["- /gone", "~ /b/c/1", "+ /n~1w"]);
        assert!(told(&before, &before).is_empty());
        assert_eq!(told(&json!(1), &json!("1")), ["~ "]);
    }

    #[test]
    fn json_diff_of_shifted_list_has_two_entries() {
        let (before, after) = (json!([1, 2, 3, 4]), json!([2, 3, 4, 5]));
        assert_eq!(told(&before, &after), ["- /0", "+ /3"]);
    }
}
