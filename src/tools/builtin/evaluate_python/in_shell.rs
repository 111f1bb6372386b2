//! Evaluation by python3 in the workspace's shell. A wrapper script reports the value and the globals.

use std::time::Duration;

use serde_json::Value;

use super::{EvaluatePythonParams, EvaluatedValues, Evaluation, PythonTool, no_shell};
use crate::backends::ShellCommand;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::Tool;

const SCRIPT: &str = include_str!("evaluate.py");
/// The backend that runs nothing; it expects the code without the wrapper.
const MOCK: &str = "mock";
const ASIDE: Duration = Duration::from_secs(10);
/// Maximum size of the script's result in bytes: more than its own limits, since code can write there, too.
const LEFT_MAX: usize = 1 << 20;

pub(super) async fn evaluate(
    context: &mut ToolContext,
    params: &EvaluatePythonParams,
) -> Result<Evaluation, ToolError> {
    let cwd = context.workdir()?;
    let token: String = token()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let Some(mut shell) = context.shell() else { return Err(no_shell(context, PythonTool::NAME)) };
    let (code, place) = (params.code.as_str(), shell.properties().backend_name);
    let left = format!("/tmp/foldspace-{token}.json");
    let globals = Value::Object(params.globals.clone()).to_string();
    let mut command = match place {
        MOCK => ShellCommand::args(["python3", "-c", code]),
        _ => ShellCommand::args(["python3", "-c", SCRIPT, code, &globals, &left]),
    };
    command.cwd = cwd;
    let result = shell.evaluate("python", &["python3", "-c"], code, command).await?;
    let mut values = EvaluatedValues::default();
    if place != MOCK && !result.cancelled && !result.timed_out {
        // One command reads and removes the result; failed code leaves none.
        let take = ["/bin/sh", "-c", r#"test ! -f "$1" || cat "$1"; rm -f "$1""#, "sh", &left];
        let taken =
            shell.aside(ShellCommand { timeout: Some(ASIDE), keep: LEFT_MAX, ..ShellCommand::args(take) }).await?;
        if !taken.stdout.kept.is_empty() {
            let wrong = |error| ToolError::new(format!("invalid result of the code: {error}"));
            values = serde_json::from_slice(&taken.stdout.kept).map_err(wrong)?;
        }
    }
    Ok(Evaluation { result, place, values, files: Vec::new() })
}

fn token() -> Result<[u8; 16], ToolError> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(|error| ToolError::new(format!("no random source: {error}")))?;
    Ok(token)
}
