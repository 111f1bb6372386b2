//! Tools: the only place where an effect and an event meet.

mod asking;
mod bisect;
mod capture;
mod children;
mod context;
mod decided;
mod dispatch;
mod error;
mod evaluate_python;
mod files;
mod filesystem;
mod filling;
mod leftovers;
mod lift;
mod limits;
mod line_search;
mod machine;
mod materialise;
mod merge;
mod mounts;
mod open_call;
mod path_glob;
mod podman_shell;
mod policy;
mod predicate;
mod probe;
mod ran;
mod recording;
mod rerun;
mod rewind;
mod section;
mod shell;
mod shell_execute;
mod standard;
mod subagents;
mod tool;
mod toolset;
mod trace;
mod words;

pub use asking::{Answer, Asker, Asking, CommandQuestion};
pub use bisect::{
    BisectError, BisectFound, BisectReport, Bisection, ProbeRecord, bisect, bisect_slices, changed_positions,
    first_position,
};
pub use capture::CaptureBudget;
pub use children::{ChildError, Nursery, mounts_of};
pub use context::ToolContext;
pub use decided::ASK_THE_PERSON;
pub(crate) use decided::{Decided, nobody as nobody_to_ask};
pub use dispatch::{Dispatcher, ToolCall, ToolOutcome};
pub use error::ToolError;
pub use evaluate_python::PythonTool;
pub use files::{EditTool, GlobTool, GrepTool, ListTool, ReadTool, RemoveTool, WriteTool};
pub use filesystem::Filesystem;
pub use lift::{lift, lower};
pub(crate) use limits::{denied, limits_of};
pub use line_search::LineSearch;
pub use machine::{DispatchError, ShellRules};
pub use materialise::{Materialised, materialise, materialise_into};
pub use merge::{MergeError, MergeOutcome, MergeReport, MergedChange, merge_child, preview_merge};
pub use mounts::{AllowedRoots, MountError, MountSpec, hydrate, previews};
pub use path_glob::PathGlob;
pub use podman_shell::PodmanShellTool;
pub use policy::{AllowedBy, CommandPolicy, Decision, DenyRule, MAX_SCRIPT_CHARS};
pub use predicate::{Predicate, PredicateError};
pub use probe::Probe;
pub use rerun::{
    CallReport, CallVerdict, CallWatch, Divergence, Expectation, Fresh, NormalRules, Rerun, RerunError, RerunReport,
    RulesError, Scratch, ScriptedCall, WhatIf,
};
pub use rewind::{RewindError, RewindOptions, Rewound, rewind};
pub use section::WorkspaceSection;
pub use shell::ToolShell;
pub use shell_execute::ShellTool;
pub use subagents::{ChildContext, Subagent, SubagentOutcome, SubagentResult, Subagents, dispatch_subagents};
pub use tool::{Effect, Tool, ToolDescription};
pub use toolset::{Tools, ToolsError};
pub use trace::TraceContext;
