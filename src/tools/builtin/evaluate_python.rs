//! `evaluate_python`: runs Python code in the workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::shell_execute::{TIMED_OUT, no_shell};
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::shell::EVALUATION;
use crate::tools::call::tool::{Effect, Tool};

const STREAM_MAX: usize = 4096;
/// Time that the call may take beyond the code: a grace period, and the scan.
const BEYOND: Duration = Duration::from_secs(60);

/// The tool `evaluate_python`, on backends with a shell.
#[derive(Debug, Clone, Copy, Default)]
pub struct PythonTool;

/// Parameters of `evaluate_python`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluatePythonParams {
    /// The code, run by `python3 -c` in the workspace root for at most 5 seconds.
    code: String,
    /// Must be empty on this backend.
    #[serde(default)]
    globals: BTreeMap<String, Value>,
    /// Must be empty on this backend.
    #[serde(default)]
    reads: Vec<String>,
    /// Must be empty on this backend.
    #[serde(default)]
    writes: Vec<Map<String, Value>>,
}

/// Result of `evaluate_python`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Evaluated {
    /// 0 when it ran to its end; 124 when it took too long.
    exit_code: i32,
    /// Standard output, at most 4,096 characters.
    stdout: String,
    /// Standard error, at most 4,096 characters.
    stderr: String,
    /// Set when it was ended because it took too long.
    timed_out: bool,
    /// Set when part of the output is missing here.
    truncated: bool,
}

impl Tool for PythonTool {
    const NAME: &'static str = "evaluate_python";
    const DESCRIPTION: &'static str =
        "Runs Python code in the workspace root with python3 -c, for at most 5 seconds, and gives what it printed.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = EvaluatePythonParams;
    type Output = Evaluated;

    async fn call(&self, context: &mut ToolContext, params: EvaluatePythonParams) -> Result<Evaluated, ToolError> {
        if !(params.globals.is_empty() && params.reads.is_empty() && params.writes.is_empty()) {
            return Err(ToolError::new(
                "globals, reads and writes must be empty here: the code runs in the workspace and reads its files itself",
            ));
        }
        let Some(mut shell) = context.shell() else { return Err(no_shell(context, Self::NAME)) };
        let result = shell.evaluate("python", &["python3", "-c"], &params.code).await?;
        if result.cancelled {
            return Err(ToolError::Cancelled);
        }
        let (stdout, cut_out) = result.stdout.text(STREAM_MAX);
        let (stderr, cut_err) = result.stderr.text(STREAM_MAX);
        let exit_code = if result.timed_out { TIMED_OUT } else { result.exit_code };
        Ok(Evaluated { exit_code, stdout, stderr, timed_out: result.timed_out, truncated: cut_out || cut_err })
    }

    fn limit(&self) -> Option<Duration> {
        Some(EVALUATION + BEYOND)
    }

    fn render(&self, output: &Evaluated) -> String {
        let mut text = output.stdout.clone();
        if !output.stderr.is_empty() {
            text.push_str(&format!("\n[stderr]\n{}", output.stderr));
        }
        let why = if output.timed_out { ": it took more than 5 seconds and was ended" } else { "" };
        if output.exit_code != 0 {
            text.push_str(&format!("\n[exit code {}{why}]", output.exit_code));
        }
        text
    }
}
