//! The options of an MCP server: its tools, and the sessions of its clients.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::backends::WorkspaceSpec;
use crate::engine::error::ValueError;
use crate::engine::event::Isolation;
use crate::engine::nearest::nearest;
use crate::reducers::ToolPolicy;
use crate::tools::{MountSpec, ShellRules};

/// A group of tools that are offered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolGroup {
    /// `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm`.
    Files,
    /// `shell_execute`, `execute_script`, `process_start` and the other tools for processes, `which` and `env`.
    Shell,
    /// `evaluate_python`.
    Python,
    /// `podman_shell`.
    PodmanShell,
    /// `session_clone`, `session_merge`, `session_log` and others, which reach every session of the store.
    Sessions,
}

impl ToolGroup {
    /// All groups.
    pub const ALL: [Self; 5] = [Self::Files, Self::Shell, Self::Python, Self::PodmanShell, Self::Sessions];

    /// Returns the group's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Shell => "shell",
            Self::Python => "python",
            Self::PodmanShell => "podman_shell",
            Self::Sessions => "sessions",
        }
    }

    /// Returns the group of a workspace tool. `None` for other tools.
    pub fn of(tool: &str) -> Option<Self> {
        match tool {
            "ls" | "read_file" | "write_file" | "edit_file" | "glob" | "grep" | "rm" => Some(Self::Files),
            "shell_execute" | "execute_script" | "which" | "env" => Some(Self::Shell),
            "process_start" | "process_list" | "process_read" | "process_write" | "process_signal" => Some(Self::Shell),
            "evaluate_python" => Some(Self::Python),
            "podman_shell" => Some(Self::PodmanShell),
            _ => None,
        }
    }
}

impl FromStr for ToolGroup {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = Self::ALL.into_iter().find(|group| group.name() == text);
        found.ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            let groups = "available: files, shell, python, podman_shell, sessions";
            let meant = nearest(&shown, Self::ALL.into_iter().map(Self::name));
            let meant = meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
            ValueError::new(format!("tool group {shown:?} not found{meant}; {groups}"))
        })
    }
}

/// The options of an [`McpServer`](super::McpServer): its tools, and the sessions of its clients.
#[derive(Clone)]
pub struct McpOptions {
    /// The session of all clients, created when the first of them needs it. By default each client creates its own,
    /// named after the client.
    pub session: Option<String>,
    /// The relation of each client to that session: by default clients share it, else each has its own child.
    pub isolation: Option<Isolation>,
    /// The agent name of a client; its own name by default. A name in use in the session gets a number.
    pub agent: Option<String>,
    /// The name of clients that only have an SDK's default name, `mcp`; `mcp` by default.
    pub usual_name: Option<String>,
    /// The workspace of a new session; in memory by default.
    pub workspace: Option<WorkspaceSpec>,
    /// The mounts of a new session.
    pub mounts: Vec<MountSpec>,
    /// The policy for the tools of a new session.
    pub policy: Option<ToolPolicy>,
    /// The offered groups of tools.
    pub groups: BTreeSet<ToolGroup>,
    /// The rules for commands. `asker` serves only clients that can't ask their person.
    pub rules: ShellRules,
}

impl Default for McpOptions {
    /// Returns options with an in-memory session for each client, and the tools for files, commands and Python.
    fn default() -> Self {
        Self {
            session: None,
            isolation: None,
            agent: None,
            usual_name: None,
            workspace: None,
            mounts: Vec::new(),
            policy: None,
            groups: BTreeSet::from([ToolGroup::Files, ToolGroup::Shell, ToolGroup::Python]),
            rules: ShellRules::default(),
        }
    }
}
