//! Rules for running commands.

use std::sync::Arc;

use super::CommandPolicy;
use super::command_time::CommandTime;
use super::python::PythonRules;
use crate::backends::{CallerProcess, HostCaller, Shell, ShellError};
use crate::tools::call::approver::Asker;
use crate::tools::workspace::capture::CaptureBudget;

/// Rules of a tool runner for commands.
#[derive(Clone, Default)]
pub struct ShellRules {
    /// Policy that decides which commands may run.
    pub policy: CommandPolicy,
    /// Approver for commands that the policy can't decide; without one they are refused.
    pub asker: Option<Arc<dyn Asker>>,
    /// Rules for Python code.
    pub python: PythonRules,
    /// Limits for the contents kept of files that commands write.
    pub budget: CaptureBudget,
    /// Time limits of commands.
    pub time: CommandTime,
    /// Advice how to allow a command that could not be approved, for its author; by default the command line's ways.
    pub advice: Option<Arc<str>>,
    /// Text for a shell that starts the Docker daemon when a command on the host runs `docker` and nothing answers. The
    /// policy's denials hold for it.
    pub start_docker: Option<Arc<str>>,
    /// The process on whose behalf commands run that no sandbox is around.
    pub caller: HostCaller,
}

crate::engine::debug_by!(ShellRules, |rules| policy: rules.policy);

impl ShellRules {
    /// Returns the process on whose behalf a command runs in a shell. `None` stands for this process, or for a shell in a
    /// sandbox.
    ///
    /// # Errors
    /// [`ShellError::Blocked`]: the command would run outside of the sandbox that the process is in.
    pub(crate) fn caller_in(&self, shell: &dyn Shell) -> Result<Option<Arc<CallerProcess>>, ShellError> {
        if shell.properties().sandboxed {
            return Ok(None);
        }
        self.caller.process().map_err(|why| ShellError::Blocked(why.to_string()))
    }
}
