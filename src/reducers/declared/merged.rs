//! The merge of a declared slice.

use super::value::DeclaredValue;
use super::{DeclaredSlice, SliceMergePolicy};
use crate::engine::ValueError;

/// Returns the parent's slice after a merge of its child's, by the slice's policy; `None` if it stays. `base` is the
/// child's slice where both began. Fails with [`ValueError`] if the policy refuses, or the value becomes too large.
pub fn merged_value(
    base: Option<&DeclaredSlice>,
    ours: &DeclaredSlice,
    theirs: &DeclaredSlice,
) -> Result<Option<DeclaredSlice>, ValueError> {
    let name = &ours.declaration().name;
    let begun = DeclaredValue::empty(ours.plan.shape);
    let base = base.map_or(&begun, |base| &base.value);
    let changed = |slice: &DeclaredSlice| slice.value.to_json() != base.to_json();
    if !changed(theirs) || ours.declaration() != theirs.declaration() {
        return Ok(None);
    }
    let value = match ours.declaration().merge {
        SliceMergePolicy::Ours => return Ok(None),
        SliceMergePolicy::Refuse if changed(ours) => {
            let what = format!("slice {name} changed in both sessions, and its merge policy is `refuse`");
            return Err(ValueError::new(what));
        }
        SliceMergePolicy::Theirs | SliceMergePolicy::Refuse => theirs.value.clone(),
        SliceMergePolicy::Union if !changed(ours) => theirs.value.clone(),
        SliceMergePolicy::Union => united(base, &ours.value, &theirs.value, ours).ok_or_else(|| {
            ValueError::new(format!("slice {name} changed in both sessions, and the values can't be united"))
        })?,
    };
    Ok(Some(DeclaredSlice { value, ..ours.clone() }))
}

/// Returns our value with the changes from `base` to theirs; `None` if that is not possible.
fn united(
    base: &DeclaredValue,
    ours: &DeclaredValue,
    theirs: &DeclaredValue,
    slice: &DeclaredSlice,
) -> Option<DeclaredValue> {
    let mut all = ours.clone();
    match (base, theirs) {
        (DeclaredValue::List { items: base, .. }, DeclaredValue::List { items: theirs, .. }) => {
            let max = slice.declaration().rules.iter().filter_map(|rule| rule.max).max();
            // A list with a maximum may have lost the beginning of the common part.
            let is_common = |count: &usize| base.iter().skip(base.len() - count).eq(theirs.iter().take(*count));
            let common = (0..=base.len().min(theirs.len())).rev().find(is_common).unwrap_or_default();
            for item in theirs.iter().skip(common) {
                all.append(item, max)?;
            }
        }
        (DeclaredValue::Map { items: base, .. }, DeclaredValue::Map { items: theirs, .. }) => {
            for (key, item) in theirs.iter().filter(|(key, item)| base.get(*key) != Some(item)) {
                match slice.plan.adds() {
                    true => drop(all.add(key, &difference(item, base.get(key).map_or("0", AsRef::as_ref))?)?),
                    false => drop(all.set(key, item)?),
                }
            }
            for key in base.keys().filter(|key| !theirs.contains_key(*key)) {
                all.remove(key)?;
            }
        }
        _ => return None,
    }
    Some(all)
}

fn difference(after: &str, before: &str) -> Option<serde_json::Number> {
    let [after, before]: [serde_json::Number; 2] =
        [serde_json::from_str(after).ok()?, serde_json::from_str(before).ok()?];
    match after.as_i64().zip(before.as_i64()).and_then(|(after, before)| after.checked_sub(before)) {
        Some(whole) => Some(whole.into()),
        None => serde_json::Number::from_f64(after.as_f64()? - before.as_f64()?),
    }
}
