//! Rules for running commands.

use std::sync::Arc;

use super::CommandPolicy;
use super::command_time::CommandTime;
use super::python::PythonRules;
use crate::backends::HostCaller;
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
