//! Tools: the only place where effects and events meet.

#[doc(hidden)]
pub mod agents;
#[doc(hidden)]
pub mod bisection;
pub(crate) mod builtin;
pub(crate) mod call;
pub(crate) mod children;
pub(crate) mod declared;
mod environment;
mod error;
mod mounts;
mod off_thread;
mod policy;
mod rerun;
#[doc(hidden)]
pub mod rescue;
mod rewind;
mod secret_mask;
mod tool_policy;
mod transcript;
mod undo;
#[doc(hidden)]
pub mod words;
pub(crate) mod workspace;

pub use crate::engine::path_glob::PathGlob;
pub use crate::reducers::{OnFailure, Predicate, ToolPolicy, regex_error};
pub use agents::kind::{AgentKind, UnknownAgent};
pub use bisection::algorithm::{BisectOutcome, BisectSearch, BisectVerdict};
pub use bisection::probe::Probe;
pub use bisection::probe_record::ProbeRecord;
pub use bisection::search::{BisectFound, BisectReport, Bisection, bisect, bisect_slices, first_position};
pub use builtin::evaluate_python::PythonTool;
pub use builtin::execute_script::ScriptTool;
pub use builtin::files::{EditTool, GlobTool, GrepTool, ListTool, ReadTool, RemoveTool, WriteTool};
pub use builtin::line_search::LineSearch;
pub use builtin::podman_shell::PodmanShellTool;
pub use builtin::processes::{ProcessListTool, ProcessReadTool, ProcessSignalTool, ProcessStartTool, ProcessWriteTool};
#[doc(hidden)]
pub use builtin::services::ServiceParams;
pub use builtin::shell_execute::ShellTool;
pub use builtin::shell_facts::{EnvTool, WhichTool};
#[doc(hidden)]
pub use builtin::unrunnable::unrunnable;
pub use call::approval::ASK_THE_PERSON;
#[doc(hidden)]
pub use call::approval::Decided;
#[doc(hidden)]
pub use call::approval::nobody as nobody_to_ask;
pub use call::approval::policy_refusals;
pub use call::approver::{ApprovalAnswer, Asker, Asking, CommandQuestion};
pub use call::content_params::{lift, lower};
pub use call::context::ToolContext;
pub use call::error::{LimitName, ToolError, UsedLimit};
pub use call::file_work::FileWork;
pub use call::filesystem::Filesystem;
#[doc(hidden)]
pub use call::params::read_params;
#[doc(hidden)]
pub use call::registrations::Registration;
#[doc(hidden)]
pub use call::registrations::Registrations;
#[doc(hidden)]
pub use call::shell::TERMINAL;
pub use call::shell::ToolShell;
#[doc(hidden)]
pub use call::tool::{Answering, ErasedTool, ToolAnswer};
pub use call::tool::{Effect, Tool, ToolDescription};
pub use call::tool_call::{RanCommand, ToolCall, ToolOutcome};
pub use call::tool_runner::ToolRunner;
pub use call::toolset::Tools;
#[doc(hidden)]
pub use call::toolset::check_name;
pub use call::trace::TraceContext;
pub use call::work_budget::{BeatWatch, ToolBeat, WorkBudget};
#[doc(hidden)]
pub use children::forker::left_of_fork;
pub use children::forker::{Forker, mounts_of};
pub use children::merge::{MergeOutcome, MergeReport, MergedChange, merge_child, merge_child_once, preview_merge};
pub use children::subagents::{ChildContext, Subagent, SubagentOutcome, SubagentResult, Subagents, dispatch_subagents};
pub use declared::{DEFAULT_SLICES, OwnEvent, declare_defaults, declare_slice, declared_in, record_own, remove_slice};
pub use environment::EnvironmentDifference;
pub use error::WorkspaceError;
pub use mounts::{AllowedRoots, MountError, MountSpec, hydrate, previews};
pub use policy::command_time::CommandTime;
#[doc(hidden)]
pub use policy::effect_text::without_secrets;
pub use policy::python::{PythonPlace, PythonRules};
pub use policy::rules::ShellRules;
pub use policy::{AllowedBy, CommandPolicy, Decision, DenyRule};
#[doc(hidden)]
pub use policy::{MAX_COMMAND_CHARS, MAX_SCRIPT_CHARS};
pub use rerun::{
    CallReport, CallVerdict, CallWatch, Divergence, Expectation, ForeignRun, NormalRules, Rerun, RerunReport,
    RerunWorkspace, Scratch, ScriptedCall, WhatIf, subagents_of,
};
#[doc(hidden)]
pub use rerun::{roots_of, runs_commands};
#[doc(hidden)]
pub use rewind::taken_up;
pub use rewind::{RewindOptions, Rewound, rewind, rewound_before};
pub use secret_mask::SecretMask;
pub use tool_policy::{set_tool_policy, tool_policy_event};
pub use transcript::{
    ImportedRun, MessageRole, MessageUsage, TranscriptError, TranscriptFormat, import_transcripts, traces_of,
    trajectory_of,
};
#[doc(hidden)]
pub use transcript::{SaidText, as_typed, said, usage_of};
#[doc(hidden)]
pub use undo::known_run;
pub use undo::{UndoLeft, UndoLeftReason, UndoOptions, UndoPassed, UndoReport, UndoSubject};
#[doc(hidden)]
pub use workspace::borrowed::CopyProgress;
#[doc(hidden)]
pub use workspace::borrowed::OwnCopies;
pub use workspace::capture::CaptureBudget;
#[doc(hidden)]
pub use workspace::limits::{began, denied, limits_of};
pub use workspace::live_files::LiveFiles;
#[doc(hidden)]
pub use workspace::managed::Extent;
pub use workspace::materialise::{Materialised, materialise, write_tar};
#[doc(hidden)]
pub use workspace::output_stream::Outputs;
pub use workspace::output_stream::{CommandOutput, OutputOptions, OutputSubscription};
#[doc(hidden)]
pub use workspace::plan::PlannedChange;
pub use workspace::runtime::running_calls;
#[doc(hidden)]
pub use workspace::runtime::{SessionRuntime, WorkspaceLock};
#[doc(hidden)]
pub use workspace::section::BACKGROUND;
pub use workspace::section::WorkspaceSection;
#[doc(hidden)]
pub use workspace::{process_output, processes};
