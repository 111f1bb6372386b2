//! Python without a container: the program `foldspace-evaluator` runs code in a process that keeps no state between
//! evaluations and is replaced when it dies.

mod worker;

pub use foldspace_evaluator::{EvalAnswer, EvalRequest, LeftFile};
pub use worker::EvalEnd;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use tokio_util::sync::CancellationToken;

use super::ShellError;
use crate::engine::lock::lock;
use worker::{EvaluatorProcess, Severing};

/// The maximum number of idle processes for the next evaluations.
const IDLE_MAX: usize = 2;

const NAME: &str = "foldspace-evaluator";

static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
static IDLE: Mutex<Vec<EvaluatorProcess>> = Mutex::new(Vec::new());

/// The program that runs Python code without a container: `foldspace-evaluator`, of this release. It is searched for
/// next to this program, and then on the `PATH`.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::backends::PythonEvaluator;
/// assert!(PythonEvaluator::set_program("/opt/foldspace/foldspace-evaluator"));
/// assert!(!PythonEvaluator::set_program("/elsewhere"), "the first one stays");
/// ```
#[derive(Debug)]
pub struct PythonEvaluator;

impl PythonEvaluator {
    /// Sets the program, for all of this process. Returns false if one is set or was found already.
    pub fn set_program(program: impl Into<PathBuf>) -> bool {
        PROGRAM.set(Some(program.into())).is_ok()
    }

    /// Returns the path of the program; `None` if it is not installed.
    pub fn program() -> Option<&'static Path> {
        PROGRAM.get_or_init(installed).as_deref()
    }
}

/// Finds the program next to this one, one directory above for cargo's tests and examples, or on the `PATH`. Relative
/// directories of the `PATH` don't count: a workspace could have a program of that name.
fn installed() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let here = own.as_deref().and_then(Path::parent);
    let above = here.filter(|place| place.ends_with("deps") || place.ends_with("examples")).and_then(Path::parent);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = here.into_iter().chain(above).map(Path::to_owned).chain(std::env::split_paths(&paths));
    places.filter(|place| place.is_absolute()).map(|place| place.join(NAME)).find(|program| program.is_file())
}

/// Evaluates code within a wall clock. When this is dropped, the process is ended.
pub async fn evaluate(request: EvalRequest, cancel: &CancellationToken) -> Result<EvalEnd, ShellError> {
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
    let Some(program) = PythonEvaluator::program() else {
        return Err(unavailable(format!("{NAME} is not installed; install it beside foldspace, or use a container")));
    };
    EvaluatorProcess::start(program).map_err(|error| unavailable(format!("{}: {error}", program.display())))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ShellError> {
    tokio::task::spawn_blocking(work).await.map_err(unavailable)
}

fn unavailable(reason: impl ToString) -> ShellError {
    ShellError::Unavailable { backend: "in-process Python", reason: reason.to_string() }
}
