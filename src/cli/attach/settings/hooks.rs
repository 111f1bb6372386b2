//! The hooks of each agent: its events, its settings file, and the command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use foldspace::tools::AgentKind;
use serde_json::{Value, json};

use crate::terminal::text;

/// The hook's timeout in the agents' settings, in seconds. The hook itself gives up earlier.
const TIMEOUT: u64 = 5;

/// The commands of an agent's hooks.
///
/// Agents ask for approval again if a command changes, so the text must stay the same across releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookCommands {
    agent: AgentKind,
    program: HookProgram,
}

/// The program that hooks run, as it is written in their commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli::attach) struct HookProgram {
    pub(super) file: String,
    /// The data directory, if it was given explicitly.
    pub(super) data: Option<String>,
}

impl HookProgram {
    /// Returns the command that installs the program, if it runs from a cache of npx or uvx.
    pub(in crate::cli::attach) fn installation(&self) -> Option<&'static str> {
        let is_below = |name: &str| Path::new(&self.file).iter().any(|part| part == name);
        let installations =
            [("_npx", "npm install --global foldspace"), ("archive-v0", "uv tool install foldspace-sdk")];
        installations.into_iter().find_map(|(cache, command)| is_below(cache).then_some(command))
    }
}

impl HookCommands {
    pub(super) fn new(agent: AgentKind, program: &HookProgram) -> Self {
        Self { agent, program: program.clone() }
    }

    /// Returns the command of an event. The command succeeds even if the program is gone.
    fn of(&self, event: &str) -> String {
        let (program, agent) = (text::shell_word(&self.program.file), self.agent);
        // Copilot's payloads do not name their event.
        let event = if agent == AgentKind::Copilot { format!(" {event}") } else { String::new() };
        let data = self.program.data.as_deref().map(|data| format!(" --data {}", text::shell_word(data)));
        let data = data.unwrap_or_default();
        format!("command -v {program} >/dev/null 2>&1 || exit 0; exec {program} hook {agent}{event}{data}")
    }

    /// Returns the entries to add, with their events.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static str, Value)> {
        events(self.agent).iter().map(|event| {
            let command = self.of(event);
            let entry = match self.agent {
                AgentKind::Copilot => json!({ "type": "command", "bash": command, "timeoutSec": TIMEOUT }),
                AgentKind::Gemini => {
                    let hook = json!({
                        "name": "foldspace", "type": "command", "command": command, "timeout": TIMEOUT * 1000,
                    });
                    json!({ "hooks": [hook] })
                }
                _ => json!({ "hooks": [{ "type": "command", "command": command, "timeout": TIMEOUT }] }),
            };
            (*event, entry)
        })
    }

    /// Returns the plugin for OpenCode, which has no command hooks.
    pub(super) fn plugin(&self) -> String {
        let mut command = vec![&*self.program.file, "hook", self.agent.name()];
        command.extend(self.program.data.iter().flat_map(|data| ["--data", data]));
        include_str!("opencode.js").replacen(PLUGIN_COMMAND, &json!(command).to_string(), 1)
    }
}

/// The command in the plugin's text.
const PLUGIN_COMMAND: &str = r#"["foldspace", "hook", "opencode"]"#;

/// Returns true if a command is one of our hooks for an agent, with any program and event.
pub(super) fn is_ours(command: &str, agent: AgentKind) -> bool {
    let program =
        command.strip_prefix("command -v ").and_then(|rest| rest.split_once(" >/dev/null 2>&1 || exit 0; exec "));
    let Some((program, rest)) = program else { return false };
    let hook = rest.strip_prefix(program).and_then(|rest| rest.strip_prefix(" hook "));
    hook.is_some_and(|hook| hook.split(' ').next() == Some(agent.name()))
}

/// The first line of the plugin.
pub(super) const PLUGIN_MARK: &str = "// Written by `foldspace attach`";

fn events(agent: AgentKind) -> &'static [&'static str] {
    match agent {
        AgentKind::Claude => &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "PostToolBatch",
            "PermissionRequest",
            "PermissionDenied",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "SessionEnd",
        ],
        AgentKind::Codex => &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PermissionRequest",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "SessionEnd",
        ],
        AgentKind::Gemini => {
            &["SessionStart", "BeforeAgent", "BeforeTool", "Notification", "AfterTool", "AfterAgent", "SessionEnd"]
        }
        AgentKind::Copilot => &[
            "sessionStart",
            "userPromptSubmitted",
            "preToolUse",
            "permissionRequest",
            "postToolUse",
            "postToolUseFailure",
            "subagentStart",
            "subagentStop",
            "agentStop",
            "sessionEnd",
        ],
        AgentKind::OpenCode => &[],
    }
}

/// The variables that locate the files of agents and of this program.
const VARIABLES: [&str; 7] =
    ["HOME", "PATH", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "XDG_CONFIG_HOME"];

/// The places that the environment names.
pub(super) struct Homes {
    variables: BTreeMap<&'static str, OsString>,
}

impl Homes {
    pub(super) fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| Some((name, variable(name)?));
        Self { variables: VARIABLES.into_iter().filter_map(set).collect() }
    }

    fn set(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns the directory of an agent's settings; `None` without a home directory.
    pub(super) fn directory(&self, agent: AgentKind) -> Option<PathBuf> {
        let home = |below: &str| Some(self.set("HOME")?.join(below));
        match agent {
            AgentKind::Claude => self.set("CLAUDE_CONFIG_DIR").or_else(|| home(".claude")),
            AgentKind::Codex => self.set("CODEX_HOME").or_else(|| home(".codex")),
            AgentKind::Gemini => {
                self.set("GEMINI_CLI_HOME").map(|path| path.join(".gemini")).or_else(|| home(".gemini"))
            }
            AgentKind::Copilot => self.set("COPILOT_HOME").or_else(|| home(".copilot")),
            AgentKind::OpenCode => {
                let config = self.set("XDG_CONFIG_HOME").or_else(|| home(".config"));
                config.map(|path| path.join("opencode"))
            }
        }
    }

    /// Returns true if an agent is installed: its directory exists, or its program is in the `PATH`.
    pub(super) fn has(&self, agent: AgentKind) -> bool {
        self.directory(agent).is_some_and(|directory| directory.is_dir()) || self.program(agent.name()).is_some()
    }

    /// Returns the file of a program in the `PATH`.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.variables.get("PATH")?;
        let found = std::env::split_paths(path).map(|directory| directory.join(name));
        found.filter(|file| file.is_absolute()).find(|file| file.is_file())
    }
}

/// Returns an agent's settings file in the directory of its settings.
pub(super) fn user_file(agent: AgentKind, directory: &Path) -> PathBuf {
    directory.join(match agent {
        AgentKind::Claude | AgentKind::Gemini => "settings.json",
        AgentKind::Codex => "hooks.json",
        AgentKind::Copilot => "hooks/foldspace.json",
        AgentKind::OpenCode => "plugins/foldspace.js",
    })
}

/// Returns an agent's settings file of a project.
pub(super) fn project_file(agent: AgentKind, project: &Path) -> PathBuf {
    project.join(match agent {
        AgentKind::Claude => ".claude/settings.local.json",
        AgentKind::Codex => ".codex/hooks.json",
        AgentKind::Gemini => ".gemini/settings.json",
        AgentKind::Copilot => ".github/hooks/foldspace.json",
        AgentKind::OpenCode => ".opencode/plugins/foldspace.js",
    })
}
