//! Reports from hooks, common to all agents.

use serde_json::{Map, Value};

use crate::engine::event::CallStatus;
use crate::tools::transcript::edits::spelled;
use crate::tools::transcript::step::{EndedCall, text};
use crate::tools::transcript::tool_access::ToolAccess;

/// A parsed payload of a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookReport {
    /// The agent's name: the name of an [`AgentKind`](super::kind::AgentKind), or `cursor`.
    pub agent: String,
    /// The agent's id of the conversation; empty if missing.
    pub run: String,
    /// The parent conversation, for a subagent with a separate conversation.
    pub(crate) parent: Option<String>,
    /// The agent's id of the subagent that acts, begins or ends.
    pub(crate) subagent: Option<String>,
    /// The agent's current directory.
    pub(crate) directory: Option<String>,
    /// Short facts about the run, such as its model.
    pub(crate) facts: Map<String, Value>,
    pub kind: HookKind,
}

/// The event that a hook reports.
#[derive(Debug, Clone, PartialEq)]
pub enum HookKind {
    RunBegan,
    RunEnded {
        reason: Option<String>,
    },
    Prompted {
        prompt: String,
        id: Option<String>,
    },
    CallBegan(ReportedCall),
    /// The agent asks its user to permit a call in flight. The report does not name the call.
    Asked,
    /// The user permitted the calls that the agent asked about.
    Allowed,
    CallEnded(ReportedCall, ReportedEnd),
    /// Calls that ended together. Hooks may have reported each of them already, or none.
    Batch(Vec<(ReportedCall, ReportedEnd)>),
    SubagentBegan,
    SubagentEnded,
    /// The agent waits for its user: no call of this conversation runs in the foreground.
    Paused {
        /// The tasks that still run in the background; `None` if the agent does not report them.
        background: Option<Vec<String>>,
    },
    Other,
}

/// A call reported by a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedCall {
    /// The agent's id of the call. Some agents don't assign ids.
    pub(crate) id: Option<String>,
    pub(crate) tool: String,
    pub(crate) params: Value,
    /// The changes that the call may make. An edit has at least one declared file.
    pub(crate) access: ToolAccess,
    /// The files to change, with the agent's paths: absolute, or relative to its directory.
    pub(crate) declared: Vec<String>,
}

/// Tools that start a subagent and change nothing themselves. Hooks report the subagent's calls.
const DELEGATES: [&str; 9] =
    ["Agent", "Task", "task", "invoke_agent", "spawn_agent", "resume_agent", "close_agent", "send_input", "wait"];

/// Parameters that may hold a patch in the format of the tool `apply_patch`.
const PATCHES: [&str; 4] = ["command", "patchText", "patch", "input"];

impl ReportedCall {
    /// Creates a call, with the access and files that its parameters imply.
    pub(super) fn new(id: Option<String>, tool: String, params: Value) -> Self {
        let mut access = if DELEGATES.contains(&&*tool) { ToolAccess::Reads } else { ToolAccess::of(&tool) };
        let declared = if access == ToolAccess::Edits { declared_paths(&params) } else { Vec::new() };
        if access == ToolAccess::Edits && declared.is_empty() {
            access = ToolAccess::Writes;
        }
        Self { id, tool, params, access, declared }
    }
}

/// Returns the paths of the files in the parameters of an edit.
fn declared_paths(params: &Value) -> Vec<String> {
    if let Some(patch) = PATCHES.iter().find_map(|name| params[*name].as_str()?.strip_prefix("*** Begin Patch")) {
        let path = |line: &str| {
            let (change, path) = line.strip_prefix("*** ")?.split_once(": ")?;
            ["Add File", "Delete File", "Update File", "Move to"].contains(&change).then(|| path.to_owned())
        };
        return patch.lines().filter_map(path).collect();
    }
    match text(&spelled(params), "file_path") {
        "" => Vec::new(),
        path => vec![path.to_owned()],
    }
}

/// The end of a call, reported by a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedEnd {
    /// `Ok` for a command with any exit code.
    pub(crate) status: CallStatus,
    /// The tool's answer; null for a failure.
    pub(crate) result: Value,
    /// The error message of a failure.
    pub(crate) message: String,
    /// The exit code of a command, if the agent states it.
    pub(crate) exit_code: Option<i64>,
    /// The duration, if the agent states it.
    pub(crate) micros: Option<u64>,
    /// The task that continues in the background after the call.
    pub(crate) background: Option<String>,
    /// The subagent, or its conversation, that the call started.
    pub(crate) child: Option<String>,
}

impl ReportedEnd {
    pub(super) fn ok(result: Value) -> Self {
        EndedCall::ok("", result).into()
    }

    pub(super) fn failed(message: &str) -> Self {
        EndedCall::failed("", message).into()
    }
}

impl From<EndedCall> for ReportedEnd {
    fn from(end: EndedCall) -> Self {
        Self {
            status: end.status,
            exit_code: end.result["exit_code"].as_i64(),
            result: end.result,
            message: end.message,
            micros: end.micros,
            background: None,
            child: end.child,
        }
    }
}
