//! The built-in slices and their reducers, all on one screen. Pure: no I/O, no clock, no randomness.

mod agent_runs;
mod allowances;
mod annotations;
mod children;
mod commands;
#[cfg(feature = "tools")]
mod declared;
mod effects;
mod general;
mod git_worktree;
#[cfg(feature = "tools")]
mod merge;
mod merges;
mod mounts;
mod network;
mod podman_workspace;
#[cfg(feature = "tools")]
mod predicate;
mod services;
mod tool_calls;
#[cfg(feature = "tools")]
mod tool_policy;
mod usage;
mod virtual_file_system;

#[doc(hidden)]
pub use crate::engine::path::directories_above;
pub use agent_runs::{AgentRun, AgentRuns, EndedObservation, ObservedCall, ObservedTask};
pub use allowances::Allowances;
pub use annotations::{Annotation, Annotations};
pub use children::{Child, Children, SharedChild};
pub use commands::{CommandEntry, Commands};
#[cfg(feature = "tools")]
#[doc(hidden)]
pub use declared::is_built_in;
#[cfg(feature = "tools")]
pub use declared::{
    DECLARED_BYTES_MAX, DECLARED_MAX, DeclaredFold, DeclaredFolding, DeclaredSlice, DeclaredSlices, FoldRule,
    SliceDeclaration, SliceMergePolicy, merged_value,
};
pub use effects::{EffectEntry, Effects};
pub use general::{
    AppendAll, Keyed, LatestByKey, ReplaceLatest, UpsertByKey, append_all, replace_latest, replace_latest_by_key,
    upsert_by_key,
};
pub use git_worktree::GitWorktree;
#[cfg(feature = "tools")]
pub use merge::MergeChoices;
#[cfg(feature = "tools")]
#[doc(hidden)]
pub use merge::{ConflictHunk, ConflictSide, MergePlan, MergeStep, can_be_made, conflict_hunks, plan_merge};
pub use merges::{LastMerge, Merges};
pub use mounts::Mounts;
pub use network::{HostTraffic, Network};
pub use podman_workspace::PodmanWorkspace;
#[cfg(feature = "tools")]
pub use predicate::{Predicate, regex_error};
pub use services::{Service, Services};
pub use tool_calls::{CallEntry, ToolCalls};
#[cfg(feature = "tools")]
pub use tool_policy::{
    AtMostRule, OnFailure, OrderRule, OutsideTreatment, PathRules, PolicyInForce, ToolPolicy, ToolRules,
};
#[cfg(feature = "tools")]
#[doc(hidden)]
pub use tool_policy::{command_failed, filled_section};
pub use usage::Usage;
pub use virtual_file_system::{Change, Entry, VirtualFileSystem};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::event::{
    CallFinished, CallStarted, ChildStarted, DeleteEntry, EventsLost, LinkFile, MountHydrated, SessionRewound,
    SessionStarted, SessionTaken, SliceRestored, WriteFile,
};
use crate::engine::{Registry, SliceError, ValueError};

impl Registry {
    /// Creates a registry with the built-in events and slices. A program adds its own.
    pub fn standard() -> Self {
        // A test checks that the built-in names are distinct, so this can't fail.
        standard().unwrap_or_default()
    }
}

/// Items in a block of a snapshot.
const BLOCK: usize = 64;

/// Encodes items as JSON, in blocks that later additions leave unchanged.
fn encode_blocks<T: Serialize>(name: &'static str, items: impl Iterator<Item = T>) -> Result<Vec<Vec<u8>>, SliceError> {
    let items: Vec<T> = items.collect();
    items.chunks(BLOCK).map(|block| serde_json::to_vec(block).map_err(|e| SliceError::new(name, e))).collect()
}

fn decode_blocks<T: DeserializeOwned>(name: &'static str, blocks: &[Bytes]) -> Result<Vec<T>, SliceError> {
    let mut items = Vec::new();
    for block in blocks {
        items.append(&mut serde_json::from_slice(block).map_err(|e| SliceError::new(name, e))?);
    }
    Ok(items)
}

fn standard() -> Result<Registry, ValueError> {
    Registry::new()
        .event::<SessionStarted>()?
        .event::<EventsLost>()?
        .event::<ChildStarted>()?
        .event::<MountHydrated>()?
        .event::<CallStarted>()?
        .event::<CallFinished>()?
        .event::<WriteFile>()?
        .event::<DeleteEntry>()?
        .event::<LinkFile>()?
        .event::<SessionRewound>()?
        .event::<SessionTaken>()?
        .event::<SliceRestored>()?
        .with(virtual_file_system::register)?
        .with(tool_calls::register)?
        .with(usage::register)?
        .with(mounts::register)?
        .with(commands::register)?
        .with(allowances::register)?
        .with(podman_workspace::register)?
        .with(network::register)?
        .with(services::register)?
        .with(effects::register)?
        .with(children::register)?
        .with(merges::register)?
        .with(annotations::register)?
        .with(agent_runs::register)?
        .with(git_worktree::register)?
        .with(slices_of_tools)
}

#[cfg(feature = "tools")]
fn slices_of_tools(registry: Registry) -> Result<Registry, ValueError> {
    tool_policy::register(registry)?.with(declared::register)
}

#[cfg(not(feature = "tools"))]
fn slices_of_tools(registry: Registry) -> Result<Registry, ValueError> {
    Ok(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_registry_is_complete() {
        let names: Vec<_> = Registry::standard().slices().iter().map(|slice| slice.name).collect();
        assert_eq!(
            names,
            [
                "VirtualFileSystem",
                "ToolCalls",
                "Usage",
                "Mounts",
                "Commands",
                "Allowances",
                "PodmanWorkspace",
                "Network",
                "Services",
                "Effects",
                "Children",
                "Merges",
                "Annotations",
                "AgentRuns",
                "GitWorktree",
                "ToolRules",
                "DeclaredSlices"
            ]
        );
    }
}
