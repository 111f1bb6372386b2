//! What runs commands in a place: the resident runner, or a container engine's own way.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::runner::{Cancel, Ended, OutputStreamKind, RunSpec};

/// Runs commands. All calls block, and may come from any number of threads.
pub(crate) trait Executor: Send + Sync {
    /// Runs a command to the end of its last process, and gives its output as it comes. A program that is
    /// not there is a result with exit code 127, and that time was over is a result, too.
    fn run(
        &self,
        spec: &RunSpec,
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
        cancel: &Cancel,
    ) -> Result<Ended, NotRun>;

    /// A program's path, looked up in `path` as a shell does.
    fn which(&self, program: &OsStr, path: &OsStr) -> Result<Option<PathBuf>, NotRun>;

    /// The place's own variables, `NAME=value` each. A command has those that it is given and no others.
    fn variables(&self) -> Result<Vec<OsString>, NotRun>;

    /// Whether a command can be run now, as far as that is known without running one.
    fn is_alive(&self) -> bool;
}

/// Why an executor has not run a command, or can't tell how it went.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotRun {
    /// The command cannot be: its directory, its arguments.
    #[error("{0}")]
    Invalid(String),
    /// What it runs in is gone, or does not answer; it is to be started anew.
    #[error("{0}")]
    Lost(String),
    /// It failed, and the next one need not.
    #[error("{0}")]
    Failed(String),
}
