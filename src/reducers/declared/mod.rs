//! Slices that users declare: a name, the kinds of events, and a fold.

mod declaration;
mod fold;
mod json_place;
mod merged;
mod value;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[doc(hidden)]
pub use declaration::is_built_in;
pub use declaration::{DeclaredFold, FoldRule, SliceDeclaration, SliceMergePolicy};
pub use fold::DeclaredFolding;
pub use merged::merged_value;

use crate::engine::collections::OrdMap;
use crate::engine::event::{CodecError, Event, SliceDeclared};
use crate::engine::slice::StateSlice;
use crate::engine::{EventRef, Registry, Seq, Slice, SliceError, ValueError};
use declaration::FoldPlan;
use value::DeclaredValue;

/// Maximum number of declared slices in a session.
pub const DECLARED_MAX: usize = 32;
/// Maximum bytes of a declared slice as JSON.
pub const DECLARED_BYTES_MAX: usize = 1 << 20;

/// The slices that users declared for a session, by name. A state shows each of them like a built-in slice.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeclaredSlices {
    slices: OrdMap<String, DeclaredSlice>,
}

/// A declared slice: its declaration and its value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "StoredSlice", into = "StoredSlice")]
pub struct DeclaredSlice {
    plan: Arc<FoldPlan>,
    version: u32,
    since: Seq,
    skipped: u64,
    value: DeclaredValue,
}

/// The JSON form of a declared slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredSlice {
    version: u32,
    since: Seq,
    #[serde(default)]
    skipped: u64,
    declaration: SliceDeclaration,
    value: Value,
}

impl From<DeclaredSlice> for StoredSlice {
    fn from(slice: DeclaredSlice) -> Self {
        let DeclaredSlice { ref plan, version, since, skipped, .. } = slice;
        Self { version, since, skipped, declaration: plan.declaration.clone(), value: slice.value() }
    }
}

impl TryFrom<StoredSlice> for DeclaredSlice {
    type Error = ValueError;

    fn try_from(stored: StoredSlice) -> Result<Self, ValueError> {
        let StoredSlice { version, since, skipped, declaration, value } = stored;
        let plan = Arc::new(FoldPlan::new(declaration)?);
        let value = DeclaredValue::read(plan.shape, value)?;
        Ok(Self { plan, version, since, skipped, value })
    }
}

impl DeclaredSlice {
    /// Begins a slice, without events. Fails with [`ValueError`] if the declaration is invalid.
    pub fn begin(declaration: SliceDeclaration, version: u32) -> Result<Self, ValueError> {
        let plan = Arc::new(FoldPlan::new(declaration)?);
        let value = DeclaredValue::empty(plan.shape);
        Ok(Self { plan, version, since: 0, skipped: 0, value })
    }

    fn declared(event: SliceDeclared, since: Seq) -> Result<Self, ValueError> {
        let SliceDeclared { version, declaration, value, .. } = event;
        let declaration = serde_json::from_value(declaration).map_err(|error| ValueError::new(error.to_string()))?;
        Self::try_from(StoredSlice { version, since, skipped: 0, declaration, value })
    }

    /// Returns its declaration.
    pub fn declaration(&self) -> &SliceDeclaration {
        &self.plan.declaration
    }

    /// Returns the number of its declaration: 1 for the first of that name.
    pub fn version(&self) -> u32 {
        self.version
    }

    #[doc(hidden)]
    pub fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// Returns the position of the event that declared it, or set its value.
    pub fn since(&self) -> Seq {
        self.since
    }

    /// Returns the number of events since then that fitted a rule and could not be folded: a pointer found nothing, a
    /// patch failed, or the slice was full.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns its value as JSON.
    pub fn value(&self) -> Value {
        self.value.to_json()
    }

    /// Applies an event. Returns false if it fitted a rule and could not be folded; the value is then unchanged.
    pub fn apply(&mut self, event: &EventRef<'_>) -> bool {
        let is_well = self.plan.apply(event, &mut self.value);
        self.skipped += u64::from(!is_well);
        is_well
    }

    /// Returns the event that declares it with its present value.
    pub fn to_event(&self) -> SliceDeclared {
        let declaration = serde_json::to_value(self.declaration()).unwrap_or_default();
        SliceDeclared { name: self.declaration().name.clone(), version: self.version, declaration, value: self.value() }
    }
}

impl DeclaredSlices {
    /// Returns a slice by its name.
    pub fn get(&self, name: &str) -> Option<&DeclaredSlice> {
        self.slices.get(name)
    }

    /// Iterates over the slices, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &DeclaredSlice> {
        self.slices.values()
    }

    /// Returns the number of slices.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Returns true without any slice.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Adds a slice, or replaces the one of that name.
    #[must_use]
    pub fn with(&self, slice: DeclaredSlice) -> Self {
        Self { slices: self.slices.update(slice.declaration().name.clone(), slice) }
    }

    fn declare(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        let declared = SliceDeclared::decode(event.version, event.payload)?;
        if declared.declaration.is_null() {
            self.slices.remove(&declared.name);
            return Ok(());
        }
        let slice = DeclaredSlice::declared(declared, event.seq);
        let slice = slice.map_err(|error| CodecError::new(SliceDeclared::KIND, event.version, error))?;
        self.slices.insert(slice.declaration().name.clone(), slice);
        Ok(())
    }
}

impl Slice for DeclaredSlices {
    const NAME: &'static str = "DeclaredSlices";

    /// A block has the slices without their items; the following blocks have the items.
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        let json = |value: &Value| serde_json::to_vec(value).map_err(|error| SliceError::new(Self::NAME, error));
        let (mut heads, mut blocks) = (Vec::new(), Vec::new());
        for slice in self.iter() {
            let items = slice.value.blocks();
            let head = StoredSlice { value: items.len().into(), ..StoredSlice::without_value(slice) };
            heads.push(serde_json::to_value(head).map_err(|error| SliceError::new(Self::NAME, error))?);
            blocks.extend(items);
        }
        Ok(std::iter::once(json(&heads.into())?).chain(blocks).collect())
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let wrong = |error: &dyn std::fmt::Display| SliceError::new(Self::NAME, error);
        let (heads, mut items) = blocks.split_first().ok_or_else(|| wrong(&"the first block is missing"))?;
        let heads: Vec<StoredSlice> = serde_json::from_slice(heads).map_err(|error| wrong(&error))?;
        let mut all = Self::default();
        for head in heads {
            let count = head.value.as_u64().and_then(|count| usize::try_from(count).ok());
            let (own, others) =
                count.and_then(|count| items.split_at_checked(count)).ok_or_else(|| wrong(&"a block is missing"))?;
            items = others;
            let StoredSlice { version, since, skipped, declaration, .. } = head;
            let plan = Arc::new(FoldPlan::new(declaration).map_err(|error| wrong(&error))?);
            let value = DeclaredValue::of_blocks(plan.shape, own).map_err(|error| wrong(&error))?;
            let slice = DeclaredSlice { plan, version, since, skipped, value };
            all.slices.insert(slice.declaration().name.clone(), slice);
        }
        Ok(all)
    }

    fn parts(&self) -> Vec<StateSlice> {
        let part = |slice: &DeclaredSlice| {
            let SliceDeclaration { name, on_rewind, .. } = slice.declaration().clone();
            StateSlice { name, version: slice.version, on_rewind }
        };
        self.iter().map(part).collect()
    }

    fn part_json(&self, name: &str) -> Option<Value> {
        self.get(name).map(DeclaredSlice::value)
    }
}

impl StoredSlice {
    fn without_value(slice: &DeclaredSlice) -> Self {
        let DeclaredSlice { ref plan, version, since, skipped, .. } = *slice;
        Self { version, since, skipped, declaration: plan.declaration.clone(), value: Value::Null }
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<SliceDeclared>()?.folded_slice::<DeclaredSlices>(None, fold::open)?;
    Ok(registry.ignoring(|slices: &DeclaredSlices, event| slices.is_empty() && event.kind != SliceDeclared::KIND))
}

#[cfg(test)]
mod tests;
