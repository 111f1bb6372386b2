//! Python code that runs in the evaluator's process.

use std::time::Duration;

use tokio::time::Instant;

use super::advice::advice;
use super::{EVALUATION, EvaluatePythonParams, EvaluatedValues, Evaluation, GivenFile, TextMode};
use crate::backends::python::{self, EvalAnswer, EvalEnd, EvalRequest, LeftFile};
use crate::backends::{Output, ShellResult};
use crate::engine::event::CommandLine;
use crate::engine::path::EntryPath;
use crate::tools::builtin::files::TEXT_MAX;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::policy::python::PythonPlace;

/// Exit codes of a process that was killed, and that aborted.
const KILLED: i32 = 137;
const ABORTED: i32 = 134;

pub(super) async fn evaluate(
    context: &mut ToolContext,
    params: &EvaluatePythonParams,
    reads: &[GivenFile],
) -> Result<Evaluation, ToolError> {
    let (chars, most) = (params.code.chars().count(), context.python_rules().code_chars.min(TEXT_MAX));
    if chars > most {
        let what = format!("code has {chars} characters; in process at most {most} are allowed (python_chars)");
        return Err(ToolError::new(what));
    }
    let limit = EVALUATION.min(context.remaining());
    let path = |path: &EntryPath| path.rooted().trim_start_matches('/').to_owned();
    let request = EvalRequest {
        code: params.code.clone(),
        globals: params.globals.clone(),
        files: reads.iter().map(|(read, text)| (path(read), text.clone())).collect(),
        limit_millis: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let began = Instant::now();
    let end = python::evaluate(request, &context.cancellation().clone()).await?;
    let (result, answer) = ended(end, began.elapsed(), context.workspace().unrecorded_shell().is_some());
    context.record_evaluation("python", &params.code, &result)?;
    let EvalAnswer { value_repr, globals, omitted, files, .. } = answer;
    let file = |LeftFile { path, text, is_appended, is_new }| match (is_new, is_appended) {
        (true, _) => (path, text, TextMode::Create),
        (false, true) => (path, text, TextMode::Append),
        (false, false) => (path, text, TextMode::Overwrite),
    };
    Ok(Evaluation {
        result,
        place: PythonPlace::InProcess.word(),
        values: EvaluatedValues { value_repr, globals, omitted },
        files: files.into_iter().map(file).collect(),
    })
}

fn ended(end: EvalEnd, duration: Duration, has_shell: bool) -> (ShellResult, EvalAnswer) {
    let mut result = ShellResult {
        exit_code: 0,
        stdout: Output::default(),
        stderr: Output::default(),
        command: CommandLine::Args(Vec::new()),
        cwd: EntryPath::root(),
        duration,
        timed_out: false,
        cancelled: false,
        signal: None,
        lost: false,
        terminal: None,
    };
    let mut answer = EvalAnswer::default();
    match end {
        EvalEnd::TimedOut => (result.timed_out, result.exit_code) = (true, KILLED),
        EvalEnd::Cancelled => (result.cancelled, result.exit_code) = (true, KILLED),
        EvalEnd::Died(why) => {
            result.exit_code = ABORTED;
            result.stderr = Output::whole(format!("The code was ended: {why}.\n"));
        }
        EvalEnd::Answer(it) => {
            answer = *it;
            let stdout = std::mem::take(&mut answer.stdout);
            result.stdout = Output { bytes: answer.printed, ..Output::whole(stdout) };
            if let Some(failure) = &answer.failure {
                (result.timed_out, result.exit_code) = (answer.timed_out, 1);
                let advice = advice(failure, has_shell).map(|advice| format!("Note: {advice}\n"));
                result.stderr = Output::whole(format!("{failure}\n{}", advice.unwrap_or_default()));
            }
        }
    }
    (result, answer)
}
