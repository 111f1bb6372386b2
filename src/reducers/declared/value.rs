//! The value of a declared slice. Items are JSON text, which is parsed only to be shown.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::DECLARED_BYTES_MAX;
use crate::engine::ValueError;
use crate::engine::collections::{OrdMap, Vector};

/// Items in a block of a snapshot.
const BLOCK: usize = 64;
const PATCHES_MAX: usize = 100;
/// Bytes that an item adds to its text.
const ITEM_BYTES: usize = 4;

/// The shape of a value, which its folds have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueShape {
    List,
    Map,
    Any,
}

#[derive(Debug, Clone)]
pub(super) enum DeclaredValue {
    List {
        items: Vector<Arc<str>>,
        bytes: usize,
    },
    Map {
        items: OrdMap<Arc<str>, Arc<str>>,
        bytes: usize,
    },
    /// `bytes` is at least the length of the value as JSON.
    Any {
        value: Arc<Value>,
        bytes: usize,
    },
}

impl DeclaredValue {
    pub(super) fn empty(shape: ValueShape) -> Self {
        match shape {
            ValueShape::List => Self::List { items: Vector::new(), bytes: 0 },
            ValueShape::Map => Self::Map { items: OrdMap::new(), bytes: 0 },
            ValueShape::Any => Self::any(Value::Null),
        }
    }

    fn any(value: Value) -> Self {
        Self::Any { bytes: json_len(&value), value: Arc::new(value) }
    }

    /// Reads the JSON form. Fails with [`ValueError`] for another shape, and over the limit.
    pub(super) fn read(shape: ValueShape, json: Value) -> Result<Self, ValueError> {
        let mut value = Self::empty(shape);
        let is_well = match json {
            Value::Array(items) if shape == ValueShape::List => {
                items.iter().all(|item| value.append(&item.to_string(), None).is_some())
            }
            Value::Object(items) if shape == ValueShape::Map => {
                items.iter().all(|(key, item)| value.set(key, &item.to_string()).is_some())
            }
            json if shape == ValueShape::Any => value.replace(json).is_some(),
            _ => false,
        };
        let wrong = || ValueError::new(format!("the value has another shape, or over {DECLARED_BYTES_MAX} bytes"));
        if is_well { Ok(value) } else { Err(wrong()) }
    }

    pub(super) fn to_json(&self) -> Value {
        let parsed = |text: &Arc<str>| serde_json::from_str(text).unwrap_or_default();
        match self {
            Self::List { items, .. } => items.iter().map(parsed).collect(),
            Self::Map { items, .. } => {
                Value::Object(items.iter().map(|(key, item)| (key.to_string(), parsed(item))).collect::<Map<_, _>>())
            }
            Self::Any { value, .. } => value.as_ref().clone(),
        }
    }

    /// Encodes the items in blocks, which later additions leave unchanged.
    pub(super) fn blocks(&self) -> Vec<Vec<u8>> {
        let joined = |block: &[String]| format!("[{}]", block.join(",")).into_bytes();
        let items: Vec<String> = match self {
            Self::List { items, .. } => items.iter().map(|item| item.to_string()).collect(),
            Self::Map { items, .. } => {
                items.iter().map(|(key, item)| format!("[{},{item}]", Value::from(key.as_ref()))).collect()
            }
            Self::Any { value, .. } => vec![value.to_string()],
        };
        items.chunks(BLOCK).map(joined).collect()
    }

    pub(super) fn of_blocks(shape: ValueShape, blocks: &[Bytes]) -> Result<Self, serde_json::Error> {
        let mut value = Self::empty(shape);
        for block in blocks {
            match &mut value {
                Self::List { items, bytes } => {
                    for item in serde_json::from_slice::<Vec<&RawValue>>(block)? {
                        *bytes += item.get().len() + ITEM_BYTES;
                        items.push_back(item.get().into());
                    }
                }
                Self::Map { items, bytes } => {
                    for (key, item) in serde_json::from_slice::<Vec<(String, &RawValue)>>(block)? {
                        *bytes += key.len() + item.get().len() + ITEM_BYTES;
                        items.insert(key.into(), item.get().into());
                    }
                }
                any => *any = Self::any(serde_json::from_slice::<Vec<Value>>(block)?.pop().unwrap_or_default()),
            }
        }
        Ok(value)
    }

    /// Appends an item, and drops the oldest ones over `max`; `None` if the list is full.
    pub(super) fn append(&mut self, text: &str, max: Option<u64>) -> Option<bool> {
        let Self::List { items, bytes } = self else { return None };
        let mut after = *bytes + text.len() + ITEM_BYTES;
        let most = max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        let dropped = (items.len() + 1).saturating_sub(most);
        after -= items.iter().take(dropped).map(|item| item.len() + ITEM_BYTES).sum::<usize>();
        if after > DECLARED_BYTES_MAX {
            return None;
        }
        for _ in 0..dropped {
            items.pop_front();
        }
        items.push_back(text.into());
        *bytes = after;
        Some(true)
    }

    /// Sets the item of a key; `None` if the object is full.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Option<bool> {
        let Self::Map { items, bytes } = self else { return None };
        let old = items.get_mut(key);
        let before = old.as_ref().map_or(0, |old| key.len() + old.len() + ITEM_BYTES);
        let after = *bytes - before + key.len() + text.len() + ITEM_BYTES;
        if after > DECLARED_BYTES_MAX {
            return None;
        }
        match old {
            Some(old) => *old = text.into(),
            None => drop(items.insert(key.into(), text.into())),
        }
        *bytes = after;
        Some(true)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<bool> {
        let Self::Map { items, bytes } = self else { return None };
        if let Some(old) = items.remove(key) {
            *bytes -= key.len() + old.len() + ITEM_BYTES;
        }
        Some(true)
    }

    /// Adds a number to that of a key. Whole numbers stay whole while they fit 64 bits.
    pub(super) fn add(&mut self, key: &str, amount: &Number) -> Option<bool> {
        let Self::Map { items, .. } = self else { return None };
        let old: Number = items.get(key).map_or(Some(0.into()), |text| serde_json::from_str(text).ok())?;
        let whole = old.as_i64().zip(amount.as_i64()).and_then(|(old, amount)| old.checked_add(amount));
        let sum = match whole {
            Some(sum) => sum.into(),
            None => Number::from_f64(old.as_f64()? + amount.as_f64()?)?,
        };
        self.set(key, &sum.to_string())
    }

    /// Replaces the value; `None` if it is too large.
    pub(super) fn replace(&mut self, new: Value) -> Option<bool> {
        let Self::Any { value, bytes } = self else { return None };
        let len = json_len(&new);
        if len > DECLARED_BYTES_MAX {
            return None;
        }
        (*value, *bytes) = (Arc::new(new), len);
        Some(true)
    }

    pub(super) fn merge_patch(&mut self, patch: &Value) -> Option<bool> {
        let Self::Any { value, bytes } = self else { return None };
        // A merge adds at most what the patch has.
        let most = *bytes + json_len(patch);
        if most <= DECLARED_BYTES_MAX {
            json_patch::merge(Arc::make_mut(value), patch);
            *bytes = most;
            return Some(true);
        }
        let mut new = value.as_ref().clone();
        json_patch::merge(&mut new, patch);
        self.replace(new)
    }

    /// Applies a patch whole or not at all; `None` if it can't be applied.
    pub(super) fn json_patch(&mut self, patch: &Value) -> Option<bool> {
        let Self::Any { value, .. } = self else { return None };
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).ok()?;
        if patch.len() > PATCHES_MAX {
            return None;
        }
        let mut new = value.as_ref().clone();
        for operation in patch.0 {
            // Copies could double the value each time.
            let grows = matches!(operation, json_patch::PatchOperation::Copy(_));
            json_patch::patch(&mut new, &[operation]).ok()?;
            if grows && json_len(&new) > DECLARED_BYTES_MAX {
                return None;
            }
        }
        self.replace(new)
    }
}

fn json_len(value: &Value) -> usize {
    value.to_string().len()
}
