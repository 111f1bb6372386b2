//! `execute_script`: runs a multi-line script in the workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::shell_execute::{CommandSurroundings, no_shell, run, yes};
use super::shell_run::ShellRun;
use crate::backends::EnvMode;
use crate::engine::event::CommandLine;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{BESIDE, Effect, Tool};
use crate::tools::policy::{MAX_SCRIPT_CHARS, base_name, is_standard};

/// The tool `execute_script`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScriptTool;

/// Parameters of `execute_script`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteScriptParams {
    /// The text of the script. It runs from a temporary file.
    #[schemars(length(max = MAX_SCRIPT_CHARS))]
    script: String,
    /// The program that runs it, with its options. By default the one that the script's first line names after `#!`,
    /// otherwise bash, or sh where there is no bash; the result names it.
    #[serde(default)]
    interpreter: String,
    /// The directory in the workspace to run it in; by default the session's workdir.
    #[serde(default)]
    cwd: String,
    /// Additional variables, as for shell_execute.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Treatment of the existing variables.
    #[serde(default)]
    env_mode: EnvMode,
    /// Standard input, at most 48,000 characters.
    #[serde(default)]
    stdin: String,
    /// Time limit in seconds, as for shell_execute; 30 by default.
    #[serde(default)]
    timeout_seconds: Option<f64>,
    /// True to return the output; the default.
    #[serde(default = "yes")]
    capture_output: bool,
    /// Seconds after which a running script continues as a background process, as for shell_execute.
    #[serde(default)]
    background_after_seconds: Option<f64>,
}

impl ExecuteScriptParams {
    /// Returns the command, determined without the workspace.
    pub(super) fn parts(self) -> (CommandLine, CommandSurroundings) {
        let Self { script, interpreter, cwd, env, env_mode, stdin, timeout_seconds, capture_output, .. } = self;
        let surroundings = CommandSurroundings {
            cwd,
            env,
            env_mode,
            stdin,
            timeout_seconds,
            capture_output,
            terminal: None,
            background_after_seconds: self.background_after_seconds,
        };
        let interpreter = match interpreter.trim() {
            "" => named_interpreter(&script).unwrap_or_else(|| "/bin/sh".to_owned()),
            _ => interpreter,
        };
        (CommandLine::Script { interpreter, script }, surroundings)
    }
}

/// Returns the interpreter of a script that comes without one.
async fn usual_interpreter(context: &mut ToolContext, script: &str) -> Result<String, ToolError> {
    if let Some(named) = named_interpreter(script) {
        return Ok(named);
    }
    context.clock_waits = true;
    let Some(shell) = context.shell() else { return Err(no_shell(context, ScriptTool::NAME)) };
    for bash in ["bash", "/bin/bash"] {
        // Another one, such as a file of the workspace, would need an approval.
        let path = shell.which(bash).await?.path.filter(|path| path.starts_with('/') && is_standard(path));
        if let Some(path) = path {
            return Ok(path);
        }
    }
    Ok("/bin/sh".to_owned())
}

/// Returns the interpreter that the first line names after `#!`. `/usr/bin/env python3` is `python3`.
fn named_interpreter(script: &str) -> Option<String> {
    let line = script.strip_prefix("#!")?.lines().next()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let words = match words[..] {
        [env, "-S", name, ..] if base_name(env) == "env" && is_program(name) => &words[2..],
        [env, name, ..] if base_name(env) == "env" && is_program(name) => &words[1..],
        _ => &words[..],
    };
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns true for a word that `env` takes as the program, rather than as an option or a variable.
fn is_program(word: &str) -> bool {
    !word.starts_with('-') && !word.contains('=')
}

impl Tool for ScriptTool {
    const NAME: &'static str = "execute_script";
    const DESCRIPTION: &'static str = "Runs a multi-line script in the workspace with bash or another interpreter, and \
        returns its exit code and output. Use it for scripts that are too long for shell_execute; the same rules apply.";
    const EFFECT: Effect = Effect::Destructive;
    const NEEDS_SHELL: bool = true;
    type Params = ExecuteScriptParams;
    type Output = ShellRun;

    async fn call(&self, context: &mut ToolContext, params: ExecuteScriptParams) -> Result<ShellRun, ToolError> {
        let chosen = match params.interpreter.trim() {
            "" => Some(usual_interpreter(context, &params.script).await?),
            _ => None,
        };
        let interpreter = chosen.clone().unwrap_or_else(|| params.interpreter.clone());
        let (line, surroundings) = ExecuteScriptParams { interpreter, ..params }.parts();
        let mut ran = run(context, Self::NAME, line, surroundings).await?;
        ran.interpreter = chosen;
        Ok(ran)
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE)
    }

    fn render(&self, output: &ShellRun) -> String {
        output.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execute_script_takes_the_interpreter_from_the_first_line() {
        for (script, interpreter) in [
            ("#!/bin/bash\necho", Some("/bin/bash")),
            ("#! /bin/sh -eu\n", Some("/bin/sh -eu")),
            ("#!/usr/bin/env python3\r\nprint(1)", Some("python3")),
            ("#!/usr/bin/env -S python3 -u", Some("python3 -u")),
            ("#!/usr/bin/env -i sh", Some("/usr/bin/env -i sh")),
            ("#!/usr/bin/env A=1 sh", Some("/usr/bin/env A=1 sh")),
            ("#!\necho", None),
            ("\n#!/bin/bash", None),
            ("# !/bin/bash", None),
        ] {
            assert_eq!(named_interpreter(script).as_deref(), interpreter, "{script}");
        }
    }
}
