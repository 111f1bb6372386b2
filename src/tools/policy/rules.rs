//! Rules for running commands.

use std::sync::Arc;

use super::CommandPolicy;
use super::command_time::CommandTime;
use super::python::PythonRules;
use crate::backends::{CallerProcess, HostCaller, Shell, ShellError};
use crate::tools::call::approver::Asker;
use crate::tools::workspace::capture::CaptureBudget;

/// A tool runner's rules for commands.
#[derive(Clone, Default)]
pub struct ShellRules {
    /// The policy for commands.
    pub policy: CommandPolicy,
    /// The approver of commands that need approval. Without an approver, these commands are refused.
    pub asker: Option<Arc<dyn Asker>>,
    /// The limit for the characters of a text that `write_file` or `edit_file` takes, at most 33,554,432; `None` for
    /// 48,000.
    pub text_chars: Option<usize>,
    /// The rules for Python code.
    pub python: PythonRules,
    /// The limits for storing the contents of files that commands write.
    pub budget: CaptureBudget,
    /// The time limits of commands.
    pub time: CommandTime,
    /// Advice for the author of a command that could not be approved: how to allow it through the caller's interface.
    pub advice: Option<Arc<str>>,
    /// The shell text that starts the Docker daemon when a command on the host runs `docker` and the daemon does not
    /// answer. The policy's denials apply to it.
    pub start_docker: Option<Arc<str>>,
    /// The calling process, for unsandboxed commands.
    pub caller: HostCaller,
}

crate::engine::debug_by!(ShellRules, |rules| policy: rules.policy);

impl ShellRules {
    /// Returns the calling process for commands in a shell. `None` for this process, or for a sandboxed shell.
    ///
    /// # Errors
    /// [`ShellError::Blocked`]: the command would run outside of the caller's sandbox.
    pub(crate) fn caller_in(&self, shell: &dyn Shell) -> Result<Option<Arc<CallerProcess>>, ShellError> {
        if shell.properties().sandboxed {
            return Ok(None);
        }
        self.caller.process().map_err(|why| ShellError::Blocked(why.to_string()))
    }
}
