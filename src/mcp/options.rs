//! The options of an MCP server: its tools, and its clients' way to their sessions.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::backends::WorkspaceSpec;
use crate::engine::error::ValueError;
use crate::engine::event::Isolation;
use crate::tools::{MountSpec, ShellRules};

/// Tools that are offered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolGroup {
    /// `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm`.
    Files,
    /// `shell_execute`.
    Shell,
    /// `evaluate_python`.
    Python,
    /// `podman_shell`.
    PodmanShell,
    /// `session_clone`, `session_merge`, `session_log` and others, for orchestrators: they reach every session of the
    /// store.
    Sessions,
}

impl ToolGroup {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Files, Self::Shell, Self::Python, Self::PodmanShell, Self::Sessions];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Shell => "shell",
            Self::Python => "python",
            Self::PodmanShell => "podman_shell",
            Self::Sessions => "sessions",
        }
    }

    /// The group of a workspace's tool; none for a tool of somebody's own.
    pub fn of(tool: &str) -> Option<Self> {
        match tool {
            "ls" | "read_file" | "write_file" | "edit_file" | "glob" | "grep" | "rm" => Some(Self::Files),
            "shell_execute" => Some(Self::Shell),
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
            let groups = "there are files, shell, python, podman_shell and sessions";
            ValueError::new(format!("there is no group of tools {shown:?}; {groups}"))
        })
    }
}

/// The options of an [`McpServer`](super::McpServer): its tools, and its clients' way to their sessions.
#[derive(Clone)]
pub struct McpOptions {
    /// The session in which all clients work: it goes on, or begins when the first of them needs it. Without a name each
    /// client begins one of its own, which is called after the client.
    pub session: Option<String>,
    /// The part of that session that a client has: the session itself when nothing is said, else a child of its own.
    pub isolation: Option<Isolation>,
    /// Under which name a client works; its own when nothing is said. Where somebody has that name in the session already
    /// it is numbered.
    pub agent: Option<String>,
    /// The workspace of a session that begins; in memory by default.
    pub workspace: Option<WorkspaceSpec>,
    /// The mounts that are copied into it.
    pub mounts: Vec<MountSpec>,
    /// The tools that are offered.
    pub groups: BTreeSet<ToolGroup>,
    /// The rules for commands. Where a client can ask the person who uses it, that is who is asked; `asker` is for the
    /// others.
    pub rules: ShellRules,
}

impl Default for McpOptions {
    /// A session in memory for each client, with the tools for files, commands and Python.
    fn default() -> Self {
        Self {
            session: None,
            isolation: None,
            agent: None,
            workspace: None,
            mounts: Vec::new(),
            groups: BTreeSet::from([ToolGroup::Files, ToolGroup::Shell, ToolGroup::Python]),
            rules: ShellRules::default(),
        }
    }
}
