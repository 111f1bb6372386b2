//! The declaration of a slice, and its compiled form.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json_place::JsonPlace;
use super::value::{DeclaredValue, ValueShape};
use crate::engine::event::check_own_kind;
use crate::engine::{EventRef, OnRewind, Registry, ValueError};
use crate::reducers::predicate::EventFilter;

const NAME_CHARS: usize = 80;
const RULES_MAX: usize = 32;
const KINDS_MAX: usize = 64;

/// A slice of a user: its name, and the rules that fold events into it.
///
/// All rules must have the same shape: a list (`append`), an object (`latest_by`, `remove_by`, `count_by`, `sum_by`) or
/// any value (`latest`, `merge_patch`, `json_patch`). An event is folded by every rule that names its kind, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceDeclaration {
    /// The name: a letter, then up to 79 letters, digits, `_` or `-`.
    pub name: String,
    /// The rules, 1 to 32.
    pub rules: Vec<FoldRule>,
    /// The value after a merge of a child: `ours` by default.
    #[serde(default)]
    pub merge: SliceMergePolicy,
    /// The value after a rewind: `restore`, the default, or `keep`.
    #[serde(default = "restore")]
    #[schemars(with = "String")]
    pub on_rewind: OnRewind,
}

fn restore() -> OnRewind {
    OnRewind::Restore
}

/// A rule that folds events of some kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FoldRule {
    /// The kinds of events, 1 to 64: own kinds such as `plan.step`, or built-in ones such as `CommandResult`.
    pub kinds: Vec<String>,
    /// A condition on the event: a predicate over `data`, `kind`, `agent`, `call` and `seq`.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The effect on the slice.
    pub fold: DeclaredFold,
    /// A JSON pointer (RFC 6901) to the key in the event's data; required for `latest_by`, `remove_by`, `count_by` and
    /// `sum_by`. The key is a string, a number or a Boolean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A JSON pointer to the value in the event's data; the whole data by default. Required for `sum_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The most items of the list; only for `append`. The oldest are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max: Option<u64>,
}

/// The effect of an event on a declared slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredFold {
    /// Appends the value to a list.
    Append,
    /// Replaces the slice by the value.
    Latest,
    /// Sets the value of the key.
    LatestBy,
    /// Removes the key.
    RemoveBy,
    /// Counts the events of the key.
    CountBy,
    /// Adds the value, a number, to that of the key.
    SumBy,
    /// Applies the value as a merge patch (RFC 7396).
    MergePatch,
    /// Applies the value as a patch (RFC 6902) of at most 100 operations.
    JsonPatch,
}

impl DeclaredFold {
    fn shape(self) -> ValueShape {
        match self {
            Self::Append => ValueShape::List,
            Self::LatestBy | Self::RemoveBy | Self::CountBy | Self::SumBy => ValueShape::Map,
            Self::Latest | Self::MergePatch | Self::JsonPatch => ValueShape::Any,
        }
    }
}

/// The value of a declared slice after a merge of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SliceMergePolicy {
    /// The parent's.
    #[default]
    Ours,
    /// The child's, if it changed.
    Theirs,
    /// The parent's with the child's changes: items appended, keys set and removed, counts and sums added.
    Union,
    /// The one that changed; the merge fails if both did.
    Refuse,
}

/// A declaration that was checked, with its pointers and filters parsed.
#[derive(Debug)]
pub(super) struct FoldPlan {
    pub(super) declaration: SliceDeclaration,
    pub(super) shape: ValueShape,
    rules: Vec<PlannedRule>,
}

#[derive(Debug)]
struct PlannedRule {
    kinds: BTreeSet<String>,
    filter: Option<EventFilter>,
    fold: DeclaredFold,
    key: JsonPlace,
    value: JsonPlace,
    max: Option<u64>,
}

impl FoldPlan {
    pub(super) fn new(declaration: SliceDeclaration) -> Result<Self, ValueError> {
        check_name(&declaration.name)?;
        within("rules", declaration.rules.len(), RULES_MAX)?;
        let shape = declaration.rules[0].fold.shape();
        let mut rules = Vec::new();
        for (number, rule) in declaration.rules.iter().enumerate() {
            let planned = PlannedRule::new(rule, shape);
            rules.push(planned.map_err(|error| ValueError::new(format!("rule {}: {error}", number + 1)))?);
        }
        Ok(Self { declaration, shape, rules })
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(|rule| rule.kinds.iter().map(String::as_str))
    }

    /// Returns true if its items are counts or sums.
    pub(super) fn adds(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.fold, DeclaredFold::CountBy | DeclaredFold::SumBy))
    }

    /// Applies an event; false if a rule fitted it and could not fold it.
    pub(super) fn apply(&self, event: &EventRef<'_>, value: &mut DeclaredValue) -> bool {
        let rules = self.rules.iter().filter(|rule| rule.kinds.contains(event.kind));
        let mut is_well = true;
        let mut data = None;
        for rule in rules {
            let data = data.get_or_insert_with(|| data_of(event));
            is_well &= rule.apply(event, data, value).unwrap_or(false);
        }
        is_well
    }
}

impl PlannedRule {
    fn new(rule: &FoldRule, shape: ValueShape) -> Result<Self, ValueError> {
        use DeclaredFold::{Append, CountBy, LatestBy, RemoveBy, SumBy};
        let wrong = |what: &str| Err(ValueError::new(what));
        within("kinds", rule.kinds.len(), KINDS_MAX)?;
        let fold = rule.fold;
        if fold.shape() != shape {
            return wrong("its fold has another shape than that of rule 1: a list, an object or any value");
        }
        match (matches!(fold, LatestBy | RemoveBy | CountBy | SumBy), &rule.key) {
            (true, None) => return wrong("`key` is required: a JSON pointer such as /id"),
            (false, Some(_)) => return wrong("this fold has no `key`"),
            _ => {}
        }
        match (fold, &rule.value) {
            (SumBy, None) => return wrong("`value` is required: a JSON pointer to a number"),
            (RemoveBy | CountBy, Some(_)) => return wrong("this fold has no `value`"),
            _ => {}
        }
        if rule.max == Some(0) || rule.max.is_some() && fold != Append {
            return wrong("`max` belongs to `append`, and is at least 1");
        }
        for kind in &rule.kinds {
            if !is_built_in(kind) {
                check_kind(kind)?;
            }
        }
        Ok(Self {
            kinds: rule.kinds.iter().cloned().collect(),
            filter: rule.filter.as_deref().map(EventFilter::parse).transpose()?,
            fold,
            key: JsonPlace::parse(rule.key.as_deref().unwrap_or_default())?,
            value: JsonPlace::parse(rule.value.as_deref().unwrap_or_default())?,
            max: rule.max,
        })
    }

    fn apply(&self, event: &EventRef<'_>, data: &[u8], value: &mut DeclaredValue) -> Option<bool> {
        if let Some(filter) = &self.filter
            && !filter.holds(event, &serde_json::from_slice(data).ok()?)
        {
            return Some(true);
        }
        let key = || self.key.text(data);
        let found = || self.value.find(data);
        match self.fold {
            DeclaredFold::Append => value.append(found()?, self.max),
            DeclaredFold::Latest => value.replace(serde_json::from_str(found()?).ok()?),
            DeclaredFold::LatestBy => value.set(&key()?, found()?),
            DeclaredFold::RemoveBy => value.remove(&key()?),
            DeclaredFold::CountBy => value.add(&key()?, &1.into()),
            DeclaredFold::SumBy => value.add(&key()?, &serde_json::from_str(found()?).ok()?),
            DeclaredFold::MergePatch => value.merge_patch(&serde_json::from_str(found()?).ok()?),
            DeclaredFold::JsonPatch => value.json_patch(&serde_json::from_str(found()?).ok()?),
        }
    }
}

static STANDARD: LazyLock<Registry> = LazyLock::new(Registry::standard);

/// Returns true for a kind of event that is not a user's own.
#[doc(hidden)]
pub fn is_built_in(kind: &str) -> bool {
    STANDARD.event_kinds().any(|known| known == kind)
}

/// Returns an event's data as JSON. That of own events is stored as JSON.
fn data_of<'a>(event: &EventRef<'a>) -> Cow<'a, [u8]> {
    if event.kind.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Cow::Borrowed(event.payload);
    }
    let data: Value = STANDARD.to_json(event);
    Cow::Owned(serde_json::to_vec(&data).unwrap_or_default())
}

/// Accepts own kinds, and kinds of a Rust program, which this program need not know.
fn check_kind(kind: &str) -> Result<(), ValueError> {
    let is_of_rust = kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.len() <= 100;
    if is_of_rust && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(())
    } else {
        check_own_kind(kind)
    }
}

fn check_name(name: &str) -> Result<(), ValueError> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if STANDARD.slices().iter().any(|slice| slice.name.eq_ignore_ascii_case(name)) {
        return Err(ValueError::new(format!("{name} is a built-in slice; choose another name")));
    }
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= NAME_CHARS && name.chars().all(is_fit) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_CHARS).collect();
    let rule = format!("use a letter, then up to {} letters, digits, `_` or `-`", NAME_CHARS - 1);
    Err(ValueError::new(format!("invalid slice name {shown:?}; {rule}")))
}

fn within(what: &str, count: usize, most: usize) -> Result<(), ValueError> {
    if (1..=most).contains(&count) { Ok(()) } else { Err(ValueError::new(format!("{count} {what}; use 1 to {most}"))) }
}
