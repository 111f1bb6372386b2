//! Predicates over the slices of a state, such as `Usage.calls > 10`.

mod parse;

use std::cmp::Ordering;
use std::collections::BTreeMap;

pub use parse::regex_error;
use regex::Regex;
use serde_json::{Value, json};

use crate::engine::error::ValueError;
use crate::engine::nearest::nearest;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::registry::Registry;
use crate::engine::slice::{Slice, SliceError};
use crate::engine::state::State;
use crate::reducers::VirtualFileSystem;

/// A condition on a state.
///
/// A predicate combines comparisons of places. A place is a slice's name followed by fields of its JSON, as
/// `foldspace state SESSION SLICE --json` shows it:
///
/// | | |
/// | --- | --- |
/// | `Usage.calls > 10` | a field compared with a number: `==`, `!=`, `<`, `<=`, `>`, `>=` |
/// | `PodmanWorkspace.running` | a field that is true |
/// | `Mounts[0].host_path contains "src"` | an item of a list; part of a text, item of a list, or field of an object |
/// | `PodmanWorkspace["container"].image matches "python:3\.\d+"` | a name in quotes; an unanchored regex |
/// | `PodmanWorkspace.stopped_because exists` | the value exists and is not null |
/// | `VirtualFileSystem./src/main.rs exists` | an entry by its path, up to the next space; also without `exists` |
/// | `VirtualFileSystem["/my file"].size > 100` | a field of an entry |
/// | `Plan./steps/3/status == "done"` | a value of another slice by its JSON pointer, up to the next space |
/// | `count(VirtualFileSystem) >= 3` | the number of entries, items, fields or characters |
/// | `not (A.b == 1 or A.b == null) and A.c != "x"` | `and`, `or`, `not` and parentheses; also `&&`, `||`, `!` |
///
/// A missing value equals null. `<`, `<=`, `>` and `>=` compare numbers with numbers and strings with strings, and are
/// false for other values. The answer depends only on the state. The length of the predicate and the sizes of the
/// slices bound the time. Files are looked up by path and not converted to JSON.
///
/// Existing query languages for JSON do not fit: jq can run forever, and JMESPath and CEL need every slice as JSON,
/// including 10,000 files, before they can read one of them.
#[derive(Debug, Clone)]
pub struct Predicate {
    text: String,
    root: PredicateTerm,
}

#[derive(Debug, Clone)]
enum PredicateTerm {
    All(Vec<PredicateTerm>),
    Any(Vec<PredicateTerm>),
    Not(Box<PredicateTerm>),
    /// A place with the value `true`.
    True(Operand),
    Exists(Operand),
    Compare(Operand, Comparison, Operand),
    Contains(Operand, Operand),
    Matches(Operand, Box<Regex>),
}

impl PredicateTerm {
    fn check_fields(&self, state: &State) -> Result<(), ValueError> {
        let (one, other) = match self {
            Self::All(terms) | Self::Any(terms) => return terms.iter().try_for_each(|term| term.check_fields(state)),
            Self::Not(term) => return term.check_fields(state),
            Self::True(place) | Self::Exists(place) | Self::Matches(place, _) => (place, None),
            Self::Compare(left, _, right) | Self::Contains(left, right) => (left, Some(right)),
        };
        one.check_field(state)?;
        other.map_or(Ok(()), |other| other.check_field(state))
    }
}

type Comparison = fn(&Value, &Value) -> bool;

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", is_equal),
    ("!=", |left, right| !is_equal(left, right)),
    ("<=", |left, right| order(left, right).is_some_and(Ordering::is_le)),
    (">=", |left, right| order(left, right).is_some_and(Ordering::is_ge)),
    ("<", |left, right| order(left, right).is_some_and(Ordering::is_lt)),
    (">", |left, right| order(left, right).is_some_and(Ordering::is_gt)),
];

#[derive(Debug, Clone)]
enum Operand {
    Literal(Value),
    Place(SlicePointer),
    Count(SlicePointer),
}

impl Operand {
    /// Fails for a misspelled field: one that neither the state nor an empty state has.
    fn check_field(&self, state: &State) -> Result<(), ValueError> {
        let (Self::Place(place) | Self::Count(place)) = self else { return Ok(()) };
        let (None, Some(PointerStep::Field(name))) = (&place.entry, place.steps.first()) else { return Ok(()) };
        let empty = State::empty(state.registry(), state.session());
        // An empty state has the fields of a slice, but no keys of a map.
        let Some(Ok(Value::Object(fields))) = empty.slice_json(&place.slice) else { return Ok(()) };
        let known = state.slice_json(&place.slice).and_then(Result::ok).is_some_and(|value| value.get(name).is_some());
        match nearest(name, fields.keys().map(String::as_str)).filter(|_| !known && !fields.contains_key(name)) {
            Some(meant) => {
                Err(ValueError::new(format!("{} has no field {name:?}; did you mean {meant}?", place.slice)))
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
struct SlicePointer {
    slice: String,
    /// The entry, for a place in [`VirtualFileSystem`].
    entry: Option<EntryPath>,
    steps: Vec<PointerStep>,
}

#[derive(Debug, Clone)]
enum PointerStep {
    Field(String),
    Item(usize),
}

impl Predicate {
    /// Parses a predicate over the slices of a registry.
    ///
    /// # Errors
    /// [`ValueError`] with the position: invalid syntax, an unknown slice, or nested too deep.
    pub fn parse(text: &str, registry: &Registry) -> Result<Self, ValueError> {
        let slices: Vec<&str> = registry.slices().iter().map(|slice| slice.name).collect();
        Self::over(text, &slices)
    }

    /// Parses a predicate over the slices of a state, including declared ones. Fails like [`parse`](Self::parse), and
    /// for a field that a slice lacks if it has one with a similar name.
    pub fn parse_for(text: &str, state: &State) -> Result<Self, ValueError> {
        let slices = state.slices();
        let parsed = Self::over(text, &slices.iter().map(|slice| slice.name.as_str()).collect::<Vec<_>>())?;
        parsed.root.check_fields(state)?;
        Ok(parsed)
    }

    fn over(text: &str, slices: &[&str]) -> Result<Self, ValueError> {
        Ok(Self { text: text.to_owned(), root: parse::parse(text, slices)? })
    }

    /// Returns the predicate's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the predicate in a state.
    ///
    /// # Errors
    /// [`SliceError`]: a slice can't be encoded as JSON.
    pub fn holds(&self, state: &State) -> Result<bool, SliceError> {
        StateView { state: Some(state), slices: BTreeMap::new() }.holds(&self.root)
    }
}

/// A condition on one event, in the language of [`Predicate`]. Its places are `data`, `kind`, `agent`, `call`, `seq`.
#[derive(Debug, Clone)]
pub(super) struct EventFilter(PredicateTerm);

impl EventFilter {
    const PLACES: [&str; 5] = ["data", "kind", "agent", "call", "seq"];

    /// Parses a filter. Fails with [`ValueError`] and the position.
    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
        parse::parse(text, &Self::PLACES).map(Self)
    }

    pub(super) fn holds(&self, event: &EventRef<'_>, data: &Value) -> bool {
        let EventRef { kind, agent, call, seq, .. } = *event;
        let values = [data.clone(), json!(kind), json!(agent), json!(call), json!(seq)];
        let slices = Self::PLACES.map(str::to_owned).into_iter().zip(values).collect();
        StateView { state: None, slices }.holds(&self.0).unwrap_or(false)
    }
}

impl std::fmt::Display for Predicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A state with its slices as JSON, converted lazily.
struct StateView<'a> {
    state: Option<&'a State>,
    slices: BTreeMap<String, Value>,
}

impl StateView<'_> {
    fn holds(&mut self, condition: &PredicateTerm) -> Result<bool, SliceError> {
        Ok(match condition {
            PredicateTerm::All(terms) => !self.any_is(false, terms)?,
            PredicateTerm::Any(terms) => self.any_is(true, terms)?,
            PredicateTerm::Not(condition) => !self.holds(condition)?,
            PredicateTerm::True(place) => self.value(place)? == Value::Bool(true),
            PredicateTerm::Exists(place) => !self.value(place)?.is_null(),
            PredicateTerm::Compare(left, comparison, right) => comparison(&self.value(left)?, &self.value(right)?),
            PredicateTerm::Contains(whole, part) => contains(&self.value(whole)?, &self.value(part)?),
            PredicateTerm::Matches(text, regex) => self.value(text)?.as_str().is_some_and(|text| regex.is_match(text)),
        })
    }

    fn any_is(&mut self, value: bool, terms: &[PredicateTerm]) -> Result<bool, SliceError> {
        for term in terms {
            if self.holds(term)? == value {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn value(&mut self, operand: &Operand) -> Result<Value, SliceError> {
        match operand {
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Place(place) => self.at(place, Value::clone),
            Operand::Count(place)
                if place.slice == VirtualFileSystem::NAME && place.entry.is_none() && place.steps.is_empty() =>
            {
                let files = self.state.and_then(State::slice::<VirtualFileSystem>);
                let count = files.map_or(0, VirtualFileSystem::len);
                Ok(Value::from(count))
            }
            Operand::Count(place) => self.at(place, |value| match value {
                Value::Array(items) => Value::from(items.len()),
                Value::Object(fields) => Value::from(fields.len()),
                Value::String(text) => Value::from(text.chars().count()),
                Value::Null | Value::Bool(_) | Value::Number(_) => Value::Null,
            }),
        }
    }

    fn at(&mut self, place: &SlicePointer, take: impl Fn(&Value) -> Value) -> Result<Value, SliceError> {
        let steps = |value: &Value| {
            let found = place.steps.iter().try_fold(value, |value, step| match step {
                PointerStep::Field(name) => value.get(name).or_else(|| value.get(name.parse::<usize>().ok()?)),
                PointerStep::Item(number) => value.get(number),
            });
            found.map_or(Value::Null, &take)
        };
        if let Some(path) = &place.entry {
            let files = self.state.and_then(State::slice::<VirtualFileSystem>);
            let entry = files.and_then(|files| files.get(path));
            return Ok(entry.map_or(Value::Null, |entry| steps(&serde_json::to_value(entry).unwrap_or_default())));
        }
        if !self.slices.contains_key(&place.slice) {
            let value = self.state.and_then(|state| state.slice_json(&place.slice)).transpose()?.unwrap_or_default();
            self.slices.insert(place.slice.clone(), value);
        }
        Ok(self.slices.get(&place.slice).map_or(Value::Null, steps))
    }
}

fn is_equal(left: &Value, right: &Value) -> bool {
    order(left, right).map_or(left == right, Ordering::is_eq)
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let whole = |number: &serde_json::Number| number.as_i128();
            match (whole(left), whole(right)) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
            }
        }
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(items), part) => items.iter().any(|item| is_equal(item, part)),
        (Value::Object(fields), Value::String(name)) => fields.contains_key(name),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
