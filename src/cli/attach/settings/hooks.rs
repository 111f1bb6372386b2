//! The hooks that each agent gets: its events, its settings file, and the command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use foldspace::tools::AgentKind;
use serde_json::{Value, json};

use crate::terminal::text;

/// Seconds after which an agent goes on without the hook. The hook itself gives up earlier.
const TIMEOUT: u64 = 5;

/// The commands of the hooks that an agent runs.
///
/// An agent asks for approval again where a command has changed, so the text stays the same from release to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookCommands {
    agent: AgentKind,
    program: HookProgram,
}

/// The program that hooks run, as they name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli::attach) struct HookProgram {
    pub(super) file: String,
    /// The directory of its data, where that is not found by the environment's rules.
    pub(super) data: Option<String>,
}

impl HookCommands {
    pub(super) fn new(agent: AgentKind, program: &HookProgram) -> Self {
        Self { agent, program: program.clone() }
    }

    /// Returns the command of an event. It succeeds, too, when the program is gone.
    fn of(&self, event: &str) -> String {
        let (program, agent) = (text::shell_word(&self.program.file), self.agent);
        // Copilot's payloads do not name their event.
        let event = if agent == AgentKind::Copilot { format!(" {event}") } else { String::new() };
        let data = self.program.data.as_deref().map(|data| format!(" --data {}", text::shell_word(data)));
        let data = data.unwrap_or_default();
        format!("command -v {program} >/dev/null 2>&1 || exit 0; exec {program} hook {agent}{event}{data}")
    }

    /// Returns the entries to add, each with its event.
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

    /// Returns the plugin that does in OpenCode what commands do elsewhere.
    pub(super) fn plugin(&self) -> String {
        let mut command = vec![&*self.program.file, "hook", self.agent.name()];
        command.extend(self.program.data.iter().flat_map(|data| ["--data", data]));
        include_str!("opencode.js").replacen(PLUGIN_COMMAND, &json!(command).to_string(), 1)
    }
}

/// The command in the plugin's text.
const PLUGIN_COMMAND: &str = r#"["foldspace", "hook", "opencode"]"#;

/// Returns whether a command is one of ours for an agent, with any program and event.
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

/// The variables by which agents and this program find files.
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

    /// Returns the directory of an agent's settings; none without a home.
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

    /// Returns whether an agent is installed: its directory exists, or its program is found.
    pub(super) fn has(&self, agent: AgentKind) -> bool {
        self.directory(agent).is_some_and(|directory| directory.is_dir()) || self.program(agent.name()).is_some()
    }

    /// Returns the file of a program that is found by its name.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.variables.get("PATH")?;
        let found = std::env::split_paths(path).map(|directory| directory.join(name));
        found.filter(|file| file.is_absolute()).find(|file| file.is_file())
    }
}

/// Returns an agent's settings file below the directory of its settings.
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
