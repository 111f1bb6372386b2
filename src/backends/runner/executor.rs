//! The runner as what runs a place's commands.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::{Cancel, Ended, OutputStreamKind, RunSpec, Runner, RunnerError};
use crate::backends::executor::{Executor, NotRun};

impl Executor for Runner {
    fn run(
        &self,
        spec: &RunSpec,
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
        cancel: &Cancel,
    ) -> Result<Ended, NotRun> {
        Runner::run(self, spec, output, cancel).map_err(|error| match error {
            RunnerError::Directory(what) | RunnerError::Invalid(what) => NotRun::Invalid(what),
            RunnerError::Gone(_)
            | RunnerError::Silent { .. }
            | RunnerError::Protocol(_)
            | RunnerError::Connect { .. }
            | RunnerError::Stranger { .. } => NotRun::Lost(error.to_string()),
            other => NotRun::Failed(other.to_string()),
        })
    }

    fn which(&self, program: &OsStr, path: &OsStr) -> Result<Option<PathBuf>, NotRun> {
        Runner::which(self, program, path).map_err(|error| NotRun::Failed(error.to_string()))
    }

    fn variables(&self) -> Result<Vec<OsString>, NotRun> {
        let environment = self.env().map_err(|error| NotRun::Failed(error.to_string()))?;
        Ok(environment.variables.clone())
    }

    fn is_alive(&self) -> bool {
        Runner::is_alive(self)
    }
}
