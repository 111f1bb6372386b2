//! Reading the parameters of a call, with errors in the words of JSON.

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// Characters of a wrong value in an error.
const SHOWN: usize = 80;
/// Up to this size, a float holds each whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads parameters. Takes a number that arrives as a text, and a whole number that arrives as a float: models write both.
///
/// # Errors
/// The parameter and the expected value, for a model.
#[doc(hidden)]
pub fn read_params<T: DeserializeOwned + JsonSchema>(params: &Value) -> Result<T, String> {
    let error = match T::deserialize(params) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let Value::Object(given) = params else { return Err(in_words(&error.to_string())) };
    let schema = Value::from(SchemaGenerator::default().into_root_schema_for::<T>());
    let fields: Map<String, Value> =
        given.iter().map(|(name, value)| (name.clone(), meant(&schema, name, value))).collect();
    let wrong = || fields.iter().find_map(|(name, value)| mismatch(&schema, name, value));
    T::deserialize(&Value::Object(fields.clone()))
        .map_err(|error| wrong().unwrap_or_else(|| in_words(&error.to_string())))
}

/// Returns a field's schema, if it names its types, and these.
fn types<'s>(schema: &'s Value, name: &str) -> Option<(&'s Value, Vec<&'s str>)> {
    let field = schema.get("properties")?.get(name)?;
    let types = match field.get("type")? {
        Value::String(one) => vec![one.as_str()],
        several => several.as_array()?.iter().filter_map(Value::as_str).collect(),
    };
    Some((field, types))
}

fn meant(schema: &Value, name: &str, value: &Value) -> Value {
    let Some((_, types)) = types(schema, name) else { return value.clone() };
    let is_whole = types.contains(&"integer");
    if types.contains(&"string") || !(is_whole || types.contains(&"number")) {
        return value.clone();
    }
    let number = match value {
        Value::String(text) => serde_json::from_str::<Number>(text.trim()).ok(),
        Value::Number(number) => Some(number.clone()),
        _ => None,
    };
    let Some(number) = number else { return value.clone() };
    match number.as_f64() {
        Some(float)
            if is_whole && number.as_u64().is_none() && float.fract() == 0.0 && (0.0..EXACT).contains(&float) =>
        {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and within bounds")]
            let whole = float as u64;
            whole.into()
        }
        _ => Value::Number(number),
    }
}

/// Compares a value with its schema. Returns the error, if the types differ.
fn mismatch(schema: &Value, name: &str, value: &Value) -> Option<String> {
    let (field, types) = types(schema, name)?;
    let least = field.get("minimum").and_then(Value::as_f64);
    let fits = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => (value.is_u64() || value.is_i64()) && !least.is_some_and(|least| value.as_f64() < Some(least)),
        _ => value.is_number(),
    };
    if types.iter().any(fits) {
        return None;
    }
    let expected = match *types.iter().find(|kind| **kind != "null")? {
        "boolean" => "true or false".to_owned(),
        "string" => "a text".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "an object".to_owned(),
        "integer" => match least {
            Some(least) => format!("a whole number, at least {least}"),
            None => "a whole number".to_owned(),
        },
        _ => "a number".to_owned(),
    };
    let shown = value.to_string();
    let more = if shown.chars().count() > SHOWN { "…" } else { "" };
    Some(format!("{name}: expected {expected}, not {}{more}", shown.chars().take(SHOWN).collect::<String>()))
}

/// Replaces names of Rust's types in an error, for parameters inside of others.
fn in_words(error: &str) -> String {
    const TYPES: [(&str, &str); 8] = [
        ("expected u", "expected a whole number, at least 0"),
        ("expected i", "expected a whole number"),
        ("expected f", "expected a number"),
        ("expected a string", "expected a text"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("expected struct ", "expected an object"),
    ];
    let Some(at) = error.rfind("expected ") else { return error.to_owned() };
    let (before, expected) = error.split_at(at);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let replaced = TYPES.iter().find_map(|(rust, words)| {
        let rest = expected.strip_prefix(rust)?.trim_start_matches(is_name);
        rest.is_empty().then(|| format!("{before}{words}"))
    });
    replaced.unwrap_or_else(|| error.to_owned()).replace("floating point ", "").replace("integer ", "")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Params {
        #[serde(default)]
        count: u64,
        #[serde(default)]
        level: i32,
        #[serde(default)]
        seconds: Option<f64>,
        #[serde(default)]
        text: String,
        #[serde(default)]
        items: Vec<u32>,
        #[serde(default)]
        is_on: bool,
    }

    #[test]
    fn read_params_takes_numbers_as_texts_and_floats() {
        let read = |params: Value| read_params::<Params>(&params).unwrap();
        let given = read(json!({ "count": "30", "seconds": " 1.5 ", "text": "12", "level": "-3" }));
        assert_eq!((given.count, given.seconds, given.text.as_str(), given.level), (30, Some(1.5), "12", -3));
        assert_eq!(read(json!({ "count": 2.0 })).count, 2);
        assert_eq!(read(json!({ "count": "2.0", "seconds": "3" })).seconds, Some(3.0));
        assert_eq!(read(json!({ "seconds": null })).seconds, None);
    }

    #[test]
    fn read_params_names_the_parameter_and_the_expected_value() {
        for (params, expected) in [
            (json!({ "count": -1 }), "count: expected a whole number, at least 0, not -1"),
            (json!({ "count": "-1" }), "count: expected a whole number, at least 0, not -1"),
            (json!({ "count": 1.5 }), "count: expected a whole number, at least 0, not 1.5"),
            (json!({ "count": "many" }), "count: expected a whole number, at least 0, not \"many\""),
            (json!({ "count": null }), "count: expected a whole number, at least 0, not null"),
            (json!({ "level": true }), "level: expected a whole number, not true"),
            (json!({ "seconds": "soon" }), "seconds: expected a number, not \"soon\""),
            (json!({ "text": 5 }), "text: expected a text, not 5"),
            (json!({ "items": "a" }), "items: expected a list, not \"a\""),
            (json!({ "items": ["a"] }), "invalid type: string \"a\", expected a whole number, at least 0"),
            (json!({ "items": [-1] }), "invalid value: `-1`, expected a whole number, at least 0"),
            (json!({ "is_on": "yes" }), "is_on: expected true or false, not \"yes\""),
        ] {
            let error = read_params::<Params>(&params).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains("u64"), "{params}: {error}");
        }
        let unknown = read_params::<Params>(&json!({ "colour": 1 })).unwrap_err();
        assert!(unknown.starts_with("unknown field `colour`, expected one of `count`"), "{unknown}");
    }
}
