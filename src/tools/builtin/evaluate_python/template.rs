//! Templates: texts with variable names in braces.

use serde_json::{Map, Value};

use super::params::is_name;

/// Replaces each `{name}` with its value: a string verbatim, any other value as JSON.
pub(super) fn fill(template: &str, values: &Map<String, Value>) -> Result<String, String> {
    let mut text = String::with_capacity(template.len());
    let mut left = template;
    while let Some(at) = left.find(['{', '}']) {
        text.push_str(&left[..at]);
        left = &left[at..];
        if let Some(rest) = left.strip_prefix("{{").or_else(|| left.strip_prefix("}}")) {
            text.push_str(&left[..1]);
            left = rest;
            continue;
        }
        let name = left.strip_prefix('{').and_then(|rest| rest.split_once('}')).filter(|(name, _)| is_name(name));
        let Some((name, rest)) = name else {
            return Err("a brace is not part of a {name}; write {{ or }} for a brace".to_owned());
        };
        match values.get(name) {
            Some(Value::String(value)) => text.push_str(value),
            Some(value) => text.push_str(&value.to_string()),
            None => return Err(format!("the code has no global variable {name} with a JSON form")),
        }
        left = rest;
    }
    text.push_str(left);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn template_has_values_in_the_place_of_names() {
        let Value::Object(values) = json!({ "n": 1.5, "t": "a{n}", "l": [true, null], "é": "e" }) else { panic!() };
        let fill = |template: &str| fill(template, &values);
        assert_eq!(fill("{t} {n}, {l}{é}").unwrap(), "a{n} 1.5, [true,null]e");
        assert_eq!(fill("{{n}} {{\"a\": {n}}}").unwrap(), "{n} {\"a\": 1.5}");
        assert_eq!(fill("").unwrap(), "");
        for (template, why) in [
            ("{x}", "no global variable x"),
            ("{\"a\": 1}", "{{ or }}"),
            ("{n", "{{ or }}"),
            ("a}", "{{ or }}"),
            ("{}", "{{ or }}"),
        ] {
            assert!(fill(template).unwrap_err().contains(why), "{template}");
        }
    }
}
