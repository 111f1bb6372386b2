//! `evaluate_python`: runs Python code, in process or in the workspace's shell.

mod advice;
mod in_process;
mod in_shell;
mod params;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::files::{TextMode, WriteResult, result_of, write_text};
use super::shell_execute::no_shell;
use super::shell_run::TIMED_OUT;
use crate::backends::{PythonEvaluator, ShellResult, Workspace};
use crate::engine::path::EntryPath;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::shell::EVALUATION;
use crate::tools::call::tool::{Effect, Tool};
use crate::tools::policy::python::PythonPlace;

use params::EvaluatePythonParams;

const STREAM_MAX: usize = 4096;
/// Maximum number of files in the result.
const TOLD_MAX: usize = 100;
/// Time that the call may take beyond the code: a grace period, and the scan.
const BEYOND: Duration = Duration::from_secs(60);

/// The tool `evaluate_python`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PythonTool;

/// Result of `evaluate_python`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Evaluated {
    /// Exit code: 0 for success, 124 if it timed out.
    exit_code: i32,
    /// `repr` of the value of the last expression, at most 4,096 characters; null without one, and for `None`.
    value_repr: Option<String>,
    /// Global variables after a success, as JSON: without functions, classes, modules and names that begin with an
    /// underscore.
    globals: Map<String, Value>,
    /// Global variables that JSON can't represent, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    omitted: BTreeMap<String, String>,
    /// Files that the code was given.
    reads: Vec<String>,
    /// The first 100 files that the code wrote, including files of `writes`.
    writes: Vec<WriteResult>,
    /// Standard output, at most 4,096 characters.
    stdout: String,
    /// Standard error, at most 4,096 characters.
    stderr: String,
    /// True if it timed out and was killed.
    timed_out: bool,
    /// True if part of the output is missing here.
    truncated: bool,
    /// Place where it ran: `in-process`, or the backend of the shell.
    place: &'static str,
}

/// A finished evaluation, in either place.
struct Evaluation {
    result: ShellResult,
    place: &'static str,
    values: EvaluatedValues,
    /// Files to write.
    files: Vec<(String, String, TextMode)>,
}

/// Values of evaluated code, in addition to its output.
#[derive(Default, serde::Deserialize)]
struct EvaluatedValues {
    value_repr: Option<String>,
    globals: Map<String, Value>,
    omitted: BTreeMap<String, String>,
}

impl Tool for PythonTool {
    const NAME: &'static str = "evaluate_python";
    const DESCRIPTION: &'static str = "Evaluates Python code for at most 5 seconds. Returns the value of the last \
        expression, the output, and the global variables. Name the workspace files that the code opens in reads; it \
        may write text files. read_text(path) and write_text(path, content, mode) need no import. If the session has a container, the code runs there with python3; else in process, \
        without commands, network and most of the library, but with json, re, math, statistics, datetime, itertools and pathlib.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = EvaluatePythonParams;
    type Output = Evaluated;

    async fn call(&self, context: &mut ToolContext, params: EvaluatePythonParams) -> Result<Evaluated, ToolError> {
        let reads = params.check(context)?;
        let is_sandboxed = context.workspace().unrecorded_shell().map(|shell| shell.properties().sandboxed);
        let evaluation = match context.python_rules().place_beside(is_sandboxed) {
            PythonPlace::InProcess => in_process::evaluate(context, &params, &reads).await?,
            PythonPlace::Container => in_shell::evaluate(context, &params).await?,
        };
        let Evaluation { result, place, values, files } = evaluation;
        if result.cancelled {
            return Err(ToolError::Cancelled);
        }
        for (path, text, mode) in files {
            write_text(context, &path, text, mode).map_err(|error| ToolError::new(format!("{path}: {error}")))?;
        }
        if result.success() {
            for write in params.writes {
                let text = template::fill(&write.content, &values.globals)
                    .map_err(|why| ToolError::new(format!("writes: {}: {why}", write.file_path)))?;
                write_text(context, &write.file_path, text, write.mode)?;
            }
        }
        let files = context.filesystem();
        let writes = files.written().into_iter().take(TOLD_MAX).map(|path| result_of(files, path)).collect();
        let (stdout, cut_out) = result.stdout.text(STREAM_MAX);
        let (stderr, cut_err) = result.stderr.text(STREAM_MAX);
        let EvaluatedValues { value_repr, globals, omitted } = values;
        Ok(Evaluated {
            exit_code: if result.timed_out { TIMED_OUT } else { result.exit_code },
            value_repr,
            globals,
            omitted,
            reads: reads.iter().map(|(path, _)| path.rooted()).collect(),
            writes,
            stdout,
            stderr,
            timed_out: result.timed_out,
            truncated: cut_out || cut_err,
            place,
        })
    }

    fn limit(&self) -> Option<Duration> {
        Some(EVALUATION + BEYOND)
    }

    fn works_in(&self, workspace: &dyn Workspace) -> bool {
        workspace.unrecorded_shell().is_some() || PythonEvaluator::program().is_some()
    }

    fn render(&self, output: &Evaluated) -> String {
        let mut text = output.stdout.clone();
        let mut part = |part: String| {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{gap}{part}"));
        };
        if let Some(value) = &output.value_repr {
            part(value.clone());
        }
        if !output.stderr.is_empty() {
            part(format!("[stderr]\n{}", output.stderr));
        }
        for file in &output.writes {
            part(super::files::WriteTool.render(file));
        }
        let why = if output.timed_out { ": it exceeded 5 seconds and was killed" } else { "" };
        if output.exit_code != 0 {
            part(format!("[exit code {}{why}]", output.exit_code));
        }
        text
    }
}

/// A file that code may read: its path, and its text.
type GivenFile = (EntryPath, String);
