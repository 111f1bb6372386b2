//! In-process Python: the interpreter Monty runs code in a subprocess of this program, which stores no state between
//! evaluations and is replaced when it dies.

mod interpreter;
mod interpreter_files;
mod json_values;
mod serve;
mod wire;
mod worker;

pub(crate) use wire::{EvalAnswer, EvalRequest, LeftFile};
pub(crate) use worker::EvalEnd;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use tokio_util::sync::CancellationToken;

use super::ShellError;
use crate::engine::lock::lock;
use worker::{EvaluatorProcess, Severing};

/// The maximum number of idle processes for the next evaluations.
const IDLE_MAX: usize = 2;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static IDLE: Mutex<Vec<EvaluatorProcess>> = Mutex::new(Vec::new());

/// The processes that run Python code without a container. The program `foldspace` is its own evaluator; another
/// program has to set the one to start. It gets the argument `evaluator`, and must be of this release.
///
/// ```
/// use foldspace::backends::PythonEvaluator;
/// If this program calls `PythonEvaluator::serve()` for the argument `evaluator`, it can be its own.
/// let foldspace = std::path::Path::new("/usr/local/bin/foldspace");
/// assert!(PythonEvaluator::set_program(foldspace));
/// assert!(!PythonEvaluator::set_program("/elsewhere"), "the first one stays");
/// ```
#[derive(Debug)]
pub struct PythonEvaluator;

impl PythonEvaluator {
    /// Sets the program that evaluates, for this whole process. Returns false if one was already set.
    pub fn set_program(program: impl Into<PathBuf>) -> bool {
        PROGRAM.set(program.into()).is_ok()
    }

    /// Serves the requests of the process that started this one, until it closes the connection.
    pub fn serve() -> std::process::ExitCode {
        serve::serve()
    }
}

/// Evaluates code within a wall-clock limit. Dropping the future ends the process.
pub(crate) async fn evaluate(request: EvalRequest, cancel: &CancellationToken) -> Result<EvalEnd, ShellError> {
    let process = match idle() {
        Some(process) => process,
        None => blocking(start).await??,
    };
    let severing = Severing::of(&process).map_err(unavailable)?;
    let mut asked = std::pin::pin!(blocking(move || process.ask(&request)));
    let (end, process) = tokio::select! {
        asked = &mut asked => asked?,
        () = cancel.cancelled() => {
            severing.sever();
            // Even if it has already answered, the process is ended: its connection is closed.
            drop(asked.await?);
            return Ok(EvalEnd::Cancelled);
        }
    };
    severing.disarm();
    if let Some(process) = process {
        keep(process);
    }
    Ok(end)
}

fn idle() -> Option<EvaluatorProcess> {
    std::iter::from_fn(|| lock(&IDLE).pop()).find_map(EvaluatorProcess::alive)
}

fn keep(process: EvaluatorProcess) {
    let mut idle = lock(&IDLE);
    if idle.len() < IDLE_MAX {
        idle.push(process);
    }
}

fn start() -> Result<EvaluatorProcess, ShellError> {
    let Some(program) = PROGRAM.get() else {
        return Err(unavailable("no program is set; set one with PythonEvaluator::set_program, or choose `container`"));
    };
    EvaluatorProcess::start(program).map_err(|error| unavailable(format!("{}: {error}", program.display())))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ShellError> {
    tokio::task::spawn_blocking(work).await.map_err(unavailable)
}

fn unavailable(reason: impl ToString) -> ShellError {
    ShellError::Unavailable { backend: "in-process Python", reason: reason.to_string() }
}
