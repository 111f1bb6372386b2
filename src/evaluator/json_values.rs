//! Conversion between the interpreter's values and JSON.

use monty_types::MontyObject;
use serde_json::{Map, Number, Value};

/// The maximum depth of nested lists and dicts.
const DEPTH_MAX: usize = 64;

pub(super) fn from_json(value: &Value) -> MontyObject {
    match value {
        Value::Null => MontyObject::None,
        Value::Bool(value) => MontyObject::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => MontyObject::Int(value),
            (None, Some(value)) => MontyObject::BigInt(value.into()),
            (None, None) => MontyObject::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => MontyObject::String(text.clone()),
        Value::Array(items) => MontyObject::List(items.iter().map(from_json).collect()),
        Value::Object(fields) => {
            let pair = |(name, value): (&String, &Value)| (MontyObject::String(name.clone()), from_json(value));
            MontyObject::dict(fields.iter().map(pair).collect::<Vec<_>>())
        }
    }
}

/// Converts a value to JSON. The error is the reason why JSON can't represent it.
pub(super) fn to_json(value: &MontyObject) -> Result<Value, String> {
    within(value, 0)
}

fn within(value: &MontyObject, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err(format!("nested over {DEPTH_MAX} levels"));
    }
    let list = |items: &[MontyObject]| items.iter().map(|item| within(item, depth + 1)).collect::<Result<_, _>>();
    Ok(match value {
        MontyObject::None => Value::Null,
        MontyObject::Bool(value) => Value::Bool(*value),
        MontyObject::Int(value) => Value::from(*value),
        MontyObject::BigInt(value) => match u64::try_from(value.clone()) {
            Ok(value) => Value::from(value),
            Err(_) => return Err("int over 64 bits".to_owned()),
        },
        MontyObject::Float(value) => match Number::from_f64(*value) {
            Some(number) => Value::Number(number),
            None => return Err(format!("float {}", value.to_string().to_lowercase())),
        },
        MontyObject::String(text) => Value::String(text.clone()),
        MontyObject::List(items) | MontyObject::Tuple(items) => Value::Array(list(items)?),
        MontyObject::NamedTuple { values, .. } => Value::Array(list(values)?),
        MontyObject::Dict(pairs) => {
            let mut fields = Map::new();
            for (key, value) in pairs.iter() {
                let MontyObject::String(name) = key else { return Err(format!("dict with a key of {}", type_of(key))) };
                fields.insert(name.clone(), within(value, depth + 1)?);
            }
            Value::Object(fields)
        }
        other => return Err(type_of(other)),
    })
}

/// Returns a value whose repr is Python's. The interpreter marks the texts of values that it can't convert.
pub(super) fn as_shown(value: &MontyObject) -> MontyObject {
    let all = |items: &[MontyObject]| items.iter().map(as_shown).collect();
    match value {
        // A cycle's text is shown as it is.
        MontyObject::Repr(text) => MontyObject::Cycle(0, unquoted(text)),
        MontyObject::List(items) => MontyObject::List(all(items)),
        // The interpreter leaves out the comma.
        MontyObject::Tuple(items) if items.len() == 1 => {
            MontyObject::Cycle(0, format!("({},)", as_shown(&items[0]).py_repr()))
        }
        MontyObject::Tuple(items) => MontyObject::Tuple(all(items)),
        MontyObject::Set(items) => MontyObject::Set(all(items)),
        MontyObject::FrozenSet(items) => MontyObject::FrozenSet(all(items)),
        MontyObject::NamedTuple { type_name, field_names, values } => MontyObject::NamedTuple {
            type_name: type_name.clone(),
            field_names: field_names.clone(),
            values: all(values),
        },
        MontyObject::Dict(pairs) => {
            let shown = pairs.iter().map(|(key, value)| (as_shown(key), as_shown(value)));
            MontyObject::dict(shown.collect::<Vec<_>>())
        }
        other => other.clone(),
    }
}

/// Removes the quotes that the interpreter writes around a function's name.
fn unquoted(text: &str) -> String {
    let parts = text.strip_prefix("<function '").and_then(|rest| rest.split_once('\''));
    parts.map_or_else(|| text.to_owned(), |(name, rest)| format!("<function {name}{rest}"))
}

fn type_of(value: &MontyObject) -> String {
    value.type_name().chars().take(80).collect()
}

/// Returns true if a global is code, such as a function, and not data.
pub(super) fn is_machinery(value: &MontyObject) -> bool {
    match value {
        MontyObject::Type(_) | MontyObject::BuiltinFunction(_) | MontyObject::Function { .. } => true,
        // Functions, classes and modules without another form.
        MontyObject::Repr(text) => {
            ["<function", "<class", "<module", "<built-in"].iter().any(|it| text.starts_with(it))
        }
        _ => false,
    }
}
