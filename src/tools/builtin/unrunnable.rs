//! Commands that can't run, found before the first call.

use serde::Deserialize;
use serde_json::Value;

use super::execute_script::{ExecuteScriptParams, ScriptTool};
use super::shell_execute::{ShellExecuteParams, ShellTool, command, shell_missing};
use crate::backends::WorkspaceSpec;
use crate::engine::path::EntryPath;
use crate::reducers::Allowances;
use crate::tools::call::approval::nobody;
use crate::tools::call::tool::Tool;
use crate::tools::policy::Decision;
use crate::tools::policy::rules::ShellRules;

/// Returns the reason that the command of a call can't run: the workspace has no shell, or nothing allows the command
/// and no approver is available. `None` for a call without a command.
pub fn unrunnable(
    (tool, params): (&str, &Value),
    spec: &WorkspaceSpec,
    rules: &ShellRules,
    allowed: &Allowances,
) -> Option<String> {
    let (line, surroundings) = match tool {
        ShellTool::NAME => ShellExecuteParams::deserialize(params).ok()?.parts(),
        ScriptTool::NAME => ExecuteScriptParams::deserialize(params).ok()?.parts(),
        _ => return None,
    };
    if !spec.runs_commands() {
        return Some(shell_missing(tool, spec.backend_name()));
    }
    match rules.policy.check_allowed(&command(line, surroundings, EntryPath::root()).ok()?, allowed) {
        Decision::Ask { programs } if rules.asker.is_none() => Some(nobody(&programs, rules.advice.as_deref())),
        _ => None,
    }
}
